"""Tables in, tables out: any frame, numpy array or file, and the unit cube the methods work in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .files import FileFormat, FileOptions, Share, open_file
from .schema import Categorical, Drop, Keep, Numeric, Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Table:
    """A table as it came in: its columns as Arrow, and how to give the same kind back."""

    arrow: pa.Table
    kind: str  # "numpy", "pandas", "polars", "arrow" or "file"
    format: FileFormat | None = None  # of the file it came from

    @property
    def rows(self) -> int:
        """Number of records."""
        return int(self.arrow.num_rows)

    def give_back(self, released: pa.Table) -> Any:
        """Turn a released Arrow table into the kind of frame that came in."""
        if self.kind == "numpy":
            columns = [column.to_numpy(zero_copy_only=False) for column in released.columns]
            return np.column_stack(columns) if columns else np.empty((released.num_rows, 0))
        if self.kind == "pandas":
            return released.to_pandas()
        if self.kind == "polars":
            import polars

            return polars.from_arrow(released)
        return released


def read_table(
    source: Any, schema: Schema, file_options: FileOptions | None = None, progress: Share | None = None
) -> Table:
    """Read a numpy array, a frame, anything with ``__arrow_c_stream__``, or a CSV, Parquet or Arrow path.

    A numpy array has no column names: its columns are the schema's, in order.
    """
    import pyarrow as pa

    file_format = None
    if isinstance(source, (str, Path)):
        arrow, file_format = _from_file(Path(source), schema, file_options, progress)
        kind = "file"
    elif isinstance(source, np.ndarray):
        arrow, kind = _from_numpy(source, schema.names), "numpy"
    else:
        module = type(source).__module__.split(".")[0]
        kind = module if module in ("pandas", "polars") else "arrow"
        try:
            if kind == "pandas":
                arrow = pa.Table.from_pandas(source, preserve_index=False)
            elif isinstance(source, pa.Table):
                arrow = source
            elif hasattr(source, "__arrow_c_stream__"):
                if kind == "polars" and any("\0" in str(name) for name in source.columns):
                    # polars ends the whole process when it exports such a name.
                    raise InputError("a column name of the table has a NUL character; rename the column")
                arrow = pa.table(source)
            else:
                raise InputError(
                    f"cannot read a table from {type(source).__name__}; give a numpy array, a pandas, polars or "
                    "pyarrow frame, or the path of a CSV or Parquet file"
                )
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            # Arrow's own message may quote values of the table.
            raise InputError(
                "a column of the table mixes kinds of values that Arrow cannot hold; make each column one type"
            ) from None
    if kind != "file":
        schema.match(arrow.column_names)
    if arrow.num_rows == 0:
        raise InputError("the table is empty; it needs at least one record")
    return Table(_without_views(arrow), kind, file_format)


def _without_views(arrow: pa.Table) -> pa.Table:
    """Texts as offsets instead of views, which polars hands out and Arrow cannot take rows of."""
    import pyarrow as pa

    plain = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}  # by name: new in Arrow 16
    for number, column in enumerate(arrow.schema):
        if str(column.type) in plain:
            field = column.with_type(plain[str(column.type)])
            arrow = arrow.set_column(number, field, arrow.column(number).cast(field.type))
    return arrow


def _from_file(
    path: Path, schema: Schema, options: FileOptions | None, progress: Share | None
) -> tuple[pa.Table, FileFormat]:
    """Read the columns that the schema does not drop; kept ones from CSV exactly as they are written."""
    file = open_file(path, options)
    if file.format.kind == "csv" and not set(schema.names) & set(file.names):
        # Without a header the "names" would be values, which no message may quote.
        raise InputError(
            f"the first row of {path} names none of the schema's columns; if the file has no header row, "
            "say so with header = false; else check its delimiter and encoding"
        )
    schema.match(file.names)
    skip = {name for name, column in schema.columns.items() if isinstance(column, Drop)}
    text = {name for name, column in schema.columns.items() if isinstance(column, (Keep, Categorical))}
    return file.read(skip=skip, as_text=text | {schema.individual or ""}, progress=progress), file.format


def _from_numpy(array: NDArray[Any], names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    if array.ndim != 2:
        raise InputError("a numpy table must be 2-D, rows are records; reshape a single column to (n, 1)")
    if array.dtype.kind not in "fiu":
        raise InputError("a numpy table must hold numbers; use a pandas or pyarrow frame for mixed columns")
    if array.shape[1] != len(names):
        raise InputError(
            f"the array has {array.shape[1]} columns and the schema {len(names)}; they must agree"
        )
    # from_pandas: NaN means missing, as it does in a frame.
    return pa.table({name: pa.array(array[:, j], from_pandas=True) for j, name in enumerate(names)})


def numeric_values(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """A column as float64, NaN where missing. Infinite values are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InputError(
            f"column {name!r} is Numeric in the schema but holds {_plain_type(kind)}; "
            "convert it to numbers (in a CSV file, check the decimal mark), or make it Keep() or Drop()"
        )
    values = pc.cast(column, pa.float64(), safe=False)
    array: NDArray[np.float64] = values.to_numpy()  # one chunk without nulls: a view
    if np.isinf(array).any():
        raise InputError(f"column {name!r} has infinite values; replace or drop them first")
    return array


def _plain_type(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_temporal(kind):
        return "dates or times"
    if pa.types.is_boolean(kind):
        return "true/false values"
    if pa.types.is_null(kind):
        return "only missing values"
    return str(kind)


def complete_rows(table: Table, schema: Schema) -> Table:
    """Apply the missing-value policy of the Numeric columns that refuse or drop."""
    import pyarrow.compute as pc

    keep = None
    for name in schema.numeric:
        policy = schema.bounds(name).missing
        column = table.arrow.column(name)
        if policy == "midpoint":
            continue
        absent = pc.is_null(column, nan_is_null=True)
        if not pc.any(absent).as_py():
            continue
        if policy == "refuse":
            raise InputError(
                f"column {name!r} has missing values; fill them first, or set missing='midpoint' "
                "(the middle of the bounds) or missing='drop'"
            )
        present = pc.invert(absent)
        keep = present if keep is None else pc.and_(keep, present)
    if keep is None:
        return table
    arrow = table.arrow.filter(keep)
    if arrow.num_rows == 0:
        raise InputError("no record is left after dropping those with missing values")
    return replace(table, arrow=arrow)


def unit_cube(table: Table, schema: Schema, names: Sequence[str]) -> NDArray[np.float64]:
    """The named columns, clamped to their bounds and scaled to [0, 1]; n x d, column-major."""
    U = np.empty((table.rows, len(names)), order="F")
    for j, name in enumerate(names):
        bounds = schema.bounds(name)
        values = numeric_values(table.arrow.column(name), name)
        u = U[:, j]
        if len(values) > 1 and np.fmin.reduce(values) == np.fmax.reduce(values):
            raise InputError(
                f"column {name!r} has the same value in every record, so there is nothing to protect by averaging; "
                "make it Drop(), or Keep(public=True) if that value is public"
            )
        np.clip(values, bounds.lower, bounds.upper, out=u)
        u -= bounds.lower
        u /= float(bounds.upper) - float(bounds.lower)
        if bounds.missing == "midpoint":
            u[np.isnan(u)] = 0.5
        np.clip(u, 0.0, 1.0, out=u)  # rounding in the division may step over 1
    return U


def from_unit_cube(u: NDArray[np.float64], bounds: Numeric, *, truncate: bool = True) -> NDArray[np.float64]:
    """Back to the column's own units, truncated to its bounds."""
    values = u * (float(bounds.upper) - float(bounds.lower))
    values += bounds.lower
    return np.clip(values, bounds.lower, bounds.upper, out=values) if truncate else values


def released_column(values: NDArray[np.float64], original: pa.DataType, bounds: Numeric) -> pa.Array:
    """A released column in its original type: integers stay integers, rounded inside the bounds."""
    import pyarrow as pa

    if pa.types.is_dictionary(original):
        original = original.value_type
    if pa.types.is_integer(original):
        lower, upper = np.ceil(bounds.lower), np.floor(bounds.upper)
        if lower <= upper:
            limits = np.iinfo(original.to_pandas_dtype())
            if lower < limits.min or upper > limits.max:
                original = pa.int64()
            return pa.array(np.clip(np.rint(values), lower, upper).astype(np.int64)).cast(original)
    if pa.types.is_floating(original):
        return pa.array(values).cast(original, safe=False)
    return pa.array(values)


def assemble(
    table: Table, schema: Schema, released: dict[str, pa.Array], order: NDArray[np.int64] | None
) -> pa.Table:
    """Put the released and the kept columns together in the table's own column order."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in table.arrow.column_names:
        if name in released:
            columns[name] = released[name]
        elif isinstance(schema.columns.get(name), Keep):
            columns[name] = table.arrow.column(name)
    result = pa.table(columns)
    if table.arrow.schema.metadata and table.kind == "pandas":
        result = result.replace_schema_metadata(table.arrow.schema.metadata)
    return result if order is None else result.take(pa.array(order))
