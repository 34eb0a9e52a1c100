"""What an audit runs: a release's own code, again and again, on the worst pair of neighbours found.

A mechanism gives a pair of neighbours and, for each of the two, a way to run the release on it and to score
what came out: how much the run speaks for the first against the second. Every score is a function of what a
release makes public, so whatever a test on scores shows, a reader of the release can see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .aggregate import Moments, Query
from .audit_statistics import choose_event, event_bound, incomplete_beta
from .hierarchy import Hierarchy
from .mask import cluster_sums, exact
from .methods import MicroaggregatedDP
from .partition import Partition
from .release import GRID_BITS, group_epsilon, mask_queries, mask_sums
from .safepub import SafePub, release_scheme, search_and_release
from .schema import Schema

Array: TypeAlias = NDArray[np.float64]
Report: TypeAlias = Callable[[float], object]
#: So many runs on one of the two tables: their scores.
Run: TypeAlias = Callable[[int, Report], Array]

_CANDIDATES = 24  # records that the search for a pair tries
_BATCH = 1 << 22  # noisy numbers in memory at once


class Pair(NamedTuple):
    """Two neighbours, ready to be run."""

    rows: tuple[int, ...]  # of the table, counted from 0: these differ between the two
    first: Run
    second: Run


class Mechanism(Protocol):
    """What can be audited."""

    def worst_pair(self) -> Pair:
        """The neighbours that should be easiest to tell apart; chosen without the runs that test them."""


# Noisy statistics of clusters

Labels: TypeAlias = tuple[NDArray[np.int32], ...]  # for each group of attributes


@dataclass(frozen=True)
class Clusters:
    """The exact statistics of the clusters of one group of attributes, and the scales of their noise."""

    sizes: NDArray[np.int64]
    exact: NDArray[np.int64] | Moments  # what the release's code adds noise to: sums, or moments
    centre: Array  # the same as clusters x numbers, in widths
    scale: Array  # of the noise, likewise
    # Sensitivities of each query that the noise is scaled to, where they are not the table's own.
    held: tuple[Array, ...] | None = None

    def take(self, clusters: NDArray[np.intp]) -> Clusters:
        """Some of the clusters, or all in another order."""
        exact = self.exact
        return Clusters(
            self.sizes[clusters],
            _map_moments(exact, lambda x: x[clusters]) if isinstance(exact, Moments) else exact[clusters],
            self.centre[clusters],
            self.scale[clusters],
            None if self.held is None else tuple(x[clusters] for x in self.held),
        )


def _map_moments(moments: Moments, change: Callable[[NDArray], NDArray]) -> Moments:  # type: ignore[type-arg]
    return Moments(*(None if array is None else change(array) for array in moments))  # type: ignore[arg-type]


def _repeat(array: NDArray, runs: int) -> NDArray:  # type: ignore[type-arg]
    return np.tile(array, (runs,) + (1,) * (array.ndim - 1))


@dataclass(frozen=True)
class NoisyClusters:
    """What a release makes public of a table, before repair, rounding and truncation: noisy statistics.

    Statistics are the sums of the clusters, or their moments. Clusters are compared one by one, as a list,
    where the claim is about that list: given the partition (``labels``), and for sums of insensitive
    partitions. Otherwise nothing but the sizes tells which cluster is which, so that they are put in an
    order that can be read off the release.

    Individual differential privacy compares this table with its neighbours under *this* table's noise (CM,
    Definition 4: one mechanism, applied to both). So given the partition the scales are held as well;
    without it each table has its own, as in a release.
    """

    U: Array
    schema: Schema
    method: MicroaggregatedDP
    labels: Labels | None

    @property
    def n(self) -> int:
        """How many records."""
        return len(self.U)

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The groups of attributes."""
        return self.method.grouped(self.schema)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partition of each group."""
        return self.method.partitions(self.schema, self.n)

    def listed(self, number: int) -> bool:
        """Whether the claim covers the clusters of a group in the order of their labels."""
        insensitive = self.method.moments.order == 0 and self.partitions[number].reads == "insensitively"
        return self.labels is not None or insensitive

    # The exact statistics

    def clusters(self, U: Array) -> list[Clusters]:
        """The exact statistics of a table, which the noise is added to."""
        labels = self.labels or partition_labels(U, self.schema, self.method)
        found = []
        for number, part in enumerate(_parts(U, self.schema, self.method)):
            statistics = self._sums if self.method.moments.order == 0 else self._moments
            clusters = statistics(number, part, labels[number])
            if not self.listed(number):
                clusters = clusters.take(np.lexsort((clusters.centre[:, 0], clusters.sizes)))
            found.append(clusters)
        return found

    def _sums(self, number: int, part: Array, labels: NDArray[np.int32]) -> Clusters:
        sizes, sums = cluster_sums(part, labels, bits=GRID_BITS)
        _, scales = self._mask_sums(number, sums[:0])
        scale = np.broadcast_to([float(scale) for scale in scales.values()], sums.shape)
        return Clusters(sizes, sums, sums / float(1 << GRID_BITS), scale)

    def _moments(self, number: int, part: Array, labels: NDArray[np.int32]) -> Clusters:
        moments = self.method.moments.moments(part, labels)
        queries = self.method.moments.queries(moments)
        epsilon = group_epsilon(self.groups[number], self.schema, self.method)
        scales = [
            np.repeat(query.sensitivity / float(query.share * epsilon), query.values.shape[2], axis=1)
            for query in queries
        ]
        return Clusters(
            moments.sizes, moments, _side_by_side([q.values for q in queries]), np.concatenate(scales, axis=1)
        )

    # The release's code

    def _mask_sums(
        self, number: int, sums: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], dict[str, Fraction]]:
        return mask_sums(sums, self.groups[number], self.partitions[number], self.schema, self.method, self.n)

    def noisy(self, number: int, clusters: Clusters, runs: int) -> Array:
        """Runs x clusters x numbers noisy statistics in widths, drawn by the release's code."""
        shape = (runs, *clusters.centre.shape)
        if isinstance(clusters.exact, Moments):
            repeated = _map_moments(clusters.exact, lambda x: _repeat(x, runs))
            queries: Sequence[Query] = self.method.moments.queries(repeated)
            if clusters.held is not None:
                queries = [
                    query._replace(sensitivity=_repeat(held, runs))
                    for query, held in zip(queries, clusters.held, strict=True)
                ]
            epsilon = group_epsilon(self.groups[number], self.schema, self.method)
            drawn = _side_by_side(mask_queries(queries, epsilon)).reshape(shape)
        else:
            noisy, _ = self._mask_sums(number, _repeat(clusters.exact, runs))
            drawn = (noisy / float(1 << GRID_BITS)).reshape(shape)
        if not self.listed(number):
            _sort_within_sizes(drawn, clusters.sizes)
        return drawn

    # Neighbours

    def worst_pair(self) -> Pair:
        """The candidates whose exact statistics are farthest apart.

        Only exact statistics are compared, no noise, so the choice does not bias the test that follows.
        """
        best: tuple[float, NDArray[np.int64], list[Clusters], list[Clusters]] | None = None
        for rows, a, b in self._candidates():
            distance = self.distance(a, b)
            if best is None or distance > best[0]:
                best = (distance, rows, a, b)
        assert best is not None
        _, rows, first, second = best

        def run(table: list[Clusters]) -> Run:
            return lambda runs, report: self._scores(table, first, second, runs, report)

        return Pair(tuple(int(row) for row in rows), run(first), run(second))

    def _candidates(self) -> Iterator[tuple[NDArray[np.int64], list[Clusters], list[Clusters]]]:
        """Neighbours: one individual's records moved from corner to corner, or from where they are.

        Given the partition, higher moments move most where the rest of the cluster sits in the corner that
        the record leaves, so such tables are built as well. Individual differential privacy is about this
        table, so one of the two must be the table itself.
        """
        d = self.U.shape[1]
        individual = self.method.guarantee == "idp"
        corners = [np.zeros(d)] + ([(np.arange(d) % 2).astype(float)] if d > 1 else [])
        own = self.clusters(self.U)
        for rows in self._far_rows():
            for corner in corners:
                moved = []
                for place in (corner, 1 - corner):
                    other = self.U.copy(order="F")
                    other[rows] = place
                    moved.append(self.clusters(other))
                if individual and self.labels is not None:
                    moved = [self._under_noise_of(own, other) for other in moved]
                if not individual:
                    yield rows, moved[0], moved[1]
                yield rows, own, moved[0]
                yield rows, own, moved[1]
        if self.labels is not None and self.method.moments.order > 0 and not individual:
            for rows in self._rows_of_different_clusters():
                for corner in corners:
                    base = self._with_clusters_moved(rows, corner)
                    other = base.copy(order="F")
                    other[rows] = 1 - corner
                    yield rows, self.clusters(base), self.clusters(other)

    def _far_rows(self) -> Iterator[NDArray[np.int64]]:
        """Records far from the middle change most; some from all over the order come along."""
        records = min(self.n, self.schema.max_records)
        by_distance = np.argsort(np.abs(self.U - 0.5).sum(axis=1), kind="stable")[::-1]
        half = _CANDIDATES // 2
        spread = np.linspace(0, self.n - 1, min(self.n, half)).astype(int)
        for start in np.unique(np.r_[np.arange(min(half, self.n)), spread]):
            yield by_distance[(start + np.arange(records)) % self.n]

    def _rows_of_different_clusters(self) -> Iterator[NDArray[np.int64]]:
        """An individual's records in as many clusters as can be, the clusters of one size if possible."""
        assert self.labels is not None
        labels = self.labels[0]
        _, first = np.unique(labels, return_index=True)  # one record of each cluster
        records = min(self.n, self.schema.max_records)
        sizes = np.bincount(labels)[labels[first]]
        for size in np.unique(sizes)[:_CANDIDATES]:
            order = np.r_[first[sizes == size], first[sizes != size], np.arange(self.n)]
            _, places = np.unique(order, return_index=True)
            yield order[np.sort(places)][:records]

    def _with_clusters_moved(self, rows: NDArray[np.int64], corner: Array) -> Array:
        """The table with all records of the clusters of these rows in a corner, attribute by attribute."""
        assert self.labels is not None
        base: Array = self.U.copy(order="F")
        for group, labels in zip(self.groups, self.labels, strict=True):
            together = np.isin(labels, labels[rows])
            for name in group:
                column = self.schema.numeric.index(name)
                base[together, column] = corner[column]
        return base

    def _under_noise_of(self, own: list[Clusters], other: list[Clusters]) -> list[Clusters]:
        """A neighbour's statistics with the noise that this table has."""
        found = []
        for x, y in zip(own, other, strict=True):
            assert isinstance(x.exact, Moments)
            held = tuple(query.sensitivity for query in self.method.moments.queries(x.exact))
            found.append(replace(y, scale=x.scale, held=held))
        return found

    def distance(self, a: list[Clusters], b: list[Clusters]) -> float:
        """The privacy loss that the exact statistics of two tables allow: how far apart they are, in scales."""
        if not _same_sizes(a, b):
            return math.inf
        total = 0.0
        for group, x, y in zip(self.groups, a, b, strict=True):
            scale, signed = np.minimum(x.scale, y.scale), self._signed(group)
            straight, flipped = (np.abs(x.centre - sign * y.centre) / scale for sign in (1, -1))
            total += float(straight[:, ~signed].sum() + np.abs(np.log(x.scale / y.scale)).sum())
            nearer = np.minimum(
                *(far[:, signed].reshape(-1, len(group)).sum(axis=1) for far in (straight, flipped))
            )
            total += float(nearer.sum())
        return total

    def _signed(self, group: tuple[str, ...]) -> NDArray[np.bool_]:
        """Which of a cluster's numbers belong to vectors that come with a random sign."""
        return self.method.moments.signed(len(group))

    # Scores

    def _scores(
        self,
        table: list[Clusters],
        first: list[Clusters],
        second: list[Clusters],
        runs: int,
        report: Report,
    ) -> Array:
        """How much each run on ``table`` speaks for ``first`` against ``second``.

        The score is the log-likelihood ratio of Laplace noise around the exact statistics of each: the
        best test there is if the clusters can be told apart. Any other function of the release would be as
        valid.
        """
        if not _same_sizes(first, second):  # the sizes can be read off the release and say it all
            report(1.0)
            return np.full(runs, 1.0 if table is first else -1.0)
        scores = np.zeros(runs)
        for number, clusters in enumerate(table):
            a, b = first[number], second[number]
            if self.listed(number):  # clusters that are the same in both say nothing
                changed = np.flatnonzero(_differ(a, b))
                clusters, a, b = clusters.take(changed), a.take(changed), b.take(changed)
            batch = max(1, _BATCH // max(1, a.centre.size))
            for start in range(0, runs, batch):
                count = min(batch, runs - start)
                drawn = self.noisy(number, clusters, count)
                scores[start : start + count] += self._log_ratio(self.groups[number], drawn, a, b)
                report((number + (start + count) / runs) / len(table))
        return scores

    def _log_ratio(self, group: tuple[str, ...], drawn: Array, a: Clusters, b: Clusters) -> Array:
        def surprise(x: Clusters, sign: int = 1) -> Array:
            return np.asarray(np.abs(drawn - sign * x.centre) / x.scale + np.log(x.scale))

        def density(x: Clusters) -> Array:  # of the vectors with either sign
            straight, flipped = (
                -surprise(x, sign)[:, :, signed].reshape(len(drawn), -1, len(group)).sum(axis=2)
                for sign in (1, -1)
            )
            return np.asarray(np.logaddexp(straight, flipped))

        signed = self._signed(group)
        total: Array = (surprise(b) - surprise(a))[:, :, ~signed].sum(axis=(1, 2))
        if signed.any():
            total += (density(a) - density(b)).sum(axis=1)
        return total


def partition_labels(U: Array, schema: Schema, method: MicroaggregatedDP) -> Labels:
    """The partition of each group of attributes."""
    groups, partitions = method.grouped(schema), method.partitions(schema, len(U))
    return tuple(
        partition.labels(
            part, noise_cost=method.noise_cost(schema, group[0]) if partition.univariate else 0.0
        )
        for part, group, partition in zip(_parts(U, schema, method), groups, partitions, strict=True)
    )


def _parts(U: Array, schema: Schema, method: MicroaggregatedDP) -> Iterator[Array]:
    for group in method.grouped(schema):
        yield np.asfortranarray(U[:, [schema.numeric.index(name) for name in group]])


def _side_by_side(answers: Sequence[Array]) -> Array:
    """Answers to several queries as clusters x numbers."""
    return np.concatenate([answer.reshape(len(answer), -1) for answer in answers], axis=1)


def _sort_within_sizes(drawn: Array, sizes: NDArray[np.int64]) -> None:
    """Order the clusters of equal size by their first noisy number, in each run."""
    for size in np.unique(sizes):
        same = np.flatnonzero(sizes == size)
        part = drawn[:, same]
        order = np.argsort(part[:, :, :1], axis=1)
        drawn[:, same] = np.take_along_axis(part, order, axis=1)


def _same_sizes(a: list[Clusters], b: list[Clusters]) -> bool:
    return all(np.array_equal(x.sizes, y.sizes) for x, y in zip(a, b, strict=True))


def _differ(a: Clusters, b: Clusters) -> NDArray[np.bool_]:
    """Which clusters have different exact statistics (their vectors may differ by a random sign only)."""
    arrays = zip(*(x.exact if isinstance(x.exact, Moments) else (x.exact,) for x in (a, b)), strict=True)
    found = np.zeros(len(a.sizes), dtype=bool)
    for x, y in arrays:
        if x is not None and y is not None:
            found |= (x != y).reshape(len(found), -1).any(axis=1)
    return found


# SafePub

_SIDE_BY_SIDE = 4096  # runs of one call
_PILOT = 20_000  # runs that choose a pair, none of which tests it
_SCHEMES = 256  # generalisations that the search for a pair looks at

Codes: TypeAlias = NDArray[np.int32]


def _no_report(share: float) -> None:
    pass


@dataclass(frozen=True)
class FixedScheme:
    """SafePub's release of one generalisation: a sample without its rare combinations.

    Neighbours are the table and the table without one record. The record's combination is the only one that
    the two treat differently, since records are sampled independently and combinations suppressed one by
    one; so its records alone are run, and the score is how many of them are released. Many runs are one
    call of the release's code on a table with one more column, which says of which run a record is.
    """

    codes: Codes
    hierarchies: tuple[Hierarchy, ...]
    method: SafePub
    class_column: int | None

    def worst_pair(self) -> Pair:
        """The combination that some runs, made for this purpose, tell apart best."""
        return self._worst

    @cached_property
    def _worst(self) -> Pair:
        best: tuple[float, Pair] | None = None
        for levels, row in self._candidates():
            pair = self._pair(levels, row)
            a, b = pair.first(_PILOT, _no_report), pair.second(_PILOT, _no_report)
            delta = float(exact(self.method.delta))
            event = choose_event(a, b, 0.95, delta)
            bound, _ = event_bound(event, a, b, 0.95, delta)
            if best is None or bound > best[0]:
                best = (bound, pair)
        assert best is not None
        return best[1]

    def _candidates(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Generalisations, each with one row, such that the row's combination has different sizes.

        What happens to a combination depends on its size alone. Sizes near k come first.
        """
        searched = search_and_release(
            self.codes, self.hierarchies, self.method, class_column=self.class_column
        )
        found: dict[int, tuple[tuple[int, ...], int]] = {}
        schemes = list(searched.scored)
        for levels in schemes[1 : _SCHEMES + 1] or schemes:  # the first one suppresses everything
            _, rows, sizes = np.unique(
                self.generalised(self.codes, levels), axis=0, return_index=True, return_counts=True
            )
            for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
                found.setdefault(size, (levels, row))
        nearest = sorted(found, key=lambda size: abs(math.log(size / self.method.k)))
        yield from (found[size] for size in nearest[:_CANDIDATES])

    def generalised(self, codes: Codes, levels: Sequence[int]) -> Codes:
        """Records as numbers of values on these levels."""
        columns = [
            hierarchy.tables[level][codes[:, j]]
            for j, (hierarchy, level) in enumerate(zip(self.hierarchies, levels, strict=True))
        ]
        return np.column_stack(columns)

    def alike(self, codes: Codes, row: int, levels: Sequence[int]) -> NDArray[np.bool_]:
        """Which records have the combination of a row of the table."""
        own = self.generalised(self.codes[row : row + 1], levels)
        return np.asarray((self.generalised(codes, levels) == own).all(axis=1))

    def _pair(self, levels: tuple[int, ...], row: int) -> Pair:
        members = self.codes[self.alike(self.codes, row, levels)]
        return Pair(
            (row,),
            lambda runs, report: self._released(members, levels, runs, report),
            lambda runs, report: self._released(members[1:], levels, runs, report),
        )

    def _released(self, members: Codes, levels: tuple[int, ...], runs: int, report: Report) -> Array:
        """How many of the members are released, in each run."""
        counts = np.zeros(runs)
        size = len(members)
        batch = max(1, min(_SIDE_BY_SIDE, _BATCH // max(1, size)))
        for start in range(0, runs, batch):
            count = min(batch, runs - start)
            run = np.repeat(np.arange(count, dtype=np.int32), size)
            rows = release_scheme(
                np.column_stack([np.tile(members, (count, 1)), run]),
                [*self.hierarchies, _run_numbers()],
                [*levels, 0],
                self.method,
                class_column=self.class_column,
            )
            counts[start : start + count] = np.bincount(run[rows], minlength=count)
            report((start + count) / runs)
        return counts


@cache
def _run_numbers() -> Hierarchy:
    return Hierarchy.from_rows((str(run), "*") for run in range(_SIDE_BY_SIDE))


@dataclass(frozen=True)
class WholeSafePub:
    """SafePub from beginning to end, on the table and on the table without one record.

    The score adds up what the generalisation tells, learnt from runs made for that purpose, and what the
    number of released records like the one in question tells, by the binomial distribution.
    """

    fixed: FixedScheme

    def worst_pair(self) -> Pair:
        """The record that the release of a fixed generalisation protects least."""
        (row,) = self.fixed.worst_pair().rows
        tables = (self.fixed.codes, np.delete(self.fixed.codes, row, axis=0))
        pilots = [[self._once(codes, row)[0] for _ in range(_PILOT // 80)] for codes in tables]
        seen = [Counter(pilot) for pilot in pilots]
        ratios: dict[tuple[int, ...], float] = {}
        sizes: dict[tuple[int, ...], int] = {}

        def score(levels: tuple[int, ...], count: int) -> float:
            if levels not in sizes:
                sizes[levels] = int(self.fixed.alike(self.fixed.codes, row, levels).sum())
                ratios[levels] = math.log((seen[0][levels] + 5) / (seen[1][levels] + 5))
            return ratios[levels] + self._log_ratio(sizes[levels], count)

        def run(codes: Codes) -> Run:
            def scores(runs: int, report: Report) -> Array:
                found = np.empty(runs)
                for number in range(runs):
                    found[number] = score(*self._once(codes, row))
                    if number % 64 == 0:
                        report(number / runs)
                report(1.0)
                return found

            return scores

        return Pair((row,), run(tables[0]), run(tables[1]))

    def _once(self, codes: Codes, row: int) -> tuple[tuple[int, ...], int]:
        """One release: its generalisation, and how many of its records are like the row."""
        result = search_and_release(
            codes,
            self.fixed.hierarchies,
            self.fixed.method,
            class_column=self.fixed.class_column,
            threads=1,
        )
        return result.levels, int(self.fixed.alike(codes[result.rows], row, result.levels).sum())

    def _log_ratio(self, size: int, count: int) -> float:
        """ln of P(count released of size records) / P(count released of one less), in [-50, 50]."""
        beta, k = self.fixed.method.beta, self.fixed.method.k
        if count > 0:
            return math.log(size * (1 - beta) / (size - count)) if count < size else 50.0
        rare = [1 - incomplete_beta(k, s - k + 1, beta) if s >= k else 1.0 for s in (size, size - 1)]
        return math.log(rare[0] / rare[1]) if min(rare) > 0 else 0.0
