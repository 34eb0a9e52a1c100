"""What is public about a table: its columns, their bounds, and what may happen to each."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from .errors import InputError
from .mask import exact

if TYPE_CHECKING:
    from .hierarchy import Hierarchy

_MAX = sys.float_info.max
Missing = Literal["refuse", "midpoint", "drop"]


@dataclass(frozen=True)
class Numeric:
    """A number between public bounds; values outside are moved to the nearer bound.

    The bounds must come from knowledge of the subject ("an age is between 0 and 120"), never from the
    table. ``from_data=True`` admits that they do not: it serves experiments, and the certificate then
    says ``private: false``. ``missing`` says what happens to missing values: ``"refuse"`` the table,
    fill with the ``"midpoint"`` of the bounds, or ``"drop"`` the record where that is sound.

    >>> Numeric(0, 120).width
    Fraction(120, 1)
    """

    lower: float
    upper: float
    missing: Missing = "refuse"
    from_data: bool = False
    hierarchy: Hierarchy | None = None

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            value = getattr(self, name)
            value = value.item() if isinstance(value, np.generic) else value
            # Compared, not converted: an integer may be too large for a float.
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_MAX <= value <= _MAX:
                raise InputError(
                    f"the {name} bound must be a finite number; give public bounds such as Numeric(0, 120)"
                )
            object.__setattr__(self, name, value)
        if not self.lower < self.upper:
            raise InputError(
                f"bounds {self.lower} and {self.upper} are inverted or equal; the lower bound must be smaller"
            )
        # Widths are cubed (third moments) and summed over records on the way; that must stay finite.
        if not float(self.upper) - float(self.lower) <= 1e100:
            raise InputError("the bounds are too far apart for double precision; narrow them")
        if self.missing not in ("refuse", "midpoint", "drop"):
            raise InputError(f"missing = {self.missing!r} is unknown; use 'refuse', 'midpoint' or 'drop'")
        _check_flag(self.from_data, "from_data")
        _check_hierarchy(self.hierarchy)

    @property
    def width(self) -> Fraction:
        """Upper minus lower bound, exactly as written."""
        return exact(self.upper) - exact(self.lower)


@dataclass(frozen=True)
class Categorical:
    """A value from a list, with a hierarchy to generalise it (SafePub)."""

    hierarchy: Hierarchy | None = None

    def __post_init__(self) -> None:
        _check_hierarchy(self.hierarchy)


@dataclass(frozen=True)
class Keep:
    """Release the column as it is.

    Differentially private methods refuse it, since a raw value beside a noisy one voids the claim,
    unless ``public=True`` says that the column is public knowledge already.
    """

    public: bool = False

    def __post_init__(self) -> None:
        _check_flag(self.public, "public")


@dataclass(frozen=True)
class Drop:
    """Leave the column out of the release."""


def _check_flag(value: object, name: str) -> None:
    # Any text is true to Python, "false" as well.
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, without quotes")


def _check_hierarchy(value: object) -> None:
    if value is None:
        return
    from .hierarchy import Hierarchy

    if not isinstance(value, Hierarchy):
        raise InputError("hierarchy must be a Hierarchy, such as Hierarchy.from_csv(...); in a spec, a file")


Column: TypeAlias = Numeric | Categorical | Keep | Drop
_TYPES: dict[str, type[Any]] = {"numeric": Numeric, "categorical": Categorical, "keep": Keep, "drop": Drop}


@dataclass(frozen=True)
class Schema:
    """The columns of a table in public words.

    ``individual`` names the column that says whose record it is, when one person may have several;
    at most ``max_records`` of them are used, and the column itself is never released.

    >>> schema = Schema({"age": Numeric(0, 120), "note": Drop()})
    >>> schema.numeric
    ('age',)
    """

    columns: Mapping[str, Column]
    individual: str | None = None
    max_records: int = field(default=1)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise InputError("a schema needs at least one column, such as Schema({'age': Numeric(0, 120)})")
        for name, column in self.columns.items():
            if not isinstance(column, (Numeric, Categorical, Keep, Drop)):
                raise InputError(f"column {name!r} must be Numeric(lower, upper), Categorical, Keep or Drop")
        if any("\0" in str(name) for name in self.names):
            # Arrow keeps names up to their first NUL: the release would have other columns.
            raise InputError("a column name has a NUL character; rename the column")
        object.__setattr__(
            self, "columns", MappingProxyType({str(name): column for name, column in self.columns.items()})
        )
        if (
            isinstance(self.max_records, bool)
            or not isinstance(self.max_records, int)
            or self.max_records < 1
        ):
            raise InputError("max_records must be a whole number of at least 1")
        if self.individual is not None and not isinstance(self.individual, str):
            raise InputError("individual must be the name of the column that says whose record it is")
        if self.individual is None and self.max_records != 1:
            raise InputError("max_records needs individual=, the column that says whose record it is")
        if self.individual is not None and self.individual in self.columns:
            raise InputError(
                f"column {self.individual!r} identifies individuals and is never released; "
                "name it only as individual=, not among the columns"
            )

    def __reduce__(self) -> tuple[Any, ...]:  # the read-only view of the columns does not pickle
        return (Schema, (dict(self.columns), self.individual, self.max_records))

    def _named(self, kind: type[Any]) -> tuple[str, ...]:
        return tuple(name for name, column in self.columns.items() if isinstance(column, kind))

    @property
    def numeric(self) -> tuple[str, ...]:
        """Names of the Numeric columns, in order."""
        return self._named(Numeric)

    @property
    def released(self) -> tuple[str, ...]:
        """Names of the columns that appear in a release, in order."""
        return tuple(name for name, column in self.columns.items() if not isinstance(column, Drop))

    @property
    def names(self) -> tuple[str, ...]:
        """Every column the table must have, the individual's included."""
        return tuple(self.columns) + ((self.individual,) if self.individual is not None else ())

    def bounds(self, name: str) -> Numeric:
        """The Numeric entry of a column."""
        column = self.columns[name]
        if not isinstance(column, Numeric):
            raise InputError(f"column {name!r} is not Numeric; give it public bounds: Numeric(lower, upper)")
        return column

    def match(self, names: Iterable[str]) -> None:
        """Refuse a table whose columns are not the schema's."""
        found = list(names)
        duplicated = sorted({name for name in found if found.count(name) > 1})
        if duplicated:
            raise InputError(f"the table has two columns named {duplicated[0]!r}; rename one")
        for name in self.names:
            if name not in found:
                raise InputError(f"the table has no column {name!r}{_nearest(name, found)}")
        for name in found:
            if name not in self.names:
                raise InputError(
                    f"column {name!r} of the table is not in the schema; add it, for example as Drop() or Keep(), "
                    "or set other_columns in a spec"
                )

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read the ``[columns]`` and ``[individual]`` tables of a TOML file.

        >>> import tempfile, pathlib
        >>> spec = pathlib.Path(tempfile.mkdtemp()) / "spec.toml"
        >>> _ = spec.write_text('[columns]\\nage = {type = "numeric", lower = 0, upper = 120}')
        >>> Schema.from_toml(spec).numeric
        ('age',)
        """
        document = read_toml(path)
        refuse_unknown(document, ("columns", "individual", "method", "output", "input"), "the spec")
        return cls.from_document(document, Path(path).parent)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], folder: Path) -> Schema:
        """Build a schema from parsed TOML; hierarchy files are relative to ``folder``."""
        columns = document.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            raise InputError("the spec has no [columns]; run `dpmicro init TABLE` to write one")
        individual = document.get("individual", {})
        if not isinstance(individual, Mapping):
            raise InputError("[individual] must be a table with column = and max_records =")
        refuse_unknown(individual, ("column", "max_records"), "[individual]")
        return cls(
            {name: _column_from(name, entry, folder) for name, entry in columns.items()},
            individual=individual.get("column"),
            max_records=individual.get("max_records", 1),
        )


def _column_from(name: str, entry: Any, folder: Path) -> Column:
    where = f"column {name!r}"
    if not isinstance(entry, Mapping) or "type" not in entry:
        raise InputError(f'{where} needs a type, such as {{type = "numeric", lower = 0, upper = 120}}')
    kind = entry["type"]
    if kind not in _TYPES:
        raise InputError(f"{where}: unknown type {kind!r}{_nearest(str(kind), _TYPES)}")
    chosen = _TYPES[kind]
    options = {key: value for key, value in entry.items() if key != "type"}
    refuse_unknown(options, [option.name for option in fields(chosen)], where)
    if chosen is Numeric and not {"lower", "upper"} <= options.keys():
        raise InputError(f"{where} needs lower and upper, its public bounds (not read from the table)")
    if isinstance(options.get("hierarchy"), str):
        from .hierarchy import Hierarchy

        options["hierarchy"] = Hierarchy.from_csv(folder / options["hierarchy"])
    try:
        column: Column = chosen(**options)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return column


def read_toml(path: str | Path) -> dict[str, Any]:
    """Parse a TOML file; what is wrong with it becomes an InputError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return document
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'unreadable'}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        raise InputError(f"{path} is not a spec: a number is too long or brackets are too deep") from None


def refuse_unknown(found: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse keys that mean nothing, naming the nearest one that does."""
    known = list(known)
    for key in found:
        if key not in known:
            raise InputError(f"{where}: unknown key {key!r}{_nearest(key, known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
