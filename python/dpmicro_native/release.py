"""From a table to a release: the one pipeline that every method goes through."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from .aggregate import Moments, Query, Spectra, noisy_answers
from .certificate import Certificate
from .errors import InputError
from .files import FileFormat, FileOptions, write_file
from .hierarchy import Hierarchy
from .mask import cluster_sums, noisy_sums, permutation
from .methods import Method, MicroaggregatedDP, Microaggregation, Order, TruthfulDP, hierarchy_of
from .partition import Partition
from .repair import Repaired, repair_moments
from .safepub import search_and_release
from .sample import sample_records
from .schema import Numeric, Schema
from .table import (
    Table,
    assemble,
    complete_rows,
    from_unit_cube,
    numeric_values,
    read_table,
    released_column,
    unit_cube,
)
from .testing import is_seeded

if TYPE_CHECKING:
    import pyarrow as pa

    from .evaluate import Evaluation
    from .ledger import Ledger

#: Called with the station's name and the share of it that is done, 0 to 1.
Progress = Callable[[str, float], object]

# Attributes are put on a grid of 2^-30 of their width before anything is summed: far below any noise,
# and sums of up to 2^32 records stay exact in 64 bits.
GRID_BITS = 30


@dataclass(frozen=True)
class Release:
    """A released table with its public certificate; its evaluation is for the curator."""

    table: Any
    certificate: Certificate
    _arrow: pa.Table
    _format: FileFormat
    _evaluate: Callable[[], Evaluation]
    _written: Callable[[], None] | None = None  # tells the ledger

    @cached_property
    def evaluation(self) -> Evaluation:
        """What the release lost, measured against the original. Never publish it."""
        return self._evaluate()

    def save(self, directory: str | Path, *, force: bool = False, progress: Progress | None = None) -> Path:
        """Write ``public/`` (data, certificate) and ``curator/`` (evaluation, report), all or nothing.

        Everything is written beside the target first and moved there at once, so that a failure leaves
        nothing half done. An existing target is refused unless ``force`` is set, which replaces a release.
        """
        from .writing import atomic_directory

        with atomic_directory(Path(directory), force=force) as folder:
            self._write(folder, progress)
        if self._written is not None:
            self._written()
        return Path(directory)

    def _write(self, folder: Path, progress: Progress | None = None) -> None:
        from .report import write_report

        report = progress or (lambda station, share: None)
        public, curator = folder / "public", folder / "curator"
        public.mkdir()
        curator.mkdir(mode=0o700)
        certificate = self.certificate.to_json()
        report("write", 0.0)
        write_file(
            self._arrow,
            public / f"data{self._format.suffix}",
            self._format,
            {"dpmicro_native.certificate": certificate},
            lambda share: report("write", share),
        )
        (public / "certificate.json").write_text(certificate + "\n", encoding="utf-8")
        report("evaluate", 0.0)
        (curator / "evaluation.json").write_text(self.evaluation.to_json() + "\n", encoding="utf-8")
        write_report(curator / "report.html", self.certificate, self.evaluation)
        for path in curator.iterdir():
            path.chmod(0o600)

    def __repr__(self) -> str:
        return (
            f"<Release {self._arrow.num_rows} rows x {self._arrow.num_columns} columns; {self.certificate!r}>"
        )

    def _repr_html_(self) -> str:
        return f"<p>{self._arrow.num_rows} rows, {self._arrow.num_columns} columns</p>{self.certificate._repr_html_()}"


def anonymize(
    table: Any,
    schema: Schema,
    method: Method,
    *,
    order: Order = "shuffled",
    threads: int = 0,
    progress: Progress | None = None,
    file_options: FileOptions | None = None,
    ledger: Ledger | None = None,
) -> Release:
    """Make a release of a table: numpy, pandas, polars, Arrow, or the path of a CSV or Parquet file.

    Rows come out shuffled, since a row order aligned with the input reveals which records share a
    cluster; ``order="aligned"`` keeps it, and the certificate says so. ``progress(station, share)`` is
    called now and then. With a ``ledger`` the release's cost is spent before the table is read, and given
    back only if the table is refused; saving the release commits it.

    >>> import numpy as np
    >>> from dpmicro_native import Numeric, Schema, anonymize, method
    >>> people = np.column_stack([np.arange(20) % 7 + 30, np.arange(20) * 100.0])
    >>> schema = Schema({"age": Numeric(0, 120), "income": Numeric(0, 10_000)})
    >>> release = anonymize(people, schema, method("OPT_DP_1", epsilon=1))
    >>> release.table.shape, release.certificate.scope
    ((20, 2), 'given-partition')
    """
    if not isinstance(schema, Schema):
        raise InputError("schema must be a Schema, such as Schema({'age': Numeric(0, 120)})")
    if not isinstance(method, Method):
        raise InputError("method must be made by method(name, ...), such as method('OPT_DP_1', epsilon=1)")
    if order not in get_args(Order):
        raise InputError(f"order = {order!r} is unknown; use 'shuffled' or 'aligned'")
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads < 1 << 16:
        raise InputError("threads must be a whole number of at least 0; 0 means as many as there are cores")
    method.check(schema)
    report = progress or (lambda station, share: None)

    with _spending(ledger, method, schema) as written:
        report("read", 0.0)
        source = complete_rows(
            read_table(table, schema, file_options, lambda share: report("read", share)), schema
        )
        source, dropped = limit_records(source, schema)
        report("read", 1.0)
        if isinstance(method, TruthfulDP):
            release = _sample_and_generalise(source, schema, method, order, threads, report)
        else:
            assert isinstance(method, Microaggregation)
            release = _microaggregate(source, schema, method, order, threads, report, dropped)
        return replace(release, _written=written)


@contextmanager
def _spending(ledger: Ledger | None, method: Method, schema: Schema) -> Iterator[Callable[[], None] | None]:
    """Reserve before the block; yields what tells the ledger that the release was written."""
    if ledger is None:
        yield None
        return
    from .ledger import Ledger, reserve_for

    if not isinstance(ledger, Ledger):
        raise InputError("ledger must be a Ledger, such as Ledger('budget.sqlite')")
    entry = reserve_for(ledger, method, schema)
    try:
        yield partial(ledger.commit, entry)
    except InputError:
        ledger.refuse(entry)
        raise


def limit_records(source: Table, schema: Schema) -> tuple[Table, int]:
    """Keep at most max_records per individual, chosen at random; also how many were dropped."""
    if schema.individual is None:
        return source, 0
    import pyarrow.compute as pc

    column = source.arrow.column(schema.individual)
    if column.null_count:
        raise InputError(
            f"column {schema.individual!r} says whose record it is and has missing values; fill them"
        )
    codes = pc.dictionary_encode(column.combine_chunks()).indices.to_numpy(zero_copy_only=False)
    shuffled = permutation(source.rows)
    by_person = shuffled[np.argsort(codes[shuffled], kind="stable")]
    person = codes[by_person]
    first = np.flatnonzero(np.r_[True, person[1:] != person[:-1]])
    rank = np.arange(source.rows) - np.repeat(first, np.diff(np.r_[first, source.rows]))
    kept = np.sort(by_person[rank < schema.max_records])
    dropped = source.rows - len(kept)
    arrow = source.arrow.drop_columns([schema.individual])
    return replace(source, arrow=arrow if dropped == 0 else arrow.take(kept)), dropped


@dataclass(frozen=True)
class Group:
    """One group of attributes after the stations, aligned with the input's rows."""

    names: tuple[str, ...]
    labels: NDArray[np.int32]
    moments: Moments  # as released: noisy and repaired, in the unit cube
    noise_variance: dict[str, float]  # of the noise on the means, summed over records; in the unit cube
    shrunk: int = 0  # clusters whose skewness had to be shrunk to be feasible


@dataclass(frozen=True)
class Masked:
    """What came out of the stations, aligned with the input's rows; curator's eyes only."""

    names: tuple[str, ...]
    original: NDArray[np.float64]  # in the unit cube
    released: NDArray[np.float64]  # before truncation
    groups: tuple[Group, ...]

    @property
    def labels(self) -> dict[tuple[str, ...], NDArray[np.int32]]:
        """The partition of each group of attributes."""
        return {group.names: group.labels for group in self.groups}

    @property
    def noise_variance(self) -> dict[str, float]:
        """Of the noise on an attribute's means, summed over records, where means were masked."""
        return {name: variance for group in self.groups for name, variance in group.noise_variance.items()}

    @property
    def means_only(self) -> bool:
        """Whether records are cluster means; otherwise they were drawn from moments."""
        return all(group.moments.covariance is None for group in self.groups)


def _microaggregate(
    source: Table,
    schema: Schema,
    method: Microaggregation,
    order: Order,
    threads: int,
    report: Progress,
    dropped: int,
) -> Release:
    masked = mask_clusters(unit_cube(source, schema, schema.numeric), schema, method, threads, report)
    seeded = is_seeded()
    report("release", 0.0)
    whole: set[str] = set()  # attributes released as whole numbers
    if method.output == "moments":
        arrow = moments_table(masked, schema)
    else:
        columns = {
            name: released_column(
                from_unit_cube(masked.released[:, j], schema.bounds(name)),
                source.arrow.schema.field(name).type,
                schema.bounds(name),
            )
            for j, name in enumerate(schema.numeric)
        }
        rows = permutation(source.rows) if order == "shuffled" else None
        arrow = assemble(source, schema, columns, rows)
        whole = {name for name, column in columns.items() if str(column.type).startswith(("int", "uint"))}
    report("release", 1.0)

    def evaluate() -> Evaluation:
        from .evaluate import evaluate_masked

        return evaluate_masked(masked, schema, dropped, whole=whole, threads=threads)

    return Release(
        arrow if method.output == "moments" and source.kind == "numpy" else source.give_back(arrow),
        certify(method, schema, order, source.rows, seeded),
        arrow,
        source.format or FileFormat(),
        evaluate,
    )


def mask_clusters(
    U: NDArray[np.float64], schema: Schema, method: Microaggregation, threads: int, report: Progress
) -> Masked:
    """Partition, aggregate, mask, repair and sample, group by group of attributes."""
    names = schema.numeric
    V = np.empty_like(U)
    done = []
    groups = method.grouped(schema)
    partitions = method.partitions(schema, len(U))
    parts = [
        np.asfortranarray(U[:, [names.index(name) for name in group]]) if len(groups) > 1 else U
        for group in groups
    ]
    costs = [
        method.noise_cost(schema, group[0]) if partition.univariate else 0.0
        for group, partition in zip(groups, partitions, strict=True)
    ]
    labelled = label_side_by_side(parts, partitions, costs, threads, lambda share: report("partition", share))
    for number, (group, partition, part, labels) in enumerate(
        zip(groups, partitions, parts, labelled, strict=True)
    ):
        columns = [names.index(name) for name in group]
        report("mask", number / len(groups))
        if method.moments.order == 0:
            means, variance = _noisy_means(part, labels, group, schema, method, partition)
            repaired = Repaired(means, 0)
        else:
            noisy = _noisy_moments(part, labels, group, schema, method, threads)
            repaired, variance = repair_moments(noisy, threads=threads), {}
        report("sample", number / len(groups))
        # Means are truncated with the released table, so that the evaluation can see them before.
        V[:, columns] = (
            repaired.moments.mean[labels]
            if method.moments.order == 0
            else sample_records(labels, repaired.moments, threads=threads)
        )
        done.append(Group(group, labels, repaired.moments, variance, repaired.shrunk))
        report("sample", (number + 1) / len(groups))
    return Masked(names, U, V, tuple(done))


def label_side_by_side(
    parts: Sequence[NDArray[np.float64]],
    partitions: Sequence[Partition],
    costs: Sequence[float],
    threads: int,
    progress: Callable[[float], object],
) -> list[NDArray[np.int32]]:
    """Partition each group of attributes, several at once: most partitions use one core.

    Nothing random happens here, so the number of threads changes no result. The calling thread alone
    reports progress and takes signals; an exception there stops the others at their next poll.
    """
    available = threads or os.cpu_count() or 1
    workers = min(len(parts), available)
    progress(0.0)
    if workers == 1:
        return [
            partition.labels(
                part,
                noise_cost=cost,
                threads=threads,
                progress=lambda share, done=number: progress((done + share) / len(parts)),  # type: ignore[misc]
            )
            for number, (part, partition, cost) in enumerate(zip(parts, partitions, costs, strict=True))
        ]
    shares = [0.0] * len(parts)
    stopping = threading.Event()

    def label(number: int) -> NDArray[np.int32]:
        def note(share: float) -> None:
            shares[number] = share
            if stopping.is_set():
                raise InterruptedError

        each = max(1, available // workers)
        found = partitions[number].labels(
            parts[number], noise_cost=costs[number], threads=each, progress=note
        )
        shares[number] = 1.0
        return found

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(label, number) for number in range(len(parts))]
        try:
            while (state := wait(futures, timeout=0.05, return_when=FIRST_EXCEPTION)).not_done:
                for future in state.done:
                    future.result()  # one that failed stops the others now, not when they are done
                progress(sum(shares) / len(parts))
            return [future.result() for future in futures]
        except BaseException:
            stopping.set()
            for future in futures:
                future.cancel()
            raise


def _noisy_means(
    U: NDArray[np.float64],
    labels: NDArray[np.int32],
    group: tuple[str, ...],
    schema: Schema,
    method: Microaggregation,
    partition: Partition,
) -> tuple[Moments, dict[str, float]]:
    """Cluster means by exact integer sums, with noise if the method has a budget."""
    sizes, sums = cluster_sums(U, labels, bits=GRID_BITS)
    variance: dict[str, float] = {}
    if isinstance(method, MicroaggregatedDP):
        sums, scales = mask_sums(sums, group, partition, schema, method, len(U))
        inverse = float(np.sum(1.0 / sizes))
        variance = {name: 2 * float(scale) ** 2 * inverse for name, scale in scales.items()}
    return Moments(sizes, sums / sizes[:, None] / float(1 << GRID_BITS)), variance


def mask_sums(
    sums: NDArray[np.int64],
    group: tuple[str, ...],
    partition: Partition,
    schema: Schema,
    method: MicroaggregatedDP,
    n: int,
) -> tuple[NDArray[np.int64], dict[str, Fraction]]:
    """Add noise to the cluster sums of a group's attributes; also its scales, in widths.

    Replacing one individual moves the list of cluster sums of an attribute by at most ``reach`` widths
    (docs/guarantees.md, "Sums"; OPT, Proposition 3 and section 3).
    """
    reach = schema.max_records * partition.sum_sensitivity(n)
    shares = {name: method.attribute_shares(schema)[name] for name in group}
    noisy = noisy_sums(sums, reach << GRID_BITS, list(shares.values()))
    return noisy, {name: reach / share for name, share in shares.items()}


def _noisy_moments(
    U: NDArray[np.float64],
    labels: NDArray[np.int32],
    group: tuple[str, ...],
    schema: Schema,
    method: Microaggregation,
    threads: int,
) -> Moments | Spectra:
    """Cluster moments, with noise if the method has a budget (CM, Algorithms 1 to 3)."""
    moments = method.moments.moments(U, labels, threads=threads)
    if not isinstance(method, MicroaggregatedDP):
        return moments
    queries = method.moments.queries(moments, threads=threads)
    answers = mask_queries(queries, group_epsilon(group, schema, method), threads=threads)
    return method.moments.assemble(moments.sizes, U.shape[1], answers)


def group_epsilon(group: tuple[str, ...], schema: Schema, method: MicroaggregatedDP) -> Fraction:
    """What the moments of a group of attributes may spend on one replaced record.

    Replacing an individual's c records one by one costs c times as much (group privacy).
    """
    shares = method.attribute_shares(schema)
    return sum((shares[name] for name in group), Fraction(0)) / schema.max_records


def mask_queries(
    queries: Sequence[Query], epsilon: Fraction, *, threads: int = 0
) -> list[NDArray[np.float64]]:
    """The noisy answers to the queries of a group's clusters, which spend epsilon together."""
    return [noisy_answers(query, epsilon, threads=threads) for query in queries]


def moments_table(masked: Masked, schema: Schema) -> pa.Table:
    """The released moments as a tidy table in raw units: group, cluster, size, statistic, value."""
    import pyarrow as pa

    rows: dict[str, list[Any]] = {"group": [], "cluster": [], "size": [], "statistic": [], "value": []}
    for group in masked.groups:
        moments = group.moments
        width = np.array([float(schema.bounds(name).width) for name in group.names])
        lower = np.array([float(schema.bounds(name).lower) for name in group.names])
        statistics = [
            (f"mean({name})", np.clip(moments.mean[:, i], 0, 1) * width[i] + lower[i])
            for i, name in enumerate(group.names)
        ]
        if moments.covariance is not None:
            for i, first in enumerate(group.names):
                for j, second in enumerate(group.names[i:], start=i):
                    if moments.covariance.ndim == 3:
                        entry = moments.covariance[:, i, j]
                    elif i == j:
                        entry = moments.covariance[:, i]
                    else:
                        continue
                    statistics.append((f"covariance({first}, {second})", entry * width[i] * width[j]))
        if moments.skewness is not None:
            statistics += [
                (f"third moment({name})", moments.skewness[:, i] * width[i] ** 3)
                for i, name in enumerate(group.names)
            ]
        clusters = permutation(len(moments.sizes))  # the order of creation reads the data
        for statistic, values in statistics:
            rows["group"] += [", ".join(group.names)] * len(clusters)
            rows["cluster"] += range(len(clusters))
            rows["size"] += moments.sizes[clusters].tolist()
            rows["statistic"] += [statistic] * len(clusters)
            rows["value"] += values[clusters].tolist()
    return pa.table(rows)


def _sample_and_generalise(
    source: Table, schema: Schema, method: TruthfulDP, order: Order, threads: int, report: Progress
) -> Release:
    """SafePub's middle: private search over the lattice, fresh sample, suppression."""
    import pyarrow as pa

    if order != "shuffled":
        raise InputError(f"{method.name} releases a random sample in random order; order cannot be 'aligned'")
    names = method.identifying(schema)
    hierarchies, codes = identifying_codes(source, schema, method)
    result = search_and_release(
        codes,
        hierarchies,
        method.safepub,
        class_column=method.class_column(schema),
        threads=threads,
        progress=lambda share: report("search", share),
    )
    report("release", 0.0)
    columns = {}
    for j, (name, hierarchy) in enumerate(zip(names, hierarchies, strict=True)):
        level = result.levels[j]
        # One label per leaf, looked up per row: a million rows share a handful of strings.
        labels = pa.array(hierarchy.generalise(np.arange(hierarchy.leaves), level).tolist())
        columns[name] = labels.take(pa.array(codes[result.rows, j]))
    arrow = pa.table({name: columns[name] for name in source.arrow.column_names if name in columns})
    certificate = certify(method, schema, order, source.rows, is_seeded())
    levels = dict(zip(names, result.levels, strict=True))
    certificate = replace(certificate, parameters=dict(certificate.parameters) | {"levels": levels})
    report("release", 1.0)

    def evaluate() -> Evaluation:
        from .evaluate import evaluate_sample

        return evaluate_sample(names, codes, hierarchies, result)

    table = arrow if source.kind == "numpy" else source.give_back(arrow)  # labels are text
    return Release(table, certificate, arrow, source.format or FileFormat(), evaluate)


def identifying_codes(
    source: Table, schema: Schema, method: TruthfulDP
) -> tuple[list[Hierarchy], NDArray[np.int32]]:
    """The hierarchies of the columns that are generalised, and the table as numbers of their leaves."""
    names = method.identifying(schema)
    hierarchies = [hierarchy_of(schema.columns[name]) for name in names]
    codes = np.empty((source.rows, len(names)), dtype=np.int32)
    for j, (name, hierarchy) in enumerate(zip(names, hierarchies, strict=True)):
        codes[:, j] = leaf_codes(source, schema, name, hierarchy)
    return hierarchies, codes


def leaf_codes(source: Table, schema: Schema, name: str, hierarchy: Hierarchy) -> NDArray[np.int32]:
    """The column as numbers of leaves of its hierarchy."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = source.arrow.column(name)
    bounds = schema.columns[name]
    if isinstance(bounds, Numeric) and hierarchy.numeric:
        values = np.clip(numeric_values(column, name), bounds.lower, bounds.upper)
        if bounds.missing == "midpoint":
            values[np.isnan(values)] = (bounds.lower + bounds.upper) / 2
        return hierarchy.codes(values, column=name)
    if pc.any(pc.is_null(column, nan_is_null=True)).as_py():
        raise InputError(
            f"column {name!r} has missing values; fill them first, for example with a value that its hierarchy lists"
        )
    encoded = pc.dictionary_encode(column.combine_chunks())
    if hierarchy.numeric:
        distinct = hierarchy.codes(numeric_values(pa.chunked_array([encoded.dictionary]), name), column=name)
    else:
        distinct = hierarchy.codes(encoded.dictionary.cast(pa.string()).to_pylist(), column=name)
    found: NDArray[np.int32] = distinct[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def certify(method: Method, schema: Schema, order: Order, n: int, seeded: bool) -> Certificate:
    """The public statement, from public facts alone."""
    assumptions = list(method.assumptions(schema, order))
    bounds_read_data = [
        name for name, column in schema.columns.items() if isinstance(column, Numeric) and column.from_data
    ]
    if seeded:
        assumptions.append(
            "NOT PRIVATE: the random numbers were seeded for a test and can be repeated by anyone."
        )
    if bounds_read_data:
        assumptions.append(
            f"NOT PRIVATE: the bounds of {', '.join(bounds_read_data)} were read from the data, which voids the claim."
        )
    budget = method.budget(schema)
    return Certificate(
        guarantee=method.guarantee,
        scope=method.scope(schema, order),
        neighbours=method.neighbours,
        method=method.name,
        parameters=method.parameters(schema, n) | {"order": order},
        epsilon=budget.epsilon if budget else None,
        delta=method.delta,
        budget=budget.shares if budget else {},
        assumptions=tuple(assumptions),
        columns=_public_columns(schema),
        private=not seeded and not bounds_read_data and method.sound,
    )


def _public_columns(schema: Schema) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name in schema.released:
        column = schema.columns[name]
        described[name] = {"type": type(column).__name__.lower()}
        if isinstance(column, Numeric):
            described[name] |= {"lower": column.lower, "upper": column.upper, "missing": column.missing}
        if (hierarchy := hierarchy_of(column)) is not None:
            described[name]["hierarchy"] = {"leaves": hierarchy.leaves, "levels": hierarchy.levels}
    return described
