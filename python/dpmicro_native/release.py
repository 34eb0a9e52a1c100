"""From a table to a release: the one pipeline that every method goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from .certificate import Certificate
from .errors import InputError
from .files import FileFormat, FileOptions, write_file
from .mask import cluster_sums, noisy_sums, permutation
from .methods import Method, MicroaggregatedDP, Microaggregation, Order
from .partition import Partition
from .schema import Numeric, Schema
from .table import Table, assemble, complete_rows, from_unit_cube, read_table, released_column, unit_cube
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

    def save(self, directory: str | Path, *, force: bool = False) -> Path:
        """Write ``public/`` (data, certificate) and ``curator/`` (evaluation), all or nothing.

        Everything is written beside the target first and moved there at once, so that a failure leaves
        nothing half done. An existing target is refused unless ``force`` is set.
        """
        from .writing import atomic_directory

        with atomic_directory(Path(directory), force=force) as folder:
            public, curator = folder / "public", folder / "curator"
            public.mkdir()
            curator.mkdir(mode=0o700)
            certificate = self.certificate.to_json()
            metadata = {"dpmicro_native.certificate": certificate}
            write_file(self._arrow, public / f"data{self._format.suffix}", self._format, metadata)
            (public / "certificate.json").write_text(certificate + "\n", encoding="utf-8")
            (curator / "evaluation.json").write_text(self.evaluation.to_json() + "\n", encoding="utf-8")
        if self._written is not None:
            self._written()
        return Path(directory)

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
    method.check(schema)
    report = progress or (lambda station, share: None)

    with _spending(ledger, method) as written:
        report("read", 0.0)
        source = complete_rows(read_table(table, schema, file_options), schema)
        source, dropped = limit_records(source, schema)
        report("read", 1.0)
        assert isinstance(method, Microaggregation)
        release = _microaggregate(source, schema, method, order, threads, report, dropped)
        return replace(release, _written=written)


@contextmanager
def _spending(ledger: Ledger | None, method: Method) -> Iterator[Callable[[], None] | None]:
    """Reserve before the block; yields what tells the ledger that the release was written."""
    if ledger is None:
        yield None
        return
    from .ledger import Ledger, reserve_for

    if not isinstance(ledger, Ledger):
        raise InputError("ledger must be a Ledger, such as Ledger('budget.sqlite')")
    entry = reserve_for(ledger, method)
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
class Masked:
    """What came out of the stations, aligned with the input's rows; curator's eyes only."""

    names: tuple[str, ...]
    original: NDArray[np.float64]  # in the unit cube
    released: NDArray[np.float64]  # before truncation
    labels: dict[tuple[str, ...], NDArray[np.int32]]
    noise_variance: dict[str, float]  # expected squared error by noise, in the unit cube, per attribute


def _microaggregate(
    source: Table,
    schema: Schema,
    method: Microaggregation,
    order: Order,
    threads: int,
    report: Progress,
    dropped: int,
) -> Release:
    masked = mask_means(unit_cube(source, schema, schema.numeric), schema, method, threads, report)
    seeded = is_seeded()
    report("release", 0.0)
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
    report("release", 1.0)

    def evaluate() -> Evaluation:
        from .evaluate import evaluate_masked

        return evaluate_masked(masked, schema, dropped)

    return Release(
        source.give_back(arrow),
        certify(method, schema, order, source.rows, seeded),
        arrow,
        source.format or FileFormat(),
        evaluate,
    )


def mask_means(
    U: NDArray[np.float64], schema: Schema, method: Microaggregation, threads: int, report: Progress
) -> Masked:
    """Partition, aggregate and mask: cluster means, with noise if the method has a budget."""
    n = len(U)
    names = schema.numeric
    V = np.empty_like(U)
    labels: dict[tuple[str, ...], NDArray[np.int32]] = {}
    variance: dict[str, float] = {}
    groups = method.grouped(schema)
    partitions = method.partitions(schema, n)
    for number, (group, partition) in enumerate(zip(groups, partitions, strict=True)):
        columns = [names.index(name) for name in group]
        part = U[:, columns] if len(columns) < len(names) else U

        def share(done: float, number: int = number) -> None:
            report("partition", (number + done) / len(groups))

        found = partition.labels(
            part, noise_cost=method.noise_cost(schema, group[0]), threads=threads, progress=share
        )
        report("mask", number / len(groups))
        sizes, sums = cluster_sums(part, found, bits=GRID_BITS)
        if isinstance(method, MicroaggregatedDP):
            inverse = float(np.sum(1.0 / sizes))
            sums, scales = mask_sums(sums, group, partition, schema, method, n, threads)
            variance |= {
                name: 2 * float(scale) ** 2 * inverse for name, scale in zip(group, scales, strict=True)
            }
        means = sums / sizes[:, None] / float(1 << GRID_BITS)
        V[:, columns] = means[found]
        labels[group] = found
        report("mask", (number + 1) / len(groups))
    return Masked(names, U, V, labels, variance)


def mask_sums(
    sums: NDArray[np.int64],
    group: tuple[str, ...],
    partition: Partition,
    schema: Schema,
    method: MicroaggregatedDP,
    n: int,
    threads: int = 0,
) -> tuple[NDArray[np.int64], list[Fraction]]:
    """Add noise to cluster sums of a group's attributes; also its scales, in widths of the attributes.

    Replacing one individual moves the list of cluster sums of an attribute by at most ``reach`` widths
    (docs/guarantees.md, "Sums"; OPT, Proposition 3 and section 3).
    """
    reach = schema.max_records * partition.sum_sensitivity(n)
    shares = [method.budget(schema).shares[name] for name in group]
    noisy = noisy_sums(sums, reach << GRID_BITS, shares, threads=threads)
    return noisy, [reach / share for share in shares]


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
    budget = method.budget(schema) if isinstance(method, MicroaggregatedDP) else None
    return Certificate(
        guarantee=method.guarantee,
        scope=method.scope(schema, order),
        neighbours=method.neighbours,
        method=method.name,
        parameters=method.parameters(schema, n) | {"order": order},
        epsilon=budget.epsilon if budget else None,
        budget=budget.shares if budget else {},
        assumptions=tuple(assumptions),
        columns=_public_columns(schema),
        private=not seeded and not bounds_read_data,
    )


def _public_columns(schema: Schema) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name in schema.released:
        column = schema.columns[name]
        described[name] = {"type": type(column).__name__.lower()}
        if isinstance(column, Numeric):
            described[name] |= {"lower": column.lower, "upper": column.upper, "missing": column.missing}
    return described
