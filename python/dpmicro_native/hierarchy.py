"""Generalisation hierarchies: every value of an attribute, and what it becomes on each level."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InputError

#: The label of a suppressed value, and of every root this module makes.
ROOT = "*"
#: A level table has one entry per leaf; more leaves than this are a mistake, not an attribute.
MAX_LEAVES = 1 << 17

_ALPHABETS = {
    "digits": "0123456789",
    "letters": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "alphanumeric": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
}


@dataclass(frozen=True)
class Hierarchy:
    """How the values of one attribute are generalised, level by level, up to one root.

    A row is a leaf followed by its generalisation on level 1, 2, ... up to the root. A hierarchy is
    public: it is written down without looking at the table, and it lists every value there can be.

    >>> education = Hierarchy.from_rows([("BSc", "higher", "*"), ("MSc", "higher", "*"), ("none", "no", "*")])
    >>> education.levels
    3
    >>> education.generalise(education.codes(["MSc", "none"]), level=1).tolist()
    ['higher', 'no']
    """

    rows: tuple[tuple[str, ...], ...]
    #: Numeric hierarchies: leaf i covers edges[i] <= value < edges[i + 1]; the last one its upper end too.
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        self.check()

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[object]]) -> Hierarchy:
        """Take rows of (leaf, level 1, ..., root)."""
        return cls(tuple(tuple(str(value) for value in row) for row in rows))

    @classmethod
    def from_csv(cls, path: str | PathLike[str], delimiter: str = ";") -> Hierarchy:
        """Read the usual file: one line per leaf, ``leaf;level 1;...;root``, no header."""
        try:
            with Path(path).open(encoding="utf-8-sig", newline="") as file:
                rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
        except OSError as error:
            raise InputError(f"cannot read the hierarchy {path}: {error.strerror or 'unreadable'}") from None
        except UnicodeDecodeError:
            raise InputError(f"the hierarchy {path} is not UTF-8 text; save it as UTF-8") from None
        except csv.Error as error:
            raise InputError(f"the hierarchy {path} is not a CSV file: {error}") from None
        return cls.from_rows(rows)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Hierarchy:
        """Take a tree from general to specific: keys are groups, the innermost lists hold the leaves.

        A root ``*`` is put on top unless the tree has a single key, which is then the root.

        >>> Hierarchy.from_dict({"Europe": ["Italy", "Spain"], "Asia": ["India"]}).rows
        (('Italy', 'Europe', '*'), ('Spain', 'Europe', '*'), ('India', 'Asia', '*'))
        """

        def walk(node: object, above: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
            if isinstance(node, Mapping):
                for group, members in node.items():
                    yield from walk(members, (str(group), *above))
            elif isinstance(node, (list, tuple)):
                for leaf in node:
                    yield (str(leaf), *above)
            else:
                raise InputError("a hierarchy given as a dict holds dicts and, innermost, lists of leaves")

        return cls(tuple(walk(tree, () if len(tree) == 1 else (ROOT,))))

    @classmethod
    def intervals(cls, lo: float, hi: float, widths: Sequence[float]) -> Hierarchy:
        """Intervals of a number between public bounds; level 0 has the narrowest, the root is ``*``.

        Every width must be a multiple of the one before, so that the levels nest; the last interval of
        a level ends at ``hi``. Numbers mean the decimals they are written as, so 0.1 is a tenth.

        >>> age = Hierarchy.intervals(0, 100, widths=[5, 10, 20])
        >>> age.rows[7]
        ('[35, 40)', '[30, 40)', '[20, 40)', '*')
        """
        try:
            low, high, *steps = (Fraction(str(number)) for number in (lo, hi, *widths))
        except ValueError:
            raise InputError("bounds and widths of intervals must be finite numbers") from None
        if not low < high:
            raise InputError("the lower bound of the intervals must lie below the upper bound")
        if not steps or steps[0] <= 0:
            raise InputError("intervals need at least one width, and widths are positive")
        if any(wide <= narrow or wide % narrow for narrow, wide in itertools.pairwise(steps)):
            raise InputError("each width must be a larger multiple of the width before, so that levels nest")
        count = -((low - high) // steps[0])
        if count > MAX_LEAVES:
            raise InputError(f"more than {MAX_LEAVES} intervals; choose a larger first width")

        def text(number: Fraction) -> str:
            return f"{int(number)}" if number.denominator == 1 else f"{float(number)}"

        def label(leaf: int, width: Fraction) -> str:
            start = low + leaf * steps[0] // width * width
            if start + width >= high:
                return f"[{text(start)}, {text(high)}]"
            return f"[{text(start)}, {text(start + width)})"

        rows = tuple((*(label(leaf, width) for width in steps), ROOT) for leaf in range(count))
        edges = (*(float(low + leaf * steps[0]) for leaf in range(count)), float(high))
        return cls(rows, edges)

    @classmethod
    def mask(cls, alphabet: str = "digits", *, length: int = 5) -> Hierarchy:
        """Codes of a fixed length whose last characters are masked one by one, such as postal codes.

        ``alphabet`` is "digits", "letters", "alphanumeric" or the characters themselves. The leaves are
        all codes there can be.

        >>> Hierarchy.mask("digits", length=2).rows[42]
        ('42', '4*', '**')
        """
        characters = _ALPHABETS.get(alphabet, alphabet)
        if length < 1 or not characters or len(set(characters)) < len(characters) or ROOT in characters:
            raise InputError(
                "a mask needs a length of at least 1 and an alphabet of distinct characters, not *"
            )
        if len(characters) ** length > MAX_LEAVES:
            raise InputError(f"more than {MAX_LEAVES} possible codes; give the codes in use with from_rows")
        # One string per node, shared by the leaves below it.
        levels = [
            [
                "".join(prefix) + ROOT * hidden
                for prefix in itertools.product(characters, repeat=length - hidden)
                for _ in range(len(characters) ** hidden)
            ]
            for hidden in range(length + 1)
        ]
        return cls(tuple(zip(*levels, strict=True)))

    def check(self) -> None:
        """Refuse lines of unequal length, a leaf listed twice, levels that do not nest, several roots."""
        if not self.rows or not self.rows[0]:
            raise InputError("the hierarchy is empty; give one line per value: value, level 1, ..., root")
        if len(self.rows) > MAX_LEAVES:
            raise InputError(f"the hierarchy has more than {MAX_LEAVES} values")
        levels = len(self.rows[0])
        for line, row in enumerate(self.rows, 1):
            if len(row) != levels:
                raise InputError(
                    f"line {line} of the hierarchy has {len(row)} levels where line 1 has {levels}; "
                    "every value needs an entry on every level"
                )
        if len({row[0] for row in self.rows}) < len(self.rows):
            raise InputError("a value has two lines in the hierarchy; keep one")
        for level in range(levels - 1):
            above: dict[str, str] = {}
            for line, row in enumerate(self.rows, 1):
                if above.setdefault(row[level], row[level + 1]) != row[level + 1]:
                    raise InputError(
                        f"levels {level} and {level + 1} of the hierarchy are not nested: line {line} puts a "
                        f"value of level {level} under another one of level {level + 1} than a line before"
                    )
        if len({row[-1] for row in self.rows}) != 1:
            raise InputError(
                "the last level of the hierarchy has several values; end every line in one root, such as *"
            )

    @property
    def levels(self) -> int:
        """Number of levels, leaves and root included."""
        return len(self.rows[0])

    @property
    def leaves(self) -> int:
        """Number of values on level 0."""
        return len(self.rows)

    @property
    def numeric(self) -> bool:
        """Whether the leaves are intervals of numbers."""
        return self.edges is not None

    @cached_property
    def _labels(self) -> tuple[NDArray[np.str_], ...]:
        """Labels of the values of each level, in order of first appearance."""
        return tuple(np.array(list(dict.fromkeys(column))) for column in zip(*self.rows, strict=True))

    @cached_property
    def tables(self) -> NDArray[np.int32]:
        """Levels x leaves: the number of the value that a leaf becomes on a level."""
        tables = np.empty((self.levels, self.leaves), dtype=np.int32)
        for level, column in enumerate(zip(*self.rows, strict=True)):
            number = {value: index for index, value in enumerate(dict.fromkeys(column))}
            tables[level] = [number[value] for value in column]
        tables.setflags(write=False)
        return tables

    @cached_property
    def _leaf_codes(self) -> dict[str, int]:
        return {row[0]: code for code, row in enumerate(self.rows)}

    def codes(self, values: ArrayLike, *, column: str = "") -> NDArray[np.int32]:
        """Number the values by their leaf; a value that the hierarchy misses is an error naming ``column``.

        Numeric hierarchies take numbers; the others take text, and integers as the text they print as.
        """
        where = f"column {column!r}" if column else "the column"
        if self.edges is not None:
            try:
                numbers = np.asarray(values, dtype=np.float64)
            except (TypeError, ValueError):
                raise InputError(f"{where} must hold numbers: its hierarchy is made of intervals") from None
            # Written so that NaN is refused too.
            if not np.all((numbers >= self.edges[0]) & (numbers <= self.edges[-1])):
                raise InputError(
                    f"{where} has values outside the intervals of its hierarchy; widen the bounds or clamp"
                )
            found = np.searchsorted(np.asarray(self.edges), numbers, side="right") - 1
            return np.minimum(found, self.leaves - 1).astype(np.int32)
        array = np.asarray(values)
        if array.dtype.kind in "iu":
            distinct, inverse = np.unique(array, return_inverse=True)
            return self.codes([str(value) for value in distinct.tolist()], column=column)[inverse]
        get = self._leaf_codes.get
        listed = array.tolist()
        codes = np.fromiter((get(value, -1) for value in listed), dtype=np.int32, count=len(listed))
        if codes.size and codes.min() < 0:
            raise InputError(
                f"{where} has values that its hierarchy does not list; add a line for each of them"
            )
        return codes

    def generalise(self, codes: ArrayLike, level: int) -> NDArray[np.str_]:
        """Labels of the leaves ``codes`` on a level."""
        if not 0 <= level < self.levels:
            raise InputError(f"level {level} does not exist; the hierarchy has levels 0 to {self.levels - 1}")
        labels: NDArray[np.str_] = self._labels[level][self.tables[level][np.asarray(codes, dtype=np.int32)]]
        return labels
