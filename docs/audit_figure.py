"""Draw docs/images/audit.svg: lower bounds on epsilon, measured by the audit. Run: python docs/audit_figure.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpmicro_native import Categorical, Hierarchy, Numeric, Schema, method, release
from dpmicro_native.audit import Audit, audit

RUNS = 200_000
TWO = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)})
ONE = Schema({"a": Numeric(0, 1)})
SEX = Hierarchy.from_rows([("f", "*"), ("m", "*")])
AGE = Hierarchy.from_rows([(str(age), "young" if age < 3 else "old", "*") for age in range(6)])
TRUTHFUL = Schema({"sex": Categorical(SEX), "age": Categorical(AGE)})


def crossroads(m: int = 5) -> np.ndarray:
    """Four heaps of m records at the ends of a cross, and one record in a corner."""
    ends = np.repeat([[0, 0.5], [1, 0.5], [0.5, 0], [0.5, 1]], m, axis=0)
    return np.vstack([ends, [[0.0, 0.0]]])


def turning(n: int = 400) -> np.ndarray:
    """One cluster whose two eigenvalues come close when its last record moves."""
    return np.vstack([np.c_[np.linspace(0, 0.35, n - 1), np.arange(n - 1) % 2 * 1e-3], [[1.0, 0.0]]])


def few_of_each() -> dict[str, list[str]]:
    """Combinations of sex and age that occur 2 to 30 times."""
    sizes = [2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30]
    who = [(sex, str(age)) for sex in "fm" for age in range(6)]
    rows = [person for person, size in zip(who, sizes, strict=True) for _ in range(size)]
    return {"sex": [sex for sex, _ in rows], "age": [age for _, age in rows]}


@contextmanager
def less_noise(name: str, epsilon: int) -> Iterator[None]:
    """Break the release: its mechanism is given a multiple of epsilon."""
    right = getattr(release, name)

    def broken(*arguments: Any, **how: Any) -> Any:
        *rest, spent = arguments
        spent = [epsilon * share for share in spent] if isinstance(spent, list) else epsilon * spent
        return right(*rest, spent, **how)

    setattr(release, name, broken)
    try:
        yield
    finally:
        setattr(release, name, right)


def measure() -> list[tuple[str, Audit]]:
    """Audits of right mechanisms, and of two with half their noise."""
    heaps = np.repeat([[0.0], [1.0]], 10, axis=0)

    def of(name: str, table: Any, schema: Schema, **how: Any) -> Audit:
        return audit(table, schema, method(name, **({"epsilon": 1} | how)), runs=RUNS)

    results = [
        ("LAPLACE", of("LAPLACE", crossroads(), TWO)),
        ("IR_DP, 1 attribute", of("IR_DP", heaps, ONE, k=5)),
        ("MDAV_DP", of("MDAV_DP", crossroads(), TWO, k=10)),
        ("CM-6, variances", of("CM-6", crossroads(20), TWO, k=40)),
        ("CM-16, eigen", of("CM-16", turning(), TWO, k=400)),
        (
            "SAFEPUB, delta 0.01",
            of("SAFEPUB", pa.table(few_of_each()), TRUTHFUL, delta=0.01, epsilon_search=0.1),
        ),
    ]
    with less_noise("noisy_sums", 2):
        results.append(("IR_DP, half the noise", of("IR_DP", heaps, ONE, k=5)))
    with less_noise("noisy_answers", 2):
        results.append(("CM-6, half the noise", of("CM-6", crossroads(), TWO, k=21)))
    return results


def draw(results: list[tuple[str, Audit]]) -> str:
    """Two bars per mechanism, and a line at the claim."""
    left, unit, step, top = 170, 52, 52, 56
    height = top + step * len(results) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif" '
        'font-size="13"><rect width="100%" height="100%" fill="white"/>',
        '<text x="16" y="22" font-weight="bold">Epsilon is at least ... (95 % confidence; claim: 1)</text>',
        '<rect x="170" y="33" width="12" height="12" fill="#4477aa"/><text x="187" y="44">given the partition</text>'
        '<rect x="320" y="33" width="12" height="12" fill="#ee8866"/><text x="337" y="44">all recomputed</text>',
    ]
    bottom = height - 24
    claim = (
        f'<line x1="{left + unit}" y1="{top}" x2="{left + unit}" y2="{bottom}" stroke="black" '
        f'stroke-dasharray="4 3"/><text x="{left + unit}" y="{bottom + 16}" text-anchor="middle">claim</text>'
    )
    figures = []
    for number, (name, result) in enumerate(results):
        y = top + number * step
        lines.append(f'<text x="{left - 8}" y="{y + 26}" text-anchor="end">{name}</text>')
        bars = ((result.given_partition, "#4477aa"), (result.recomputed, "#ee8866"))
        for row, (bound, colour) in enumerate(bars):
            width = bound.epsilon * unit
            lines.append(
                f'<rect x="{left}" y="{y + 4 + 19 * row}" width="{width:.1f}" height="16" fill="{colour}"/>'
            )
            x = left + width + 6  # a white patch, so that the line at the claim does not cross the figure out
            figures.append(
                f'<rect x="{x - 2:.1f}" y="{y + 5 + 19 * row}" width="32" height="14" fill="white"/>'
                f'<text x="{x:.1f}" y="{y + 17 + 19 * row}">{bound.epsilon:.2f}</text>'
            )
        if result.contradicted:
            x = left + 52 + max(bound.epsilon for bound, _ in bars) * unit
            figures.append(
                f'<text x="{x:.0f}" y="{y + 26}" fill="#aa0000">contradicts the certificate</text>'
            )
    return "\n".join([*lines, claim, *figures, "</svg>"]) + "\n"


if __name__ == "__main__":
    measured = measure()
    for name, result in measured:
        print(
            f"{name}: {result.given_partition.epsilon:.2f} {result.recomputed.epsilon:.2f} {result.verdict}"
        )
    (Path(__file__).parent / "images" / "audit.svg").write_text(draw(measured))
