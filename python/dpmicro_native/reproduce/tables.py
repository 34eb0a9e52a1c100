"""The papers' tables, read from the folder that `--data` names."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..hierarchy import Hierarchy
from ..schema import Numeric, Schema

Array = NDArray[np.float64]

# In file order, which is what reproduces the cross-moment paper's curves: its Census 2 is FEDTAX, POTHVAL.
CENSUS = ("FEDTAX", "POTHVAL", "INTVAL", "FICA")
EIA = ("RESREVENUE", "RESSALES", "COMREVENUE", "COMSALES")


@dataclass(frozen=True)
class Projection:
    """Some attributes of a table, and the papers' bounds for them: 0 and 1.5 times the greatest value."""

    name: str
    columns: tuple[str, ...]
    X: Array

    @property
    def width(self) -> Array:
        """Upper bound of each attribute."""
        upper: Array = 1.5 * self.X.max(axis=0)
        return upper

    @property
    def U(self) -> Array:  # noqa: N802 - the papers' name for the table in the unit cube
        """The table in the unit cube."""
        # EIA has a few negative corrections: they are moved to the bound, as in every release.
        return np.asfortranarray(np.clip(self.X / self.width, 0, 1))

    @property
    def schema(self) -> Schema:
        """Its columns; the bounds read the data, so nothing released with them is private."""
        return Schema(
            {
                name: Numeric(0, float(upper), from_data=True)
                for name, upper in zip(self.columns, self.width, strict=True)
            }
        )

    def first(self, d: int) -> Projection:
        """The first d attributes: "Census 2" and so on."""
        return Projection(f"{self.name} {d}", self.columns[:d], self.X[:, :d])


def numeric(data: Path, file: str, columns: Sequence[str] | None = None, name: str = "") -> Projection:
    """Columns of a CSV file with a header."""
    with _open(data / file) as lines:
        reader = csv.DictReader(lines)
        chosen = tuple(columns or reader.fieldnames or ())
        X = np.array([[float(row[column]) for column in chosen] for row in reader])
    return Projection(name, chosen, X)


def census(data: Path) -> Projection:
    """CASC's Census table, the four attributes of the papers."""
    return numeric(data, "casc/census.csv", CENSUS, "Census")


def eia(data: Path) -> Projection:
    """CASC's EIA table, the four attributes of the papers."""
    return numeric(data, "casc/eia.csv", EIA, "EIA")


@dataclass(frozen=True)
class Coded:
    """A table of leaf codes with the hierarchies that number them."""

    names: tuple[str, ...]
    codes: NDArray[np.int32]
    hierarchies: tuple[Hierarchy, ...]


def us_census(data: Path) -> Coded:
    """SafePub's "US Census": UCI Adult with nine quasi-identifiers."""
    folder = data / "safepub" / "adult"
    with _open(folder / "data.csv") as lines:
        names, *rows = csv.reader(lines, delimiter=";")
    hierarchies = []
    for name in names:
        path = folder / f"hierarchy_{name}.csv"
        _open(path).close()
        hierarchies.append(Hierarchy.from_csv(path))
    columns = zip(*rows, strict=True)
    codes = [
        hierarchy.codes(list(column), column=name)
        for name, column, hierarchy in zip(names, columns, hierarchies, strict=True)
    ]
    return Coded(tuple(names), np.stack(codes, axis=1).astype(np.int32), tuple(hierarchies))


def _open(path: Path):  # type: ignore[no-untyped-def]
    try:
        return path.open(encoding="utf-8", newline="")
    except OSError:
        raise InputError(
            f"{path} cannot be read; --data must name the folder of the papers' tables (docs/reproduction.md)"
        ) from None
