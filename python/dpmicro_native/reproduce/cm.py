"""Cross-moment microaggregation (CM): Table 1 and Figures 7 to 14.

Protocol (docs/reproduction.md): unit cube with bounds [0, 1.5 max], attributes in file order, sampled
values matched to the records by rank within each cluster and attribute before the SSE is taken, in raw units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from .._cm_catalogue import CATALOGUE
from ..aggregate import noisy_answers
from ..methods import Microaggregation, method
from ..partition import mdav
from ..release import mask_clusters
from ..repair import repair_moments
from ..sample import sample_records
from ..testing import seeded
from .figure import Experiment, Figure, Line, Panel, Stated, percent
from .masking import seed_of
from .tables import Array, Projection, census, eia

#: Cluster sizes of the papers' x-axes, roughly: up to half of Census, a quarter of EIA.
CENSUS_SIZES = (tuple(range(20, 541, 20)), (40, 100, 160, 220, 280, 340, 400, 460, 520))
EIA_SIZES = (tuple(range(100, 1101, 50)), (200, 400, 600, 800, 1000))
#: A cluster size read off a curve in the paper and one found here count as equal within this share: curves of
#: averages cross at a small angle, and MDAV's error jumps with n mod k.
CROSSING = 0.15
#: Marks the log2 of the mean SSE. The curves are means of log2 SSE; the paper does not say which it drew.
MEAN = " (log₂ of the mean SSE)"


@dataclass(frozen=True)
class Task:
    """One partition of one table, and everything to be measured on it."""

    table: Projection
    k: int
    methods: tuple[str, ...]
    epsilons: tuple[Fraction, ...]
    draws: int


Losses = dict[tuple[str, Fraction], float]


class RankMatched:
    """``evaluate.rank_matched_sse`` in the unit cube for many samples of one table: its own order is found once."""

    def __init__(self, U: Array, labels: NDArray[np.int32], width: Array) -> None:
        # Clusters are two apart and values at most one, so that one sort orders by cluster, then by value.
        self.offset = 2.0 * labels
        self.original = np.sort(self.offset + U, axis=0)
        self.squared = width**2

    def __call__(self, sampled: Array) -> float:
        """Sum of squared errors in raw units."""
        difference = np.sort(self.offset + sampled, axis=0) - self.original
        return float((difference**2).sum(axis=0) @ self.squared)


def losses(task: Task) -> Losses:
    """Mean log2 of the rank-matched SSE of each method and epsilon, in raw units; and log2 of the mean."""
    U, width = task.table.U, task.table.width
    d = U.shape[1]
    whole = [list(range(d))]
    each = [[j] for j in range(d)]
    found: Losses = {}
    partitions = {}
    for name in task.methods:
        entry = CATALOGUE[name]
        queries = entry.queries()
        groups = whole if entry.partition == "MDAV" else each
        if entry.partition not in partitions:
            labels = np.empty(U.shape, np.int32)
            for group in groups:
                labels[:, group] = mdav(U[:, group], task.k, threads=1)[:, None]
            partitions[entry.partition] = labels
        labels = partitions[entry.partition]
        matched = RankMatched(U, labels, width)
        exact = [queries.moments(U[:, group], labels[:, group[0]], threads=1) for group in groups]
        asked = [list(queries.queries(moments, threads=1)) for moments in exact]
        for epsilon in task.epsilons:
            if not entry.noise and (name, task.epsilons[0]) in found:
                for kind in (name, name + MEAN):
                    found[kind, epsilon] = found[kind, task.epsilons[0]]
                continue
            drawn = []
            draws = 1 if not entry.noise and entry.order == 0 else task.draws
            with seeded(seed_of(task.table.name, task.k, name, epsilon)):
                for _ in range(draws):
                    sampled = np.empty_like(U)
                    for group, moments, query_list in zip(groups, exact, asked, strict=True):
                        share = epsilon / len(groups)  # Algorithm 3: an even share per attribute
                        answers = [
                            noisy_answers(query, share, threads=1) if entry.noise else query.values
                            for query in query_list
                        ]
                        noisy = queries.assemble(moments.sizes, len(group), answers)
                        repaired = repair_moments(noisy, threads=1).moments
                        sampled[:, group] = sample_records(labels[:, group[0]], repaired, threads=1)
                    drawn.append(matched(sampled))
            found[name, epsilon] = fmean(map(math.log2, drawn))
            found[name + MEAN, epsilon] = math.log2(fmean(drawn))
    return found


Curves = dict[tuple[str, str, Fraction], list[float]]


def curves(
    experiment: Experiment,
    tables: Sequence[Projection],
    sizes: Callable[[Projection], Sequence[int]],
    methods: Sequence[str],
    epsilons: Sequence[Fraction],
    draws: int,
) -> Curves:
    """Loss against k for every table, method and epsilon."""
    tasks = [Task(table, k, tuple(methods), tuple(epsilons), draws) for table in tables for k in sizes(table)]
    found: Curves = {}
    for task, values in zip(tasks, experiment.run(losses, tasks), strict=True):
        for (name, epsilon), value in values.items():
            found.setdefault((task.table.name, name, epsilon), []).append(value)
    return found


def overtakes(ks: Sequence[int], reference: Sequence[float], other: Sequence[float]) -> float:
    """The k beyond which ``other`` is below ``reference``, between grid points; infinite if it never is.

    Curves of averages touch more than once where they meet. The cut taken is the one beyond which
    ``other`` saves most in all.

    >>> overtakes([10, 20, 30, 40], [3, 3, 3, 3], [5, 4, 2, 2])
    25.0
    """
    gap = np.subtract(other, reference)
    saved = np.cumsum(-gap[::-1])[::-1]
    cut = int(saved.argmax())
    if saved[cut] <= 0:
        return math.inf
    if cut == 0:
        return float(ks[0])
    return float(ks[cut] - (ks[cut] - ks[cut - 1]) * gap[cut] / (gap[cut] - gap[cut - 1]))


def crossing(
    what: str, where: str, paper: float, ours: float, why: str = "", tolerance: float = CROSSING
) -> Stated:
    """Compare a cluster size stated with one found."""
    found = "never" if math.isinf(ours) else f"{ours:.0f}"
    return Stated(what, where, f"{paper:g}", found, abs(ours - paper) <= tolerance * paper, why)


def table1(experiment: Experiment) -> Figure:
    """Plain Laplace noise: log2 SSE, in closed form and drawn."""
    epsilons = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
    stated = {
        "Census 2": (47.68, 47.16, 46.71, 46.33, 45.99, 45.68),
        "EIA 2": (60.28, 59.75, 59.30, 58.92, 58.58, 58.27),
        "Census 3": (49.13, 48.60, 48.16, 47.77, 47.44, 47.14),
        "EIA 3": (61.45, 60.93, 60.48, 60.09, 59.76, 59.46),
        "Census 4": (49.97, 49.44, 49.00, 48.61, 48.27, 47.97),
        "EIA 4": (62.87, 62.34, 61.89, 61.50, 61.16, 60.86),
    }
    draws = experiment.pick(10, 2)

    def drawn(task: tuple[Projection, float]) -> float:
        table, epsilon = task
        made = method("LAPLACE", epsilon=epsilon)
        assert isinstance(made, Microaggregation)
        total = 0.0
        with seeded(seed_of("laplace", table.name, epsilon)):
            for _ in range(draws):
                masked = mask_clusters(table.U, table.schema, made, 1, lambda station, share: None)
                total += float((((masked.released - masked.original) * table.width) ** 2).sum())
        return math.log2(total / draws)

    tables = [
        source.first(d) for d in (2, 3, 4) for source in (census(experiment.data), eia(experiment.data))
    ]
    tasks = [(table, epsilon) for table in tables for epsilon in epsilons]
    simulated = iter(experiment.run(drawn, tasks))
    panels, compared = [], []
    for table in tables:
        n, d = table.X.shape
        closed = [math.log2(2 * n * d**2 * (table.width**2).sum() / epsilon**2) for epsilon in epsilons]
        panels.append(
            Panel(
                table.name,
                "ε",
                "log₂ SSE",
                (
                    Line("paper", epsilons, stated[table.name], dotted=True),
                    Line("closed form 2nd²ΣΛ²/ε²", epsilons, closed),
                    Line("drawn", epsilons, [next(simulated) for _ in epsilons]),
                ),
            )
        )
        difference = max(abs(a - b) for a, b in zip(closed, stated[table.name], strict=True))
        compared.append(
            Stated(
                f"log₂ SSE of plain Laplace noise on {table.name}, ε = 1 and ε = 2",
                "Table 1",
                f"{stated[table.name][0]:.2f}, {stated[table.name][-1]:.2f}",
                f"{closed[0]:.2f}, {closed[-1]:.2f}",
                difference <= 0.05,
                f"greatest difference over the six ε: {difference:.2f}",
            )
        )
    return Figure(
        "cm-table1",
        "Cross moments, Table 1: plain Laplace noise",
        panels,
        compared,
        ("Values before truncation to the bounds, as in the paper.",),
    )


_MDAV_1 = ("CM-1", "CM-2", "CM-3", "CM-4", "CM-5", "CM-6", "CM-7")
_MDAV_2 = ("CM-8", "CM-9", "CM-10", "CM-11", "CM-12", "CM-13")
_BASE_1, _BASE_2 = ("B1", "B2", "B3"), ("B4", "B5")


def _label(name: str) -> str:
    return name.replace("CM-", "method ")


def _panel(
    table: str, title: str, ks: Sequence[int], found: Mapping[str, Sequence[float]], names: Sequence[str]
) -> Panel:
    lines = [Line(_label(name), ks, found[name], dotted=name.startswith("B")) for name in names]
    return Panel(f"{table}, {title}", "k", "log₂ SSE", lines)


def _coefficient(
    experiment: Experiment, source: Projection, epsilon: int
) -> tuple[Sequence[int], list[dict[str, list[float]]], list[Panel]]:
    """The six panels of Figures 7 to 10; the curves per number of attributes."""
    ks = experiment.pick(*(CENSUS_SIZES if source.name == "Census" else EIA_SIZES))
    tables = [source.first(d) for d in (2, 3, 4)]
    share = Fraction(epsilon)
    names = _MDAV_1 + _MDAV_2 + _BASE_1 + _BASE_2
    draws = experiment.pick(40, 6) if source.name == "Census" else experiment.pick(20, 3)
    found = curves(experiment, tables, lambda table: ks, names, [share], draws)
    kinds = [*names, *(name + MEAN for name in names)]
    per_table = [{name: found[table.name, name, share] for name in kinds} for table in tables]
    panels = [
        _panel(table.name, "m = 0, 1", ks, values, _MDAV_1 + _BASE_1)
        for table, values in zip(tables, per_table, strict=True)
    ] + [
        _panel(table.name, "m = 2", ks, values, ("CM-1", "CM-3", *_MDAV_2, *_BASE_2))
        for table, values in zip(tables, per_table, strict=True)
    ]
    return ks, per_table, panels


def _best(values: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[float]:
    return [min(column) for column in zip(*(values[name] for name in names), strict=True)]


def _by_mean(ks: Sequence[int], found: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    k = overtakes(ks, found["CM-1" + MEAN], _best(found, [name + MEAN for name in names]))
    return f"by log₂ of the mean SSE: {'never' if math.isinf(k) else format(k, '.0f')}"


_NOTE = (
    "Means of log₂ SSE over the draws. The paper does not say how many it took, nor whether it took the logarithm "
    "before or after.",
    "A crossing is interpolated on the grid of k; it counts as equal within 15 %, since the curves meet at a small "
    "angle and the partition changes with n mod k.",
)


def _first_crossings(
    source: str,
    epsilon: int,
    where: str,
    paper: Sequence[int],
    ks: Sequence[int],
    values: Sequence[Mapping[str, Sequence[float]]],
) -> list[Stated]:
    return [
        crossing(
            f"{source} {d}, ε = {epsilon}: m = 1 (method 3) beats m = 0 from k",
            where,
            stated,
            overtakes(ks, found["CM-1"], found["CM-3"]),
            _by_mean(ks, found, ("CM-3",)),
        )
        for d, stated, found in zip((2, 3, 4), paper, values, strict=True)
    ]


def fig7(experiment: Experiment) -> Figure:
    """Census, MDAV, ε = 1."""
    ks, values, panels = _coefficient(experiment, census(experiment.data), 1)
    stated = _first_crossings("Census", 1, "5.5", (283, 400, 510), ks, values)
    gap = max(abs(a - b) for found in values for a, b in zip(found["CM-3"], found["CM-6"], strict=True))
    stated.append(
        Stated(
            "methods 3 and 6 have very similar errors (greatest difference of log₂ SSE over k)",
            "5.5",
            "“very similar”",
            f"{gap:.2f}",
            gap < 0.5,
        )
    )
    ours = [overtakes(ks, found["CM-1"], _best(found, _MDAV_2)) for found in values]
    stated.append(
        Stated(
            "m = 2 beats m = 0 on Census 2 only (k found, Census 2, 3, 4)",
            "5.5",
            "Census 2 only",
            ", ".join("never" if math.isinf(k) else f"{k:.0f}" for k in ours),
            math.isfinite(ours[0]) and math.isinf(ours[1]) and math.isinf(ours[2]),
            "where a crossing lies near the right end of the axis, the draws decide",
        )
    )
    return Figure("cm-fig7", "Cross moments, Figure 7: Census, MDAV, ε = 1", panels, stated, _NOTE)


def fig8(experiment: Experiment) -> Figure:
    """Census, MDAV, ε = 2."""
    source = census(experiment.data)
    ks, values, panels = _coefficient(experiment, source, 2)
    stated = _first_crossings("Census", 2, "5.5", (167, 239, 350), ks, values)
    two = source.first(2)
    draws = experiment.pick(200, 40)
    alone = losses(Task(two, 100, ("B1",), (Fraction(2),), 1))["B1", Fraction(2)]
    sixth = losses(Task(two, 390, ("CM-6",), (Fraction(2),), draws))["CM-6", Fraction(2)]
    stated.append(
        Stated(
            "Census 2, standalone MDAV at k = 100: log₂ SSE",
            "5.5",
            "35.4",
            f"{alone:.2f}",
            abs(alone - 35.4) < 0.1,
        )
    )
    stated.append(
        Stated(
            "Census 2, method 6 at k = 390, ε = 2: log₂ SSE",
            "5.5",
            "34.9",
            f"{sixth:.2f}",
            abs(sixth - 34.9) < 0.2,
        )
    )
    for d, paper in ((3, 370), (4, 493)):
        found = values[d - 2]
        stated.append(
            crossing(
                f"Census {d}, ε = 2: m = 2 beats m = 0 from k",
                "5.5",
                paper,
                overtakes(ks, found["CM-1"], _best(found, _MDAV_2)),
                _by_mean(ks, found, _MDAV_2),
            )
        )
    return Figure("cm-fig8", "Cross moments, Figure 8: Census, MDAV, ε = 2", panels, stated, _NOTE)


def fig9(experiment: Experiment) -> Figure:
    """EIA, MDAV, ε = 1."""
    ks, values, panels = _coefficient(experiment, eia(experiment.data), 1)
    stated = _first_crossings("EIA", 1, "5.5", (736, 959, 1050), ks, values)
    stated.append(
        crossing(
            "EIA 2, ε = 1: method 2 beats method 3 from k",
            "5.5",
            469,
            overtakes(ks, values[0]["CM-3"], values[0]["CM-2"]),
        )
    )
    pairs = [("B2", "B3"), ("B4", "B5")]
    gaps = [
        max(abs(a - b) for a, b in zip(values[2][one], values[2][two], strict=True)) for one, two in pairs
    ]
    stated.append(
        Stated(
            "EIA 4: all coefficients or variances only, without noise, differ much (greatest difference of log₂ SSE)",
            "5.5",
            "“important differences” of B2, B3 and of B4, B5",
            f"{gaps[0]:.2f} and {gaps[1]:.2f}",
            min(gaps) > 0.5,
            "perhaps because rank matching within each attribute hides how attributes depend on each other",
        )
    )
    return Figure("cm-fig9", "Cross moments, Figure 9: EIA, MDAV, ε = 1", panels, stated, _NOTE)


def fig10(experiment: Experiment) -> Figure:
    """EIA, MDAV, ε = 2."""
    ks, values, panels = _coefficient(experiment, eia(experiment.data), 2)
    stated = _first_crossings("EIA", 2, "5.5", (491, 608, 689), ks, values)
    at = min(range(len(ks)), key=lambda i: abs(ks[i] - 1000))
    gain = min(values[0]["CM-2"][at], values[0]["CM-3"][at]) - min(
        values[0]["CM-8"][at], values[0]["CM-12"][at]
    )
    stated.append(
        Stated(
            "EIA 2, k ≈ 1000: methods 8 and 12 are slightly better than 2 and 3 (gain in log₂ SSE)",
            "5.5",
            "“slightly better”",
            f"{gain:.2f}".replace("-", "−"),
            gain > 0,
        )
    )
    return Figure("cm-fig10", "Cross moments, Figure 10: EIA, MDAV, ε = 2", panels, stated, _NOTE)


def fig11(experiment: Experiment) -> Figure:
    """The cluster size from which m = 1 beats m = 0, against ε."""
    epsilons = [Fraction(e, 10) for e in experiment.pick((10, 12, 14, 16, 18, 20), (10, 20))]
    panels, stated = [], []
    paper = {
        ("Census", 1): (283, 400, 510),
        ("Census", 2): (167, 239, 350),
        ("EIA", 1): (736, 959, 1050),
        ("EIA", 2): (491, 608, 689),
    }
    falls = []
    for source in (census(experiment.data), eia(experiment.data)):
        small = source.name == "Census"
        ks = experiment.pick(*(CENSUS_SIZES if small else EIA_SIZES))
        tables = [source.first(d) for d in (2, 3, 4)]
        draws = experiment.pick(80, 12) if small else experiment.pick(40, 6)
        found = curves(experiment, tables, lambda table, ks=ks: ks, ("CM-1", "CM-2", "CM-3"), epsilons, draws)  # type: ignore[misc]
        lines = []
        for i, table in enumerate(tables):
            least: list[float] = []
            by_mean: list[str] = []
            for epsilon in epsilons:
                curve = {
                    name + kind: found[table.name, name + kind, epsilon]
                    for name in ("CM-1", "CM-2", "CM-3")
                    for kind in ("", MEAN)
                }
                least.append(overtakes(ks, curve["CM-1"], _best(curve, ("CM-2", "CM-3"))))
                by_mean.append(_by_mean(ks, curve, ("CM-2", "CM-3")))
            falls.append(least[-1] < least[0])
            shown = [(float(e), k) for e, k in zip(epsilons, least, strict=True) if math.isfinite(k)]
            lines.append(Line(table.name, [e for e, _ in shown], [k for _, k in shown]))
            for end, k, remark in ((1, least[0], by_mean[0]), (2, least[-1], by_mean[-1])):
                stated.append(
                    crossing(
                        f"{table.name}, ε = {end}: least k at which m = 1 beats m = 0",
                        "5.5",
                        paper[source.name, end][i],
                        k,
                        remark,
                    )
                )
        panels.append(Panel(source.name, "ε", "least k at which m = 1 beats m = 0", lines))
    stated.append(
        Stated(
            "smaller clusters suffice as ε grows (tables of six)",
            "5.5, Figure 11",
            "6",
            str(sum(falls)),
            all(falls),
        )
    )
    return Figure("cm-fig11", "Cross moments, Figure 11: cluster size and ε", panels, stated, _NOTE)


def _ranking(
    experiment: Experiment, epsilon: int
) -> tuple[list[Panel], dict[str, tuple[Sequence[int], dict[str, list[float]]]]]:
    names = (*tuple(f"CM-{i}" for i in range(20, 27)), "B6", "B7", "B8")
    panels, values = [], {}
    for source in (census(experiment.data), eia(experiment.data)):
        small = source.name == "Census"
        ks = experiment.pick(*(CENSUS_SIZES if small else EIA_SIZES))
        draws = experiment.pick(40, 6) if small else experiment.pick(20, 3)
        table = source.first(4)
        found = curves(experiment, [table], lambda table, ks=ks: ks, names, [Fraction(epsilon)], draws)  # type: ignore[misc]
        curve = {name: found[table.name, name, Fraction(epsilon)] for name in names}
        values[table.name] = ks, curve
        panels.append(
            _panel(table.name, "m = 0, 1", ks, curve, ("CM-20", "CM-21", "CM-22", "CM-23", "B6", "B7"))
        )
        panels.append(
            _panel(table.name, "m = 2", ks, curve, ("CM-20", "CM-21", "CM-24", "CM-25", "CM-26", "B8"))
        )
    return panels, values


def fig12(experiment: Experiment) -> Figure:
    """IR-MDAV, ε = 1."""
    panels, values = _ranking(experiment, 1)
    ks, curve = values["Census 4"]
    stated = [
        crossing(
            "Census 4, ε = 1: method 21 beats method 20 from k",
            "5.5",
            364,
            overtakes(ks, curve["CM-20"], curve["CM-21"]),
        )
    ]
    others = [
        overtakes(ks, curve["CM-20"], curve[name]) for name in ("CM-22", "CM-23", "CM-24", "CM-25", "CM-26")
    ]
    stated.append(
        Stated(
            "Census 4, ε = 1: methods other than 21 that beat method 20",
            "5.5",
            "none",
            str(sum(map(math.isfinite, others))) if any(map(math.isfinite, others)) else "none",
            not any(map(math.isfinite, others)),
        )
    )
    ks, curve = values["EIA 4"]
    stated.append(
        crossing(
            "EIA 4, ε = 1: method 21 beats method 20 from k close to",
            "5.5",
            1000,
            overtakes(ks, curve["CM-20"], curve["CM-21"]),
        )
    )
    return Figure("cm-fig12", "Cross moments, Figure 12: IR-MDAV, ε = 1", panels, stated, _NOTE)


def fig13(experiment: Experiment) -> Figure:
    """IR-MDAV, ε = 2."""
    panels, values = _ranking(experiment, 2)
    first, second = ("CM-21", "CM-22", "CM-23"), ("CM-24", "CM-25", "CM-26")
    stated = []
    for table, papers in (("Census 4", (351, 364)), ("EIA 4", (800, 800))):
        ks, curve = values[table]
        for m, names, paper in ((1, first, papers[0]), (2, second, papers[1])):
            stated.append(
                crossing(
                    f"{table}, ε = 2: m = {m} beats m = 0 from k",
                    "5.5",
                    paper,
                    overtakes(ks, curve["CM-20"], _best(curve, names)),
                )
            )
    return Figure("cm-fig13", "Cross moments, Figure 13: IR-MDAV, ε = 2", panels, stated, _NOTE)


def fig14(experiment: Experiment) -> Figure:
    """The eigen family under 2-iDP."""
    names = ("CM-1", *(f"CM-{i}" for i in range(14, 20)))
    epsilon = Fraction(2)
    panels = []
    worse: list[bool] = []
    totals = dict.fromkeys(names[1:], 0.0)
    for source in (census(experiment.data), eia(experiment.data)):
        small = source.name == "Census"
        ks = experiment.pick(*(CENSUS_SIZES if small else EIA_SIZES))
        draws = experiment.pick(20, 4) if small else experiment.pick(8, 2)
        tables = [source.first(d) for d in (2, 3, 4)]
        found = curves(experiment, tables, lambda table, ks=ks: ks, names, [epsilon], draws)  # type: ignore[misc]
        for table in tables:
            curve = {name: found[table.name, name, epsilon] for name in names}
            panels.append(_panel(table.name, "ε = 2", ks, curve, names))
            for name in names[1:]:
                worse += [b > a for a, b in zip(curve["CM-1"], curve[name], strict=True)]
                totals[name] += sum(curve[name]) / len(ks)
    ranked = sorted(totals, key=totals.__getitem__)
    stated = [
        Stated(
            "method 1 loses less than any eigen method (share of tables, methods and k)",
            "5.5",
            "“nearly all”",
            percent(sum(worse) / len(worse)),
            sum(worse) / len(worse) > 0.9,
        ),
        Stated(
            "the best eigen method, on average", "5.5", "method 15", _label(ranked[0]), ranked[0] == "CM-15"
        ),
        Stated(
            "the two worst eigen methods, on average",
            "5.5",
            "methods 14 and 17",
            " and ".join(sorted(map(_label, ranked[-2:]))),
            set(ranked[-2:]) == {"CM-14", "CM-17"},
        ),
    ]
    return Figure("cm-fig14", "Cross moments, Figure 14: eigen family, ε = 2", panels, stated, _NOTE[:1])
