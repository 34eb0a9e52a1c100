"""How much memory a release is going to need, so that what cannot fit is refused before it is begun."""

from __future__ import annotations

import re
from pathlib import Path

from .errors import InputError
from .files import TableFile
from .schema import Schema

# Peak of the whole process, release saved with its evaluation: fitted to measurements with 1 to 8 columns
# and 2*10^5 to 10^7 records (tests/test_resources.py checks it), good within a factor of two.
_BASE = 160 << 20
_PER_RECORD = 60
_PER_NUMBER = 60
_PER_BYTE_OF_TEXT = 3
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def read_size(text: str) -> int:
    """Read an amount of memory such as 8GB, 512M or 1.5 GiB; units are powers of 1024.

    >>> read_size("8GB") == 8 << 30
    True
    """
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if not found or not float(found[1]):
        raise InputError(f"{text!r} is no amount of memory; write it as 8GB or 512MB")
    return int(float(found[1]) * (1 << _UNITS[found[2]]))


def estimated_memory(records: int, numbers: int, text: float = 0) -> int:
    """Bytes that a process needs at its peak to release and save so many records.

    A record has so many ``numbers``, and ``text`` bytes in its other columns.

    >>> estimated_memory(10_000_000, 4) < 4 << 30
    True
    """
    return _BASE + int(records * (_PER_RECORD + _PER_NUMBER * numbers + _PER_BYTE_OF_TEXT * text))


def estimated_records(file: TableFile) -> int:
    """Number of records of a table file: from its own count (Parquet), or from the length of its first lines."""
    if file.format.kind != "csv":
        return file.count()
    import pyarrow as pa

    with file.path.open("rb") as raw, pa.input_stream(raw, compression=file.format.compression) as stream:
        text = stream.read(1 << 20)
        compressed = max(1, raw.tell())
    size = Path(file.path).stat().st_size
    if file.format.compression is not None:
        size = max(len(text), size * len(text) // min(compressed, size))
    return max(1, int(size * max(1, text.count(b"\n")) // max(1, len(text))))


def check_memory(file: TableFile, schema: Schema, limit: int) -> None:
    """Refuse a table that would not fit."""
    numbers = schema.numeric
    others = [name for name in schema.released if name in file.names and name not in numbers]
    text = file.bytes_per_record(others) if others else 0.0
    needed = estimated_memory(estimated_records(file), len(numbers), text)
    if needed > limit:
        raise InputError(
            f"{file.path} needs about {_shown(needed)} of memory, and the limit is {_shown(limit)}; raise "
            "--memory-limit, drop columns or split the table"
        )


def _shown(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MB"
