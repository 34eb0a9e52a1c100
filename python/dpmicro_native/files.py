"""Table files: CSV, Parquet and Arrow IPC, compressed or not; what was read decides how it is written."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIXES: dict[str, Literal["csv", "parquet", "arrow"]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class FileOptions:
    """How to read a CSV file where its looks do not tell. None means: find out."""

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    quote: str = '"'
    header: bool = True

    def __post_init__(self) -> None:
        for name in ("delimiter", "decimal", "quote"):
            mark = getattr(self, name)
            if mark is not None and (not isinstance(mark, str) or len(mark) != 1):
                raise InputError(f"{name} must be a single character")
        if self.delimiter == self.decimal:
            raise InputError("delimiter and decimal mark are the same character; set one of them")


@dataclass(frozen=True)
class FileFormat:
    """The format of a file, so that a release can be written the same way."""

    kind: Literal["csv", "parquet", "arrow"] = "csv"
    suffix: str = ".csv"
    compression: str | None = None
    options: FileOptions = FileOptions()

    @classmethod
    def of(cls, path: Path) -> FileFormat:
        """Tell the format from a file's name."""
        suffixes = [suffix.lower() for suffix in path.suffixes]
        compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
        if compression is not None:
            suffixes = suffixes[:-1]
        kind = _SUFFIXES.get(suffixes[-1]) if suffixes else None
        if kind is None or (compression is not None and kind != "csv"):
            raise InputError(
                f"{path.name}: unknown kind of file; use .csv, .tsv, .csv.gz, .csv.zst, .parquet, .arrow or .feather"
            )
        return cls(
            kind, "".join(suffixes[-1:] + path.suffixes[-1:] if compression else suffixes[-1:]), compression
        )


def read_file(path: Path, options: FileOptions | None = None) -> tuple[pa.Table, FileFormat]:
    """Read a table file. Errors name the file and the place, never a value."""
    import pyarrow as pa

    file_format = FileFormat.of(path)
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; give a table file")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{path} is an empty file")
        if file_format.kind == "csv":
            return _read_csv(path, replace(file_format, options=options or FileOptions()))
        if file_format.kind == "parquet":
            import pyarrow.parquet as pq

            return pq.read_table(path), file_format
        import pyarrow.feather as feather

        return feather.read_table(path), file_format
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read: {_place(str(error))}") from None
    except OSError as error:
        reason = error.strerror or "it is damaged or not what its name says"
        raise InputError(f"{path} cannot be read: {reason}") from None


def _place(message: str) -> str:
    """What may be said of an Arrow error: the place and the kind, never the quoted text."""
    columns = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
    if columns:
        row, expected, got = columns.groups()
        return f"row {row} has {got} fields where {expected} are expected; check quotes and the delimiter"
    columns = re.search(r"Expected (\d+) columns, got (\d+)", message)
    if columns:
        return (
            f"a row has {columns[2]} fields where {columns[1]} are expected; check quotes and the delimiter"
        )
    if "UTF8" in message or "codec" in message or "decode" in message:
        return "it is not UTF-8 text; give its encoding, for example --encoding latin-1"
    return "it is damaged or not what its name says"


def _read_csv(path: Path, file_format: FileFormat) -> tuple[pa.Table, FileFormat]:
    import pyarrow as pa
    import pyarrow.csv as csv

    options = file_format.options
    delimiter = options.delimiter or _sniff_delimiter(path, file_format)
    options = replace(options, delimiter=delimiter)
    try:
        table = csv.read_csv(
            pa.input_stream(path, compression=file_format.compression),
            read_options=csv.ReadOptions(
                encoding=options.encoding, autogenerate_column_names=not options.header, block_size=4 << 20
            ),
            parse_options=csv.ParseOptions(
                delimiter=delimiter, quote_char=options.quote, newlines_in_values=True
            ),
            convert_options=csv.ConvertOptions(decimal_point=options.decimal, strings_can_be_null=False),
        )
    except (LookupError, UnicodeDecodeError):
        raise InputError(f"{path} cannot be read as {options.encoding}; give its encoding") from None
    names = table.column_names
    if names and names[0].startswith("\ufeff"):
        table = table.rename_columns([names[0][1:], *names[1:]])
    return table, replace(file_format, options=options)


def _sniff_delimiter(path: Path, file_format: FileFormat) -> str:
    """The candidate that occurs most often in the first line, outside quotes."""
    import pyarrow as pa

    with pa.input_stream(path, compression=file_format.compression) as stream:
        start = stream.read(1 << 16).decode(file_format.options.encoding, errors="replace")
    quote = re.escape(file_format.options.quote)
    line = re.sub(f"{quote}[^{quote}]*{quote}", "", start).splitlines()[0:1]
    counts = {mark: line[0].count(mark) if line else 0 for mark in _DELIMITERS}
    if file_format.options.decimal in counts:
        del counts[file_format.options.decimal]
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ("," if "," in counts else ";")


def write_file(table: pa.Table, path: Path, file_format: FileFormat, metadata: dict[str, str]) -> None:
    """Write a table in the given format; formats that carry metadata get it."""
    if file_format.kind == "csv":
        _write_csv(table, path, file_format)
        return
    existing = {key: value for key, value in (table.schema.metadata or {}).items() if key != b"pandas"}
    table = table.replace_schema_metadata({**existing, **metadata})
    if file_format.kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path)
    else:
        import pyarrow.feather as feather

        feather.write_feather(table, str(path))


def _write_csv(table: pa.Table, path: Path, file_format: FileFormat) -> None:
    import pyarrow as pa
    import pyarrow.csv as csv

    options = file_format.options
    if options.decimal != ".":
        table = _with_decimal_mark(table, options.decimal)
    write_options = csv.WriteOptions(
        include_header=options.header, delimiter=options.delimiter or ",", quoting_style="needed"
    )
    with pa.output_stream(path, compression=file_format.compression) as sink:
        if options.encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
            csv.write_csv(table, sink, write_options)
        else:
            buffer = pa.BufferOutputStream()
            csv.write_csv(table, buffer, write_options)
            sink.write(buffer.getvalue().to_pybytes().decode("utf-8").encode(options.encoding))


def _with_decimal_mark(table: pa.Table, mark: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
            column = pc.replace_substring(column.cast(pa.string()), ".", mark)
        columns[name] = column
    return pa.table(columns)
