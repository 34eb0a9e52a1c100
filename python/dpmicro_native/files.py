"""Table files: CSV, Parquet and Arrow IPC, compressed or not; what was read decides how it is written."""

from __future__ import annotations

import codecs
import io
import os
import re
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from .errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

#: Called with the share of a file that is read or written, 0 to 1.
Share = Callable[[float], object]

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
_KNOWN = ".csv, .tsv, .txt (also with .gz or .zst), .parquet, .arrow or .feather"
_DELIMITERS = ",;\t|"
_BLOCK = 4 << 20  # bytes of CSV parsed at a time
_ROWS = 1 << 16  # rows of CSV written at a time


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
            if mark is None and name == "delimiter":
                continue
            if not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark in "\r\n":
                raise InputError(
                    f"{name} must be a single ASCII character, such as {getattr(FileOptions, name) or ','!r}"
                )
        if self.quote in (self.delimiter, self.decimal) or self.delimiter == self.decimal:
            raise InputError(
                "delimiter, decimal mark and quote must be different characters; set the one that is wrong"
            )
        if not isinstance(self.header, bool):
            raise InputError(
                "header must be true or false: whether the first row holds the names of the columns"
            )
        try:
            "a".encode(self.encoding)  # refuses codecs that are not for text too, such as base64
        except (LookupError, TypeError, ValueError):
            raise InputError(
                f"there is no encoding {self.encoding!r}; use for example utf-8 or latin-1"
            ) from None


@dataclass(frozen=True)
class FileFormat:
    """The format of a file, so that a release can be written the same way."""

    kind: Literal["csv", "parquet", "arrow"] = "csv"
    suffix: str = ".csv"
    compression: str | None = None  # of the file (CSV) or inside it (Parquet, Feather)
    options: FileOptions = FileOptions()
    newline: str = "\n"
    stream: bool = False  # Arrow's stream format, which has no footer

    @classmethod
    def of(cls, path: Path) -> FileFormat:
        """Tell the format from a file's name.

        >>> FileFormat.of(Path("people.csv.gz")).compression
        'gzip'
        """
        *_, before, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
        compression = _COMPRESSIONS.get(last)
        suffix = last if compression is None else before
        kind = _SUFFIXES.get(suffix)
        if kind is None or (compression is not None and kind != "csv"):
            raise InputError(f"{path.name}: unknown kind of file; use {_KNOWN}")
        return cls(kind, suffix if compression is None else suffix + last, compression)


@dataclass(frozen=True)
class TableFile:
    """A table file that was looked at but not read: its format and the names of its columns."""

    path: Path
    format: FileFormat
    names: tuple[str, ...]

    def read(
        self, *, skip: Collection[str] = (), as_text: Collection[str] = (), progress: Share | None = None
    ) -> pa.Table:
        """Read its records, without the columns to ``skip``.

        In a CSV file ``as_text`` names the columns to take as they are written, so that 007 stays 007;
        other formats know their types.
        """
        import pyarrow as pa

        wanted = [name for name in self.names if name not in skip]
        with _reading(self.path):
            if self.format.kind == "csv":
                return self._read_csv(wanted, {name: pa.string() for name in as_text}, progress)
            if self.format.kind == "parquet":
                import pyarrow.parquet as pq

                return pq.ParquetFile(self.path).read(columns=wanted)
            with pa.memory_map(str(self.path)) as source:
                return _ipc(source, self.format.stream).read_all().select(wanted)

    def count(self) -> int:
        """Number of its records."""
        import pyarrow as pa

        with _reading(self.path):
            if self.format.kind == "parquet":
                import pyarrow.parquet as pq

                return int(pq.ParquetFile(self.path).metadata.num_rows)
            if self.format.kind == "csv":
                first = self.names[:1]
                return int(self._read_csv(list(first), {name: pa.string() for name in first}, None).num_rows)
        return int(self.read().num_rows)

    def bytes_per_record(self, names: Collection[str]) -> float:
        """Size in memory of some of its columns, going by its first records."""
        if self.format.kind == "csv":
            with _reading(self.path):
                rows = list(_csv_rows(_csv_start(self.path, self.format, 1 << 20), self.format.options))
            places = [self.names.index(name) for name in names]
            text = sum(len(row[place]) for row in rows for place in places if place < len(row))
            return text / max(1, len(rows)) + 4 * len(places)  # each value has an offset
        if self.format.kind == "parquet":
            import pyarrow.parquet as pq

            with _reading(self.path):
                first = next(pq.ParquetFile(self.path).iter_batches(columns=list(names)), None)
        else:
            first = self.read().select(list(names)).slice(0, 1 << 16)
        return first.nbytes / first.num_rows if first else 0.0

    def _read_csv(self, wanted: list[str], types: dict[str, Any], progress: Share | None) -> pa.Table:
        import pyarrow as pa

        try:
            return self._parse_csv(wanted, types, progress, threads=True)
        except pa.ArrowInvalid:
            return self._parse_csv(wanted, types, None, threads=False)  # which can tell the row that is wrong

    def _parse_csv(
        self, wanted: list[str], types: dict[str, Any], progress: Share | None, *, threads: bool
    ) -> pa.Table:
        import pyarrow.csv as csv

        with self.path.open("rb") as file:
            source = _decompressed(_Counted(file, progress), self.format)
            return csv.read_csv(source, **_csv_options(self.format, wanted, types, threads=threads))


def open_file(path: Path, options: FileOptions | None = None) -> TableFile:
    """Look at a table file. Errors name the file and the place, never a value."""
    file_format = FileFormat.of(path)
    with _reading(path):
        if path.is_dir():
            raise InputError(f"{path} is a folder; give a table file")
        with path.open("rb") as file:
            if not (start := file.read(8)):
                raise InputError(f"{path} is an empty file")
        if file_format.kind == "csv":
            return _open_csv(path, replace(file_format, options=options or FileOptions()))
        import pyarrow as pa

        if file_format.kind == "parquet":
            import pyarrow.parquet as pq

            parquet = pq.ParquetFile(path)
            codec = _parquet_codec(parquet.metadata)
            return TableFile(path, replace(file_format, compression=codec), tuple(parquet.schema_arrow.names))
        file_format = replace(file_format, stream=not start.startswith(b"ARROW1"))
        with pa.memory_map(str(path)) as source:
            return TableFile(path, file_format, tuple(_ipc(source, file_format.stream).schema.names))


def _ipc(source: Any, stream: bool) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(source) if stream else pa.ipc.open_file(source)


def _parquet_codec(metadata: Any) -> str | None:
    if metadata.num_row_groups == 0 or metadata.num_columns == 0:
        return "snappy"
    codec = str(metadata.row_group(0).column(0).compression).lower()
    return {"uncompressed": None, "lz4_raw": "lz4"}.get(codec, codec)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what may go wrong with a file into InputErrors that quote none of it."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied") from None
    except pa.ArrowCancelled:
        raise KeyboardInterrupt from None
    except (pa.ArrowException, UnicodeError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {_place(f'{type(error).__name__}: {error}')}") from None
    except OSError as error:
        reason = error.strerror or "it is damaged or not what its name says"
        raise InputError(f"{path} cannot be read: {reason}") from None


def _place(message: str) -> str:
    """What may be said of an Arrow error: the place and the kind, never the quoted text."""
    fields = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if fields:
        row, expected, got = fields.groups()
        where = f"row {row}" if row else "a row"
        return f"{where} has {got} fields where {expected} are expected; check quotes and the delimiter"
    if re.search(r"UTF-?8|codec|decode|Unicode", message, re.IGNORECASE):
        return "its text is not in the encoding expected; give the right one, for example latin-1"
    return "it is damaged or not what its name says"


class _Counted:
    """A binary file that says how much of it was read; Arrow reads it from its own threads."""

    def __init__(self, file: BinaryIO, progress: Share | None) -> None:
        self._file, self._progress = file, progress
        self._size = max(1, os.fstat(file.fileno()).st_size)
        self._done = 0

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._done += len(block)
        if self._progress is not None:
            self._progress(min(1.0, self._done / self._size))
        return block

    def readable(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        self._file.close()


def _decompressed(file: Any, file_format: FileFormat) -> Any:
    import pyarrow as pa

    source = pa.PythonFile(file, mode="r")
    return (
        source
        if file_format.compression is None
        else pa.CompressedInputStream(source, file_format.compression)
    )


def _csv_options(
    file_format: FileFormat,
    wanted: list[str] | None = None,
    types: dict[str, Any] | None = None,
    *,
    threads: bool = True,
) -> dict[str, Any]:
    import pyarrow.csv as csv

    options = file_format.options
    return {
        "read_options": csv.ReadOptions(
            encoding=options.encoding,
            autogenerate_column_names=not options.header,
            block_size=_BLOCK,
            use_threads=threads,
        ),
        "parse_options": csv.ParseOptions(
            delimiter=options.delimiter, quote_char=options.quote, newlines_in_values=True
        ),
        # An empty cell among numbers is a missing value; among text it is an empty text, and "NA" is a word.
        "convert_options": csv.ConvertOptions(
            decimal_point=options.decimal,
            strings_can_be_null=False,
            include_columns=wanted,
            column_types=types,
        ),
    }


def _csv_start(path: Path, file_format: FileFormat, size: int) -> str:
    with path.open("rb") as file:
        start = _decompressed(_Counted(file, None), file_format).read(size)
    decoder = codecs.getincrementaldecoder(file_format.options.encoding)(errors="replace")
    return decoder.decode(start).removeprefix("\ufeff")


def _csv_rows(text: str, options: FileOptions) -> Iterator[list[str]]:
    """Rows of the start of a file; the last may be cut off.

    Arrow's own streaming reader would read ahead on a thread that outlives this look, and a thread that wants
    the interpreter while it shuts down aborts the process.
    """
    import csv

    lines = io.StringIO(text, newline="")
    return csv.reader(lines, delimiter=options.delimiter or ",", quotechar=options.quote)


def _open_csv(path: Path, file_format: FileFormat) -> TableFile:
    import pyarrow as pa

    options = file_format.options
    text = _csv_start(path, file_format, 1 << 16)
    quote = re.escape(options.quote)
    unquoted = re.sub(f"{quote}[^{quote}]*{quote}", "", text)
    line = re.split(r"\r\n|\n|\r", unquoted, maxsplit=1)[0]
    file_format = replace(
        file_format,
        newline="\r\n" if unquoted[len(line) :].startswith("\r\n") else "\n",
        options=replace(options, delimiter=options.delimiter or _likely_delimiter(line, options)),
    )
    names = next((row for row in _csv_rows(text, file_format.options) if row), [])
    if not options.header:
        names = [f"f{column}" for column in range(len(names))]
    if not any(names):
        raise pa.ArrowInvalid("no header")
    return TableFile(path, file_format, tuple(names))


def _likely_delimiter(line: str, options: FileOptions) -> str:
    """The candidate that occurs most often in the first line, outside quotes."""
    marks = [mark for mark in _DELIMITERS if mark not in (options.decimal, options.quote)]
    return max(marks, key=line.count)  # the first of them when none occurs


def write_file(
    table: pa.Table,
    path: Path,
    file_format: FileFormat,
    metadata: dict[str, str],
    progress: Share | None = None,
) -> None:
    """Write a table in the given format; formats that carry metadata get this one and no other."""
    if file_format.kind == "csv":
        _write_csv(table, path, file_format, progress or (lambda share: None))
        return
    import pyarrow as pa

    # Whatever the input's metadata said, it was not written for the public.
    table = pa.table(
        [_without_unused_categories(column) for column in table.columns], names=table.column_names
    ).replace_schema_metadata(metadata)
    if file_format.kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path, compression=file_format.compression or "none")
        return
    codec = "lz4" if file_format.suffix == ".feather" else None
    options = pa.ipc.IpcWriteOptions(compression=codec, unify_dictionaries=True)
    writer = pa.ipc.new_stream if file_format.stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, writer(sink, table.schema, options=options) as out:
        out.write_table(table)


def _without_unused_categories(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary may still name categories whose records are gone."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    return column.cast(column.type.value_type).dictionary_encode()


def _write_csv(table: pa.Table, path: Path, file_format: FileFormat, progress: Share) -> None:
    options = file_format.options
    encoder = codecs.getincrementalencoder(options.encoding)()
    columns = [
        _CsvColumn(name, column, file_format, len(table.columns) == 1)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    delimiter = options.delimiter or ","
    header = delimiter.join(_quoted(name, delimiter, options.quote) for name in table.column_names)
    batches = table.to_batches(max_chunksize=_ROWS)

    def rows(batch: pa.RecordBatch) -> str:
        import pyarrow as pa
        import pyarrow.compute as pc

        cells = [column.text(values) for column, values in zip(columns, batch.columns, strict=True)]
        lines = pc.binary_join_element_wise(*cells, pa.scalar(delimiter, pa.large_string()))
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines)
        text = pc.binary_join(whole, pa.scalar(file_format.newline, pa.large_string()))[0].as_py()
        return f"{text}{file_format.newline}"

    with _compressed(path, file_format.compression) as sink, ThreadPoolExecutor(os.cpu_count()) as pool:
        if options.header:
            sink.write(encoder.encode(header + file_format.newline))
        ahead = 2 * (os.cpu_count() or 1)  # so much text is in memory at a time
        for start in range(0, len(batches), ahead):
            progress(start / len(batches))
            for text in pool.map(rows, batches[start : start + ahead]):
                sink.write(encoder.encode(text))
    progress(1.0)


@contextmanager
def _compressed(path: Path, compression: str | None) -> Iterator[Any]:
    import gzip

    import pyarrow as pa

    with path.open("wb") as file:
        if compression == "gzip":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as sink:
                yield sink
        elif compression == "zstd":
            with pa.CompressedOutputStream(file, "zstd") as stream:
                yield stream
        else:
            yield file


def _quoted(text: str, delimiter: str, quote: str) -> str:
    # Every candidate, so that whoever finds out the delimiter (we do) is not misled.
    if any(mark in text for mark in (delimiter, quote, *_DELIMITERS, "\r", "\n")):
        return quote + text.replace(quote, quote + quote) + quote
    return text


class _CsvColumn:
    """How the values of one column are written, with quotes only where they are needed."""

    def __init__(self, name: str, column: pa.ChunkedArray, file_format: FileFormat, alone: bool) -> None:
        import pyarrow as pa

        self.name, self.options = name, file_format.options
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        self.number = pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_integer(kind)
        # An empty text is told from a missing one where both occur; and a line must not be empty.
        self.quote_empty = alone or column.null_count > 0
        self.empty = self.options.quote * 2 if alone else ""
        marks = re.escape((self.options.delimiter or ",") + self.options.quote)
        self.special = f"[{marks}\r\n]" + ("|^$" if self.quote_empty else "")

    def text(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        try:
            text = values.cast(pa.large_string())
        except pa.ArrowException:
            raise InputError(
                f"column {self.name!r} holds {values.type}, which a CSV file cannot; make it Drop(), or use Parquet"
            ) from None
        if self.number:
            if self.options.decimal != ".":
                text = pc.replace_substring(text, ".", self.options.decimal)
        elif pc.any(special := pc.match_substring_regex(text, self.special)).as_py():
            quote = pa.scalar(self.options.quote, pa.large_string())
            doubled = pc.replace_substring(text, self.options.quote, self.options.quote * 2)
            nothing = pa.scalar("", pa.large_string())
            text = pc.if_else(special, pc.binary_join_element_wise(quote, doubled, quote, nothing), text)
        return text.fill_null(self.empty)
