"""How far a release is from the table it came from. For the curator's eyes only."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .errors import InputError
from .schema import Numeric, Schema

if TYPE_CHECKING:
    from .hierarchy import Hierarchy
    from .release import Masked
    from .safepub import SafePubResult

#: Levels at which the distributions are tabulated: every percent, minimum and maximum included.
PERCENT = tuple(range(101))

# Means are computed on a grid of 2^-30 of a width, so a released value may miss an original one that it
# equals by that much. Values closer than this, in widths, count as equal.
TOLERANCE = 2.0**-28

# Above this many records a sample of them is linked; each still meets every released record.
LINKAGE_ROWS = 20_000
LINKAGE_SAMPLE = 2_000

RANGES = 200  # random range queries, of one attribute and of two
PAIRS = 50  # pairs of attributes that the second kind is spread over, at most


@dataclass(frozen=True)
class Summary:
    """One attribute of one table, in its own units."""

    mean: float
    variance: float
    quantiles: tuple[float, ...]  # at PERCENT


@dataclass(frozen=True)
class Histogram:
    """Counts in the same bins before and after; records beyond the outer edges are in none."""

    edges: tuple[float, ...]
    original: tuple[int, ...]
    released: tuple[int, ...]


@dataclass(frozen=True)
class Noise:
    """Scale of the Laplace noise on the cluster means of an attribute, in its own units."""

    least: float  # in the largest cluster
    median: float  # over the clusters
    greatest: float  # in the smallest cluster
    deviation: float  # standard deviation of the noise on a released value, over all records


@dataclass(frozen=True)
class Attribute:
    """What happened to one attribute; lengths are in its own units."""

    original: Summary
    released: Summary
    mean_error: float  # released minus original
    variance_error: float | None  # relative; absent when the original does not vary
    quantile_error: float  # greatest difference of the 5, 25, 50, 75 and 95 % quantiles
    kolmogorov_smirnov: float  # greatest difference of the distribution functions, 0 to 1
    wasserstein: float  # area between them: how far values moved, at the least
    histogram: Histogram
    rmse: float | None = None  # between a record and what stands for it
    information_loss: float | None = None  # 100 SSE/SST of this attribute
    truncated: float | None = None  # share of records whose noisy value was moved back to a bound
    noise: Noise | None = None


@dataclass(frozen=True)
class Sizes:
    """How many records the clusters of a partition hold."""

    clusters: int
    smallest: int
    median: float
    largest: int
    edges: tuple[float, ...]  # of a histogram of the sizes
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Ranges:
    """Random range counts, asked of both tables. Ends are original values drawn at random."""

    queries: int
    error: float  # mean |difference| as a share of the records
    relative_error: float  # mean |difference| over the true count, or 1 % of the records where that is more


@dataclass(frozen=True)
class Linkage:
    """Distance-based record linkage by an intruder who knows original records entirely.

    Attributes are divided by their standard deviation; among equally near released records the
    intruder guesses.
    """

    share: float  # of the known records whose nearest released record is their own
    standard_error: float  # by sampling
    known: int  # original records tried: all, or a random sample
    among: int  # released records each was compared with: always all


@dataclass(frozen=True)
class Evaluation:
    """Utility and risk computed from the original records: never publish them.

    Figures that do not apply to a release are absent (``None`` or empty).
    """

    records: int
    records_dropped: int = 0  # beyond an individual's max_records
    clusters: Mapping[str, int] = field(default_factory=dict)  # per group of attributes
    sse: float | None = None  # in raw units
    sse_before_truncation: float | None = None
    #: After putting released values in the rank order of the originals, within each cluster and attribute:
    #: the figure of the cross-moment paper. Nobody without the originals can do that, so it is not a property
    #: of the release.
    sse_rank_matched: float | None = None
    sse_expected: float | None = None  # of clustering and noise, before truncation, in closed form
    mse: float | None = None  # SSE per record
    information_loss: float | None = None  # 100 SSE/SST, in the unit cube
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    sizes: Mapping[str, Sizes] = field(default_factory=dict)  # per group of attributes
    covariance_error: float | None = None  # relative Frobenius norm of the difference, in the unit cube
    correlation_error: float | None = None  # mean |difference| over pairs of attributes
    correlation_original: tuple[tuple[float, ...], ...] | None = None
    correlation_released: tuple[tuple[float, ...], ...] | None = None
    ranges_1d: Ranges | None = None
    ranges_2d: Ranges | None = None
    linkage: Linkage | None = None
    unique: float | None = None  # share of released records that no other equals in every attribute
    smallest_class: int | None = None  # fewest released records that share a combination of values
    records_released: int | None = None  # where that is not the number of records
    #: Share of an attribute's values that a released value stands for, on average: 0 exact, 1 suppressed.
    generality: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain values, absent ones left out."""
        return {name: _present(value) for name, value in asdict(self).items() if value not in (None, {})}

    def to_json(self) -> str:
        """The figures as JSON text."""
        return _layout(self.to_dict())

    def __repr__(self) -> str:
        parts = [f"{self.records} records"]
        if self.information_loss is not None:
            parts.append(f"information loss {self.information_loss:.3g} %")
        if self.linkage is not None:
            parts.append(f"linked {100 * self.linkage.share:.3g} %")
        return f"<Evaluation {', '.join(parts)}; for the curator's eyes only>"


def evaluate_masked(
    masked: Masked, schema: Schema, dropped: int = 0, *, whole: Collection[str] = (), threads: int = 0
) -> Evaluation:
    """Compare the masked records with the originals they stand for.

    ``whole`` names the attributes that are released as whole numbers: they are rounded here as there.
    """
    names = masked.names
    U, V = masked.original, masked.released
    n, d = U.shape
    bounds = [schema.bounds(name) for name in names]
    widths = np.array([float(column.upper) - float(column.lower) for column in bounds])
    P = np.empty_like(V, order="F")
    for j, name in enumerate(names):
        P[:, j] = published(V[:, j], bounds[j], whole=name in whole)

    losses, before, totals = np.empty(d), np.empty(d), np.empty(d)
    for j in range(d):
        losses[j] = _squared(P[:, j] - U[:, j])
        before[j] = _squared(V[:, j] - U[:, j])
        totals[j] = _squared(U[:, j] - U[:, j].mean())
    expected = None
    if masked.means_only:  # records drawn from moments have no such closed form
        expected = sum(
            (
                _core.sse(U[:, [names.index(name)]], labels, threads=threads)
                + masked.noise_variance.get(name, 0.0)
            )
            * widths[names.index(name)] ** 2
            for group, labels in masked.labels.items()
            for name in group
        )

    loss = float(losses @ widths**2)
    matched = loss  # within a cluster of means all values are equal
    if not masked.means_only:
        per_attribute = np.empty((n, d), dtype=np.int32)
        for group, labels in masked.labels.items():
            per_attribute[:, [names.index(name) for name in group]] = labels[:, None]
        matched = rank_matched_sse(U * widths, P * widths, per_attribute)

    sizes = {group: np.bincount(labels) for group, labels in masked.labels.items()}
    group_of = {name: group for group in masked.labels for name in group}
    # Queries and samples need no secrecy, and two evaluations of one release should agree.
    generator = np.random.default_rng(0)
    ends = _random_ends(U, generator)

    def compare(j: int) -> tuple[Attribute, NDArray[np.int64]]:
        a, b = np.sort(U[:, j]), np.sort(P[:, j])
        name = names[j]
        attribute = _attribute(a, b, bounds[j], name in whole)
        noise = None
        if name in masked.noise_variance:
            noise = _noise(masked.noise_variance[name], sizes[group_of[name]], n, widths[j])
        extra: dict[str, Any] = {
            "rmse": math.sqrt(losses[j] / n) * widths[j],
            "information_loss": _ratio(100 * losses[j], totals[j]),
            "truncated": float(np.mean((V[:, j] < 0) | (V[:, j] > 1))),
            "noise": noise,
        }
        counts = np.stack([_counts_1d(column, *ends[j]) for column in (a, b)])
        return replace(attribute, **extra), counts

    workers = threads or _cores()
    with ThreadPoolExecutor(max_workers=min(workers, d)) as pool:  # sorting releases the GIL
        compared = list(pool.map(compare, range(d)))

    covariance = [_covariance(table) for table in (U, P)]
    correlation = [_correlation(matrix) for matrix in covariance]
    above = np.triu_indices(d, 1)
    _, unique, smallest = _core.row_classes(P)
    return Evaluation(
        records=n,
        records_dropped=dropped,
        clusters={", ".join(group): len(size) for group, size in sizes.items()},
        sse=loss,
        sse_rank_matched=matched,
        sse_before_truncation=float(before @ widths**2),
        sse_expected=None if expected is None else float(expected),
        mse=loss / n,
        information_loss=_ratio(100 * losses.sum(), totals.sum()),
        attributes={name: attribute for name, (attribute, _) in zip(names, compared, strict=True)},
        sizes={", ".join(group): _sizes(size) for group, size in sizes.items()},
        covariance_error=_ratio(
            float(np.linalg.norm(covariance[1] - covariance[0])), float(np.linalg.norm(covariance[0]))
        ),
        correlation_error=float(np.abs(correlation[1] - correlation[0])[above].mean()) if d > 1 else None,
        correlation_original=_rows(correlation[0]) if d > 1 else None,
        correlation_released=_rows(correlation[1]) if d > 1 else None,
        ranges_1d=_ranges(np.concatenate([counts for _, counts in compared], axis=1), n),
        ranges_2d=_ranges_2d(U, P, generator, threads) if d > 1 else None,
        # A record drawn from a cluster's moments stands for nobody, so there is no link to find.
        linkage=_linkage(U, P, np.sqrt(totals / n), generator, threads) if masked.means_only else None,
        unique=unique / n,
        smallest_class=smallest,
    )


def evaluate_sample(
    names: Sequence[str], codes: NDArray[np.int32], hierarchies: Sequence[Hierarchy], result: SafePubResult
) -> Evaluation:
    """What a truthful sample kept: how many records, and how exact their values are."""
    released = codes[result.rows]
    general = np.empty(released.shape, order="F")
    generality = {}
    for j, (name, hierarchy, level) in enumerate(zip(names, hierarchies, result.levels, strict=True)):
        values = hierarchy.tables[level]
        general[:, j] = values[released[:, j]]
        covered = np.bincount(values)[values] - 1  # other leaves that the released value stands for
        others = max(1, hierarchy.leaves - 1)
        generality[name] = float((covered[released[:, j]] / others).mean()) if len(released) else 1.0
    unique = smallest = None
    if len(released):
        _, singles, smallest = _core.row_classes(general)
        unique = singles / len(released)
    return Evaluation(
        records=len(codes),
        records_released=len(released),
        unique=unique,
        smallest_class=smallest,
        generality=generality,
    )


def rank_match(original: ArrayLike, sampled: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """The sampled values in the order of the originals, within each cluster and attribute.

    The smallest sampled value of a cluster goes to the record with the cluster's smallest original value,
    and so on, attribute by attribute. ``labels`` is one label per record, or n x d where every
    attribute has its own partition. The result reads the original order: it must never be released.

    >>> rank_match([[3.0], [1.0], [2.0]], [[10.0], [30.0], [20.0]], [0, 0, 0]).tolist()
    [[30.0], [10.0], [20.0]]
    """
    X, Y = np.asarray(original, np.float64), np.asarray(sampled, np.float64)
    groups = np.asarray(labels)
    if X.ndim != 2 or X.shape != Y.shape:
        raise InputError("two tables of the same shape are needed, rows are records")
    if groups.shape not in (X.shape, X.shape[:1]):
        raise InputError("labels must be one per record, or one per record and attribute")
    matched = np.empty_like(Y)
    for j in range(X.shape[1]):
        cluster = groups if groups.ndim == 1 else groups[:, j]
        matched[np.lexsort((X[:, j], cluster)), j] = Y[np.lexsort((Y[:, j], cluster)), j]
    return matched


def rank_matched_sse(original: ArrayLike, sampled: ArrayLike, labels: ArrayLike) -> float:
    """Sum of squared errors after :func:`rank_match`, the figure that the cross-moment paper plots.

    Not a property of the release: nobody without the original data can restore that order.

    >>> rank_matched_sse([[3.0], [1.0]], [[1.0], [2.0]], [0, 0])
    1.0
    """
    matched = rank_match(original, sampled, labels)
    return float(((np.asarray(original, np.float64) - matched) ** 2).sum())


def published(u: NDArray[np.float64], bounds: Numeric, *, whole: bool) -> NDArray[np.float64]:
    """A masked column as it is released, truncated and perhaps rounded, still in the unit cube."""
    values = np.clip(u, 0.0, 1.0)
    lower, upper = np.ceil(bounds.lower), np.floor(bounds.upper)
    if whole and lower <= upper:
        width = float(bounds.upper) - float(bounds.lower)
        values = (np.clip(np.rint(values * width + bounds.lower), lower, upper) - bounds.lower) / width
    return values


def _attribute(a: NDArray[np.float64], b: NDArray[np.float64], bounds: Numeric, whole: bool) -> Attribute:
    """Compare the distributions of two sorted columns in the unit cube; their lengths may differ."""
    width = float(bounds.upper) - float(bounds.lower)
    original, released = (_summary(column, bounds) for column in (a, b))
    kolmogorov_smirnov, wasserstein = _core.compare_sorted(a, b, tolerance=TOLERANCE)
    before, after = np.array(original.quantiles), np.array(released.quantiles)
    return Attribute(
        original=original,
        released=released,
        mean_error=released.mean - original.mean,
        variance_error=_ratio(released.variance - original.variance, original.variance),
        quantile_error=float(np.abs(after - before)[[5, 25, 50, 75, 95]].max()),
        kolmogorov_smirnov=kolmogorov_smirnov,
        wasserstein=wasserstein * width,
        histogram=_histogram(a, b, bounds, whole),
    )


def _summary(column: NDArray[np.float64], bounds: Numeric) -> Summary:
    width = float(bounds.upper) - float(bounds.lower)
    n = len(column)
    mean = column.mean()
    # The smallest value with at least that share of the records at or below it: one that occurs.
    index = np.clip(np.ceil(np.array(PERCENT) / 100 * n).astype(int) - 1, 0, n - 1)
    return Summary(
        mean=float(mean * width + bounds.lower),
        variance=_squared(column - mean) / n * width**2,
        quantiles=tuple((column[index] * width + bounds.lower).tolist()),
    )


def _histogram(a: NDArray[np.float64], b: NDArray[np.float64], bounds: Numeric, whole: bool) -> Histogram:
    width = float(bounds.upper) - float(bounds.lower)
    # A few records far out would squeeze everybody else into one bin.
    ends = [column[int(share * (len(column) - 1))] for column in (a, b) for share in (0.005, 0.995)]
    low, high = (float(end) * width + bounds.lower for end in (min(ends), max(ends)))
    if whole:
        step = max(1, math.ceil((round(high) - round(low) + 1) / 60))
        edges = np.arange(round(low), round(high) + step + 1, step) - 0.5
    else:
        margin = max(1e-6 * (high - low), 2 * TOLERANCE * width)
        edges = np.linspace(low - margin, high + margin, 51)
    at = (edges - bounds.lower) / width
    counts = [np.diff(np.searchsorted(column, at)).tolist() for column in (a, b)]
    return Histogram(tuple(edges.tolist()), tuple(counts[0]), tuple(counts[1]))


def _noise(variance: float, sizes: NDArray[np.int64], n: int, width: float) -> Noise:
    # The variance adds up 2 (b/|C|)^2 over the records, with b the scale of the noise on a sum.
    scale = math.sqrt(variance / 2 / float(np.sum(1.0 / sizes))) * width
    return Noise(
        least=scale / float(sizes.max()),
        median=float(np.median(scale / sizes)),
        greatest=scale / float(sizes.min()),
        deviation=math.sqrt(variance / n) * width,
    )


def _sizes(sizes: NDArray[np.int64]) -> Sizes:
    smallest, largest = int(sizes.min()), int(sizes.max())
    step = max(1, math.ceil((largest - smallest + 1) / 40))
    edges = np.arange(smallest, largest + step + 1, step) - 0.5
    counts, _ = np.histogram(sizes, edges)
    return Sizes(
        clusters=len(sizes),
        smallest=smallest,
        median=float(np.median(sizes)),
        largest=largest,
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
    )


def _random_ends(
    U: NDArray[np.float64], generator: np.random.Generator
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Per attribute, lower and upper ends of ranges between two records drawn at random."""
    drawn = []
    for j in range(U.shape[1]):
        pairs = np.sort(U[generator.integers(0, len(U), (RANGES, 2)), j], axis=1)
        drawn.append((pairs[:, 0] - TOLERANCE, pairs[:, 1] + TOLERANCE))
    return drawn


def _counts_1d(
    column: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.searchsorted(column, upper, "right") - np.searchsorted(column, lower)
    return counts


def _ranges_2d(
    U: NDArray[np.float64], P: NDArray[np.float64], generator: np.random.Generator, threads: int
) -> Ranges:
    pairs = np.array(list(combinations(range(U.shape[1]), 2)))
    if len(pairs) > PAIRS:
        pairs = generator.permutation(pairs)[:PAIRS]
    columns = pairs[np.arange(RANGES) % len(pairs)]
    rows = generator.integers(0, len(U), (RANGES, 2))
    ends = np.sort(np.stack([U[rows[:, [side]], columns] for side in (0, 1)]), axis=0)
    counts = [
        _core.range_counts(table, columns, ends[0] - TOLERANCE, ends[1] + TOLERANCE, threads=threads)
        for table in (U, P)
    ]
    return _ranges(np.stack(counts), len(U))


def _ranges(counts: NDArray[np.int64], n: int) -> Ranges:
    """Compare the counts of the same ranges in the original (first row) and the release (second)."""
    true, found = counts
    errors = np.abs(found - true)
    return Ranges(
        queries=len(errors),
        error=float(errors.mean()) / n,
        relative_error=float(np.mean(errors / np.maximum(true, 0.01 * n))),
    )


def _linkage(
    U: NDArray[np.float64],
    P: NDArray[np.float64],
    deviations: NDArray[np.float64],
    generator: np.random.Generator,
    threads: int,
) -> Linkage:
    n = len(U)
    rows = np.arange(n)
    if n > LINKAGE_ROWS:
        rows = np.sort(generator.choice(n, LINKAGE_SAMPLE, replace=False))
    scale = np.where(deviations > 0, deviations, 1.0)
    chance = _core.linkage(U[rows], rows, P, scale, threads=threads)
    return Linkage(
        share=float(chance.mean()),
        standard_error=float(chance.std(ddof=1) / math.sqrt(len(rows))) if len(rows) < n else 0.0,
        known=len(rows),
        among=n,
    )


def _covariance(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance matrix in blocks of rows, so that no second table is made."""
    n, d = table.shape
    mean = table.mean(axis=0)
    total = np.zeros((d, d))
    for begin in range(0, n, 65536):
        block = table[begin : begin + 65536] - mean
        total += block.T @ block / n
    return total


def _correlation(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    deviations = np.sqrt(np.diag(covariance))
    # An attribute that does not vary goes with nothing else.
    safe = np.where(deviations > TOLERANCE, deviations, np.inf)
    correlation: NDArray[np.float64] = np.clip(covariance / safe[:, None] / safe, -1, 1)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _squared(difference: NDArray[np.float64]) -> float:
    # Not a product: a library that runs it on several threads waits for them where the machine is busy.
    return float(np.einsum("i,i->", difference, difference))


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def _rows(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


def _cores() -> int:
    import os

    return os.cpu_count() or 1


def _present(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _present(item) for name, item in value.items() if item is not None}
    return value


def _layout(value: Any, indent: str = "") -> str:
    """JSON with one line per figure and per list of numbers."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        lines = [f"{inner}{json.dumps(name)}: {_layout(item, inner)}" for name, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if (
        isinstance(value, Sequence)
        and value
        and isinstance(value[0], Sequence)
        and not isinstance(value, str)
    ):
        return "[\n" + ",\n".join(f"{inner}{_layout(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
