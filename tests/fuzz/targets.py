"""What must hold for any bytes in a spec, a hierarchy or a table: it is read, or refused by a DpmicroError."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from dpmicro_native import DpmicroError, Drop, Schema, anonymize
from dpmicro_native.files import open_file
from dpmicro_native.hierarchy import Hierarchy
from dpmicro_native.spec import Spec

PEOPLE = pa.table(
    {"age": [31, 42, 17, 64, 23], "pay": [1.5, 2.5, 9.0, 4.25, 0.0], "id": ["secret"] * 3 + ["secrets"] * 2}
)


def _as_file(content: bytes, suffix: str, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"input{suffix}"
        path.write_bytes(content)
        try:
            read(path)
        except DpmicroError as error:
            if len(str(error).splitlines()) != 1 or "secret" in str(error):
                raise RuntimeError("an error must be one line that says nothing of the table") from None


def spec(content: bytes) -> None:
    """A spec in TOML, and a release by it if it is one."""

    def read(path: Path) -> None:
        chosen = Spec.from_toml(path)
        schema = chosen.schema_for(PEOPLE.column_names)
        anonymize(PEOPLE, schema, chosen.method, order=chosen.order, threads=1)

    _as_file(content, ".toml", read)


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
    b'max_records = 2\n[method]\nname = "MDAV_DP"\nepsilon = 0.5\nk = 3\ngroups = [["age"]]\n'
    b'[output]\norder = "aligned"\nother_columns = "drop"\n',
    "hierarchy": b"Italy;Europe;*\nSpain;Europe;*\nIndia;Asia;*\n",
    "table": b'age,name\n31,"Ann, B"\n42,\xc3\x89ve\n,"x\ny"\n',
}
