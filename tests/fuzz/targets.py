"""What must hold for any bytes in a spec, a hierarchy or a table: it is read, or refused by a DpmicroError."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from dpmicro_native import DpmicroError, Drop, Schema
from dpmicro_native.files import open_file
from dpmicro_native.hierarchy import Hierarchy
from dpmicro_native.spec import Spec


def _as_file(content: bytes, suffix: str, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"input{suffix}"
        path.write_bytes(content)
        try:
            read(path)
        except DpmicroError as error:
            if "\n" in str(error):
                raise RuntimeError("an error must be one line") from None


def spec(content: bytes) -> None:
    """A spec in TOML."""
    _as_file(content, ".toml", Spec.from_toml)


def hierarchy(content: bytes) -> None:
    """A hierarchy in CSV."""
    _as_file(content, ".csv", Hierarchy.from_csv)


def table(content: bytes) -> None:
    """A table in CSV."""

    def read(path: Path) -> None:
        file = open_file(path)
        file.read()
        Schema({name: Drop() for name in file.names}).match(file.names)

    _as_file(content, ".csv", read)


TARGETS = {"spec": spec, "hierarchy": hierarchy, "table": table}
SEEDS = {
    "spec": b'[columns]\nage = {type = "numeric", lower = 0, upper = 120}\n[individual]\ncolumn = "id"\n'
    b'max_records = 2\n[method]\nname = "MDAV_DP"\nepsilon = 0.5\nk = 3\ngroups = [["age"]]\n[output]\n',
    "hierarchy": b"Italy;Europe;*\nSpain;Europe;*\nIndia;Asia;*\n",
    "table": b'age,name\n31,"Ann, B"\n42,\xc3\x89ve\n,"x\ny"\n',
}
