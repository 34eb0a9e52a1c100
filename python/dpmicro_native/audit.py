"""Does a mechanism keep its promise? A lower bound on epsilon from many runs on a pair of neighbours.

For the curator's eyes: the figures depend on the table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .mask import cluster_sums
from .methods import Method, MicroaggregatedDP
from .partition import Partition
from .release import GRID_BITS, certify, limit_records, mask_sums
from .schema import Schema
from .table import complete_rows, read_table, unit_cube

if TYPE_CHECKING:
    from .files import FileOptions

_CANDIDATES = 24  # records that the search for a pair tries
_BATCH = 1 << 22  # noisy numbers in memory at once


@dataclass(frozen=True)
class Bound:
    """What the runs say about one pair of neighbours."""

    rows: tuple[int, ...]  # of the table, counted from 0: these differ between the two
    epsilon: float  # at least this, with the audit's confidence
    probabilities: tuple[float, float]  # of the event, as observed on the two tables


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    method: str
    guarantee: str
    scope: str
    epsilon: float  # as claimed
    runs: int
    confidence: float
    given_partition: Bound
    recomputed: Bound

    @property
    def contradicted(self) -> bool:
        """Whether the runs contradict the certificate, with the audit's confidence."""
        judged = self.recomputed if self.scope == "unconditional" else self.given_partition
        return judged.epsilon > self.epsilon

    @property
    def verdict(self) -> str:
        """The result in a sentence or two."""
        if self.contradicted:
            return (
                f"CONTRADICTED: the certificate claims epsilon = {self.epsilon:g}, and the runs show more. "
                "Do not publish; please report this as a security problem."
            )
        sentence = f"The claim of epsilon = {self.epsilon:g}, {self.scope}, is not contradicted."
        if self.recomputed.epsilon > self.epsilon:
            sentence += (
                " It rests on the partition: between these two tables the partition changes, and the runs "
                "tell them apart better than epsilon allows. That is outside the guarantee."
            )
        return sentence

    def to_json(self) -> str:
        """The result as JSON text."""
        return json.dumps(
            asdict(self) | {"contradicted": self.contradicted, "verdict": self.verdict}, indent=2
        )


def audit(
    table: Any,
    schema: Schema,
    method: Method,
    *,
    runs: int = 200_000,
    confidence: float = 0.95,
    file_options: FileOptions | None = None,
    progress: Callable[[float], object] | None = None,
) -> Audit:
    """Run a mechanism many times on two neighbours and bound epsilon from below.

    The neighbours are the table with one individual's records moved to one corner of the bounds, and the
    same with them in the opposite corner: the worst of some candidates. This is done twice: with the
    table's own partition for both, and with the partition computed anew for each. Of the runs on
    each neighbour, the first half chooses an event, and the second half bounds its two probabilities
    (Clopper and Pearson 1934): epsilon is at least ln(p/q). A bound far below the claim proves nothing;
    a bound above the claim contradicts it.

    >>> import numpy as np
    >>> from dpmicro_native import Numeric, Schema, method
    >>> ages = np.array([[20.0], [30.0], [31.0], [45.0], [46.0], [70.0]])
    >>> result = audit(ages, Schema({"age": Numeric(0, 100)}), method("IR_DP", epsilon=1, k=2), runs=20_000)
    >>> result.contradicted, result.recomputed.epsilon > 0.5
    (False, True)
    """
    if not isinstance(method, MicroaggregatedDP) or method.moments.order > 0:
        raise InputError(
            f"{method.name} cannot be audited; the audit runs the methods that release noisy means, such as "
            "MDAV_DP"
        )
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1000:
        raise InputError("runs must be a whole number of at least 1000; 200000 is usual")
    if not 0.5 <= confidence < 1:
        raise InputError("confidence must lie between 0.5 and 1, such as 0.95")
    method.check(schema)
    source, _ = limit_records(complete_rows(read_table(table, schema, file_options), schema), schema)
    U = unit_cube(source, schema, schema.numeric)
    certificate = certify(method, schema, "shuffled", len(U), seeded=False)
    report = progress or (lambda share: None)
    fixed = _Mechanism(schema, method, len(U), _labels(U, schema, method))
    anew = _Mechanism(schema, method, len(U), None)
    return Audit(
        certificate.method,
        certificate.guarantee,
        certificate.scope,
        float(method.epsilon),
        runs,
        confidence,
        given_partition=_bound(fixed, U, runs, confidence, lambda share: report(share / 2)),
        recomputed=_bound(anew, U, runs, confidence, lambda share: report(0.5 + share / 2)),
    )


_Labels = tuple[NDArray[np.int32], ...]  # for each group of attributes


def _parts(
    U: NDArray[np.float64], schema: Schema, method: MicroaggregatedDP
) -> Iterator[NDArray[np.float64]]:
    for group in method.grouped(schema):
        yield np.asfortranarray(U[:, [schema.numeric.index(name) for name in group]])


def _labels(U: NDArray[np.float64], schema: Schema, method: MicroaggregatedDP) -> _Labels:
    groups, partitions = method.grouped(schema), method.partitions(schema, len(U))
    return tuple(
        partition.labels(
            part, noise_cost=method.noise_cost(schema, group[0]) if partition.univariate else 0.0
        )
        for part, group, partition in zip(_parts(U, schema, method), groups, partitions, strict=True)
    )


class _Clusters(NamedTuple):
    """Sizes and exact sums of the clusters of one group of attributes."""

    sizes: NDArray[np.int64]
    sums: NDArray[np.int64]


@dataclass(frozen=True)
class _Mechanism:
    """What a release makes public of a table, before rounding and truncation: noisy cluster sums.

    Clusters are compared one by one, as a list, where the claim is about that list: given the partition
    (``labels``), and for insensitive partitions. Otherwise nothing but the sizes tells which cluster is
    which, so that the sums are put in an order that can be read off the release.
    """

    schema: Schema
    method: MicroaggregatedDP
    n: int
    labels: _Labels | None

    def listed(self, number: int) -> bool:
        """Whether the claim covers the clusters of a group in the order of their labels."""
        return self.labels is not None or self._partition(number).reads == "insensitively"

    def _partition(self, number: int) -> Partition:
        return self.method.partitions(self.schema, self.n)[number]

    def clusters(self, U: NDArray[np.float64]) -> list[_Clusters]:
        """The exact sums, which the noise is added to."""
        labels = self.labels or _labels(U, self.schema, self.method)
        found = []
        for number, part in enumerate(_parts(U, self.schema, self.method)):
            sizes, sums = cluster_sums(part, labels[number], bits=GRID_BITS)
            order = np.arange(len(sizes)) if self.listed(number) else np.lexsort((sums[:, 0], sizes))
            found.append(_Clusters(sizes[order], sums[order]))
        return found

    def noisy(self, number: int, clusters: _Clusters, runs: int) -> tuple[NDArray[np.float64], list[float]]:
        """Runs x clusters x attributes noisy sums in widths, drawn by the release's code; their scales."""
        group = self.method.grouped(self.schema)[number]
        repeated = np.tile(clusters.sums, (runs, 1))
        noisy, scales = mask_sums(repeated, group, self._partition(number), self.schema, self.method, self.n)
        drawn = (noisy / float(1 << GRID_BITS)).reshape(runs, *clusters.sums.shape)
        if not self.listed(number):
            _sort_within_sizes(drawn, clusters.sizes)
        return drawn, [float(scale) for scale in scales.values()]


def _sort_within_sizes(drawn: NDArray[np.float64], sizes: NDArray[np.int64]) -> None:
    """Order the clusters of equal size by their noisy sum of the first attribute, in each run."""
    for size in np.unique(sizes):
        same = np.flatnonzero(sizes == size)
        part = drawn[:, same]
        order = np.argsort(part[:, :, :1], axis=1)
        drawn[:, same] = np.take_along_axis(part, order, axis=1)


def _same_sizes(a: list[_Clusters], b: list[_Clusters]) -> bool:
    return all(np.array_equal(x.sizes, y.sizes) for x, y in zip(a, b, strict=True))


def _distance(mechanism: _Mechanism, a: list[_Clusters], b: list[_Clusters]) -> float:
    """The privacy loss that the exact sums of two tables allow: how far apart they are, in scales."""
    if not _same_sizes(a, b):
        return math.inf
    shares = mechanism.method.attribute_shares(mechanism.schema)
    total = 0.0
    for group, x, y in zip(mechanism.method.grouped(mechanism.schema), a, b, strict=True):
        moved = np.abs(x.sums - y.sums).sum(axis=0) / float(1 << GRID_BITS)
        total += float(moved @ [float(shares[name]) for name in group])
    return total


def _bound(
    mechanism: _Mechanism,
    U: NDArray[np.float64],
    runs: int,
    confidence: float,
    report: Callable[[float], object],
) -> Bound:
    rows, first, second = _worst_pair(mechanism, U)
    a = _scores(mechanism, first, first, second, runs, lambda share: report(share / 2))
    b = _scores(mechanism, second, first, second, runs, lambda share: report(0.5 + share / 2))
    half = runs // 2
    event = choose_event(a[:half], b[:half], confidence)
    epsilon, probabilities = event_bound(event, a[half:], b[half:], confidence)
    return Bound(tuple(int(row) for row in rows), epsilon, probabilities)


def _worst_pair(
    mechanism: _Mechanism, U: NDArray[np.float64]
) -> tuple[NDArray[np.int64], list[_Clusters], list[_Clusters]]:
    """Move one individual's records from corner to corner; keep the pair whose exact sums differ most.

    Only exact sums are compared, no noise, so the choice does not bias the test that follows.
    """
    n, d = U.shape
    records = min(n, mechanism.schema.max_records)
    # Records far from the middle change most; some from all over the order come along.
    by_distance = np.argsort(np.abs(U - 0.5).sum(axis=1), kind="stable")[::-1]
    half = _CANDIDATES // 2
    starts = np.unique(np.r_[np.arange(min(half, n)), np.linspace(0, n - 1, min(n, half)).astype(int)])
    corners = [np.zeros(d)] + ([(np.arange(d) % 2).astype(float)] if d > 1 else [])
    own = mechanism.clusters(U)
    best: tuple[float, NDArray[np.int64], list[_Clusters], list[_Clusters]] | None = None
    for start in starts:
        rows = by_distance[(start + np.arange(records)) % n]
        for corner in corners:
            moved = []
            for place in (corner, 1 - corner):
                other = U.copy(order="F")
                other[rows] = place
                moved.append(mechanism.clusters(other))
            for a, b in ((moved[0], moved[1]), (own, moved[0]), (own, moved[1])):
                distance = _distance(mechanism, a, b)
                if best is None or distance > best[0]:
                    best = (distance, rows, a, b)
    assert best is not None
    return best[1:]


def _scores(
    mechanism: _Mechanism,
    table: list[_Clusters],
    first: list[_Clusters],
    second: list[_Clusters],
    runs: int,
    report: Callable[[float], object],
) -> NDArray[np.float64]:
    """How much each run on ``table`` speaks for ``first`` against ``second``.

    The score is the log-likelihood ratio of Laplace noise around the exact sums of each: the best test
    there is if the clusters can be told apart. Any other function of the release would be as valid.
    """
    if not _same_sizes(first, second):  # the sizes can be read off the release and say it all
        return np.full(runs, 1.0 if table is first else -1.0)
    scores = np.zeros(runs)
    for number, clusters in enumerate(table):
        sums = [x[number].sums for x in (first, second)]
        if mechanism.listed(number):  # clusters that are the same in both say nothing
            changed = (sums[0] != sums[1]).any(axis=1)
            clusters = _Clusters(clusters.sizes[changed], clusters.sums[changed])
            sums = [x[changed] for x in sums]
        a, b = (x / float(1 << GRID_BITS) for x in sums)
        batch = max(1, _BATCH // max(1, a.size))
        for start in range(0, runs, batch):
            count = min(batch, runs - start)
            drawn, scales = mechanism.noisy(number, clusters, count)
            loss = np.abs(drawn - b).sum(axis=1) - np.abs(drawn - a).sum(axis=1)
            scores[start : start + count] += loss @ (1 / np.array(scales))
            report((number + (start + count) / runs) / len(table))
    return scores


@dataclass(frozen=True)
class Event:
    """Scores at or above a threshold (or below it); ``swapped``: likelier on the second table."""

    threshold: float
    swapped: bool

    def frequency(self, scores: NDArray[np.float64]) -> int:
        """How many runs are in the event."""
        inside = scores <= self.threshold if self.swapped else scores >= self.threshold
        return int(np.count_nonzero(inside))


def choose_event(first: NDArray[np.float64], second: NDArray[np.float64], confidence: float) -> Event:
    """The threshold whose bound is best on these runs; it must be judged on others.

    The best of many bounds is partly luck, the more so for rare events; so more confidence is asked here.
    """
    confidence = 1 - (1 - confidence) / 1000
    pooled = np.sort(np.concatenate([first, second]))
    shares = np.concatenate([np.geomspace(1e-3, 0.5, 16), 1 - np.geomspace(1e-3, 0.5, 16)])
    thresholds = np.unique(pooled[(shares * (len(pooled) - 1)).astype(int)])
    # A hair inside: scores that are equal but for rounding belong together.
    slack = 1e-9 * max(1.0, float(np.abs(pooled[[0, -1]]).max()))
    events = [Event(float(t) - slack, False) for t in thresholds]
    events += [Event(float(t) + slack, True) for t in thresholds]
    return max(events, key=lambda event: event_bound(event, first, second, confidence)[0])


def event_bound(
    event: Event, first: NDArray[np.float64], second: NDArray[np.float64], confidence: float
) -> tuple[float, tuple[float, float]]:
    """A lower bound on ln(p/q), p and q the event's probabilities; and their observed values."""
    hits, misses = event.frequency(first), event.frequency(second)
    observed = (hits / len(first), misses / len(second))
    if event.swapped:
        hits, misses, first, second = misses, hits, second, first
    error = (1 - confidence) / 2  # half for each probability
    p, q = lower_probability(hits, len(first), error), upper_probability(misses, len(second), error)
    return (max(0.0, math.log(p / q)) if p > 0 else 0.0), observed


def lower_probability(hits: int, runs: int, error: float) -> float:
    """A bound that the true probability is below with probability at most ``error`` (Clopper and Pearson).

    >>> round(lower_probability(10, 100, 0.025), 4)
    0.049
    """
    if hits == 0:
        return 0.0
    # The p for which so many hits or more have probability `error`: P(Bin(runs, p) >= hits) = I_p(hits, ...).
    # The smaller end of the bisection is on the safe side.
    low, high = 0.0, hits / runs
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        below = _incomplete_beta(hits, runs - hits + 1, middle) <= error
        low, high = (middle, high) if below else (low, middle)
    return low


def upper_probability(hits: int, runs: int, error: float) -> float:
    """A bound that the true probability is above with probability at most ``error``.

    >>> round(upper_probability(10, 100, 0.025), 4)
    0.1762
    """
    return 1.0 - lower_probability(runs - hits, runs, error)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method)."""
    if not 0 < x < 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other side converges faster
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 100_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a
