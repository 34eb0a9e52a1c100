"""Draw docs/images/audit.svg: lower bounds on epsilon, measured by the audit. Run: python docs/audit_figure.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpmicro_native import Numeric, Schema, method, release
from dpmicro_native.audit import Audit, audit

RUNS = 200_000
TWO = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)})
ONE = Schema({"a": Numeric(0, 1)})


def crossroads(m: int = 5) -> np.ndarray:
    """Four heaps of m records at the ends of a cross, and one record in a corner."""
    ends = np.repeat([[0, 0.5], [1, 0.5], [0.5, 0], [0.5, 1]], m, axis=0)
    return np.vstack([ends, [[0.0, 0.0]]])


def measure() -> list[tuple[str, Audit]]:
    """Audits of right mechanisms, and of one with half its noise."""
    heaps = np.repeat([[0.0], [1.0]], 10, axis=0)
    results = [
        ("LAPLACE", audit(crossroads(), TWO, method("LAPLACE", epsilon=1), runs=RUNS)),
        ("IR_DP, 1 attribute", audit(heaps, ONE, method("IR_DP", epsilon=1, k=5), runs=RUNS)),
        ("MDAV_DP", audit(crossroads(), TWO, method("MDAV_DP", epsilon=1, k=10), runs=RUNS)),
    ]
    right = release.noisy_sums
    release.noisy_sums = lambda sums, reach, shares: right(sums, reach, [2 * share for share in shares])
    try:
        broken = audit(heaps, ONE, method("IR_DP", epsilon=1, k=5), runs=RUNS)
    finally:
        release.noisy_sums = right
    return [*results, ("IR_DP, half the noise", broken)]


def draw(results: list[tuple[str, Audit]]) -> str:
    """Two bars per mechanism, and a line at the claim."""
    left, unit, step, top = 170, 58, 52, 56
    height = top + step * len(results) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif" '
        'font-size="13"><rect width="100%" height="100%" fill="white"/>',
        '<text x="16" y="22" font-weight="bold">Epsilon is at least ... (95 % confidence; claim: 1)</text>',
        '<rect x="170" y="33" width="12" height="12" fill="#4477aa"/><text x="187" y="44">given the partition</text>'
        '<rect x="320" y="33" width="12" height="12" fill="#ee8866"/><text x="337" y="44">partition recomputed</text>',
    ]
    for number, (name, result) in enumerate(results):
        y = top + number * step
        lines.append(f'<text x="{left - 8}" y="{y + 26}" text-anchor="end">{name}</text>')
        bars = ((result.given_partition, "#4477aa"), (result.recomputed, "#ee8866"))
        for row, (bound, colour) in enumerate(bars):
            width = bound.epsilon * unit
            lines.append(
                f'<rect x="{left}" y="{y + 4 + 19 * row}" width="{width:.1f}" height="16" fill="{colour}"/>'
                f'<text x="{left + width + 6:.1f}" y="{y + 17 + 19 * row}">{bound.epsilon:.2f}</text>'
            )
        if result.contradicted:
            x = left + 52 + max(bound.epsilon for bound, _ in bars) * unit
            lines.append(f'<text x="{x:.0f}" y="{y + 26}" fill="#aa0000">contradicts the certificate</text>')
    bottom = height - 24
    lines.append(
        f'<line x1="{left + unit}" y1="{top}" x2="{left + unit}" y2="{bottom}" stroke="black" '
        f'stroke-dasharray="4 3"/><text x="{left + unit}" y="{bottom + 16}" text-anchor="middle">claim</text></svg>'
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    measured = measure()
    for name, result in measured:
        print(
            f"{name}: {result.given_partition.epsilon:.2f} {result.recomputed.epsilon:.2f} {result.verdict}"
        )
    (Path(__file__).parent / "images" / "audit.svg").write_text(draw(measured))
