"""The spec: one TOML file that says what a table is, what to do with it and how to write the result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from .errors import InputError
from .files import FileOptions
from .methods import Method, Order, method
from .schema import Column, Drop, Keep, Numeric, Schema, read_toml, refuse_unknown

if TYPE_CHECKING:
    import pyarrow as pa

OtherColumns = Literal["refuse", "drop", "keep"]


@dataclass(frozen=True)
class Spec:
    """Everything about a release but the table.

    ``other_columns`` says what happens to columns that the schema does not name.
    """

    schema: Schema
    method: Method
    order: Order = "shuffled"
    other_columns: OtherColumns = "refuse"
    file_options: FileOptions = field(default_factory=FileOptions)

    def __post_init__(self) -> None:
        for name, known in (("order", Order), ("other_columns", OtherColumns)):
            value = getattr(self, name)
            if value not in get_args(known):
                raise InputError(
                    f"{name} = {value!r} is unknown; use {' or '.join(map(repr, get_args(known)))}"
                )

    @classmethod
    def from_toml(cls, path: Path) -> Spec:
        """Read a spec such as `dpmicro init` writes."""
        document = read_toml(path)
        refuse_unknown(document, ("columns", "individual", "method", "output", "input"), str(path))
        for name, section in document.items():
            if not isinstance(section, Mapping):
                raise InputError(f"{path}: [{name}] must be a table of its own")
        _refuse_empty_bounds(document.get("columns", {}), path)
        output, reading = document.get("output", {}), document.get("input", {})
        refuse_unknown(output, ("order", "other_columns"), f"{path}: [output]")
        refuse_unknown(reading, [option.name for option in fields(FileOptions)], f"{path}: [input]")
        chosen = dict(document.get("method", {}))
        if not isinstance(name := chosen.pop("name", None), str):
            raise InputError(
                f'{path}: [method] needs a name, such as name = "OPT_DP_1"; `dpmicro methods` lists them'
            )
        try:
            return cls(
                Schema.from_document(document, path.parent),
                method(name, **chosen),
                file_options=FileOptions(**reading),
                **output,
            )
        except InputError as error:
            raise type(error)(f"{path}: {error}") from None

    def schema_for(self, names: Iterable[str]) -> Schema:
        """The schema of a table with these columns: those it does not name are kept or dropped as the spec says."""
        if self.other_columns == "refuse":
            return self.schema
        names = list(names)
        if not set(names) & set(self.schema.names):
            # Without a header the "names" would be values, and be kept as such.
            raise InputError(
                "the table has none of the spec's columns; if it has no header row, say so with header = false"
            )
        other: Column = Keep() if self.other_columns == "keep" else Drop()
        more = {name: other for name in names if name not in self.schema.names}
        return replace(self.schema, columns={**self.schema.columns, **more})


def _refuse_empty_bounds(columns: Mapping[str, Any], path: Path) -> None:
    empty = [
        name
        for name, entry in columns.items()
        if isinstance(entry, Mapping) and "" in (entry.get("lower"), entry.get("upper"))
    ]
    if empty:
        shown = ", ".join(empty[:5]) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
        raise InputError(
            f"{path}: fill in lower and upper of {shown}: bounds that everybody may know, not read from the table"
        )


def bounds_from_data(column: pa.ChunkedArray, name: str) -> Numeric:
    """The papers' experimental bounds [0, 1.5 max]. They read the data, so the release is not private."""
    import pyarrow.compute as pc

    from .table import numeric_values

    values = numeric_values(column, name)
    extremes = pc.min_max(values, skip_nulls=True)
    low, high = (extremes[key].as_py() for key in ("min", "max"))
    if low is None or low != low:
        raise InputError(f"column {name!r} has no values to take bounds from; give them, or drop the column")
    lower, upper = min(0.0, 1.5 * low), max(0.0, 1.5 * high)
    if lower == upper:
        raise InputError(f"column {name!r} has the same value in every record; drop it")
    return Numeric(lower, upper, from_data=True)


# What `dpmicro init` proposes

_IDENTIFIERS = frozenset(
    (
        *(
            "id",
            "uuid",
            "guid",
            "key",
            "ssn",
            "passport",
            "licence",
            "license",
            "iban",
            "account",
            "ip",
            "url",
        ),
        *("name", "names", "firstname", "lastname", "surname", "forename", "fullname", "user", "username"),
        *("email", "mail", "phone", "telephone", "mobile", "fax", "address", "street"),
    )
)
_CODES = frozenset(("zip", "zipcode", "postcode", "postal", "plz", "code"))


@dataclass(frozen=True)
class Proposal:
    """What `dpmicro init` thinks of a column, and why."""

    name: str
    type: Literal["numeric", "drop"]
    reason: str
    bounds: Numeric | None = None

    @property
    def entry(self) -> str:
        """The column's value in the spec."""
        if self.type == "drop":
            return '{ type = "drop" }'
        if self.bounds is None:
            return '{ type = "numeric", lower = "", upper = "" }'
        return f'{{ type = "numeric", lower = {self.bounds.lower!r}, upper = {self.bounds.upper!r}, from_data = true }}'


def propose(name: str, kind: pa.DataType) -> Proposal:
    """Propose a role from a column's name and type; values are not looked at."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    words = set(re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()))
    whole = pa.types.is_integer(kind)
    if words & _IDENTIFIERS:
        return Proposal(name, "drop", "by its name, it may identify people")
    if not name.strip():
        return Proposal(name, "drop", "a column without a name: row numbers, perhaps")
    if whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if words & _CODES:
            return Proposal(name, "drop", "by its name, a code rather than a quantity")
        return Proposal(name, "numeric", "whole numbers; they stay whole" if whole else "numbers")
    if pa.types.is_temporal(kind):
        return Proposal(name, "drop", "dates or times")
    if pa.types.is_boolean(kind):
        return Proposal(name, "drop", "true or false")
    return Proposal(name, "drop", "text")


def write_spec(table: str, spec: str, proposals: Iterable[Proposal], options: FileOptions | None) -> str:
    """The text of a spec that explains itself; ``options`` only for CSV."""
    proposals = list(proposals)
    keys = [_key(proposal.name) for proposal in proposals]
    width = max(map(len, keys))
    columns = "\n".join(
        f"{key:<{width}} = {proposal.entry}  # {proposal.reason}"
        for key, proposal in zip(keys, proposals, strict=True)
    )
    read = any(proposal.bounds is not None for proposal in proposals)
    warning = (
        "# NOT PRIVATE: bounds marked from_data = true were read from the table. For experiments only.\n#\n"
    )
    text = _TEMPLATE.format(
        table=_one_line(table), spec=_one_line(spec), columns=columns, warning=warning if read else ""
    )
    return text + (_INPUT.format(**_toml_values(options)) if options is not None else "")


def _toml_values(options: FileOptions) -> dict[str, str]:
    return {option.name: json.dumps(getattr(options, option.name)) for option in fields(options)}


def _key(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "?", text)


_TEMPLATE = """\
# What dpmicro needs to know about {table}, and what to do with it. Written by `dpmicro init`.
{warning}# Fill in the empty bounds below, read the rest, and run
#
#     dpmicro plan {table} --spec {spec}
#     dpmicro anonymize {table} --spec {spec} --out release

[columns]
# Every column of the table, with one of these types:
#
# numeric      A number between public bounds: protected and released. lower and upper are what everybody may
#              know without the table, such as 0 and 120 for an age. They are left empty because bounds that
#              were read from the table would give away its extremes and void the guarantee. Values outside are
#              moved to the nearer bound; the wider the bounds, the more noise.
#              missing = "refuse" (the default), "midpoint" (fill with the middle of the bounds) or "drop" (leave
#              the record out; not for differentially private methods).
# drop         Not released.
# keep         Released as it is. A raw value beside a protected one voids differential privacy, so those methods
#              accept it only as {{ type = "keep", public = true }}: everybody may know it already.
# categorical  A value from a list, with hierarchy = "file.csv" that generalises it. Only for SAFEPUB.
#
# The types below were proposed from names and types alone. Check each.
{columns}

# If one person may have several records, name the column that tells whose record it is (and remove it above).
# It is not released; of each person at most max_records are used, and the noise grows with that number.
# [individual]
# column = "person_id"
# max_records = 3

[method]
# `dpmicro methods` lists the methods, what they guarantee and what they need. This one groups each attribute so that
# clustering and noise together lose least, and protects the means by differential privacy, given the grouping.
name = "OPT_DP_1"
# The privacy budget, divided over the numeric columns: smaller means more noise. 1 is a common choice.
epsilon = 1

[output]
# "shuffled", or "aligned" with the table's rows, which reveals who shares a group with whom.
order = "shuffled"
# What to do with columns of the table that are not named above: "refuse" the table, "drop" or "keep" them.
other_columns = "refuse"
"""

_INPUT = """
[input]
# How the CSV file is written, as far as dpmicro could tell. The release is written the same way.
delimiter = {delimiter}
decimal = {decimal}
encoding = {encoding}
quote = {quote}
header = {header}
"""
