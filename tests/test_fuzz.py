"""Random schemas, methods and tables through the whole pipeline: a sound release or a clean refusal.

``DPMICRO_EXAMPLES`` sets the number of examples (CI: 10000), ``--hypothesis-seed`` the way they go.
``--hypothesis-show-statistics`` tells how often each method was released and refused.
"""

from __future__ import annotations

import csv
import errno
import inspect
import io
import json
import math
import os
import pickle
import shutil
import tempfile
from collections import Counter
from contextlib import redirect_stderr
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpmicro_native import (
    BudgetError,
    Categorical,
    DpmicroError,
    Drop,
    Hierarchy,
    InputError,
    Keep,
    Method,
    MicroaggregatedDP,
    Microaggregation,
    Numeric,
    Release,
    Schema,
    anonymize,
    method,
)
from dpmicro_native.aggregate import eigenvector_sensitivity
from dpmicro_native.cli import main
from dpmicro_native.files import FileFormat, open_file, write_file
from dpmicro_native.ledger import Ledger
from dpmicro_native.methods import catalogue
from dpmicro_native.release import certify

EXAMPLES = int(os.environ.get("DPMICRO_EXAMPLES", "300"))

# What a table hides. Messages and certificates hold neither; released data only what the schema keeps.
HIDDEN, KEPT = "secret", "a kept value"

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
    unique=True,
)
TAME_BOUND = st.integers(-1000, 1000) | st.floats(-1e6, 1e6) | st.just(np.float64(3.5))
ODD_FLOATS = st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1.0, 123456.789, 1e15, -1e15, 1.7e308, -1.7e308])


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchy:
    leaves = draw(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
    return Hierarchy.from_rows([(leaf, f"group {draw(st.integers(0, 2))}", "*") for leaf in leaves])


@st.composite
def numeric_columns(draw: st.DrawFn, missing: list[str], *, wild: bool = False) -> Numeric:
    bound = TAME_BOUND | ODD_FLOATS if wild else TAME_BOUND
    lower, upper = sorted((draw(bound), draw(bound)))
    if not wild and lower == upper:
        upper = lower + 1
    return Numeric(
        lower, upper, missing=draw(st.sampled_from(missing)), from_data=draw(st.integers(0, 4)) == 4
    )  # type: ignore[arg-type]


@st.composite
def interval_columns(draw: st.DrawFn) -> Numeric:
    lower, count, width = draw(
        st.tuples(st.integers(-9, 9), st.integers(1, 9), st.sampled_from([1, 0.5, 10]))
    )
    upper = lower + count * width
    levels = Hierarchy.intervals(lower, upper, [width, 2 * width])
    return Numeric(lower, upper, missing=draw(st.sampled_from(["refuse", "midpoint"])), hierarchy=levels)


#: Which columns go well together, and which methods take them.
PURPOSES = {
    "noise": [numeric_columns(["refuse", "midpoint"])] * 3 + [st.just(Drop()), st.just(Keep(public=True))],
    "averages": [numeric_columns(["refuse", "midpoint", "drop"])] * 2
    + [st.builds(Keep, public=st.booleans())],
    "truth": [st.builds(Categorical, hierarchies())] * 2 + [interval_columns(), st.just(Drop())],
    "none": [
        numeric_columns(["refuse", "midpoint", "drop"], wild=True),
        st.builds(Keep, public=st.booleans()),
        st.builds(Categorical, st.none() | hierarchies()),
        interval_columns(),
        st.just(Drop()),
    ],
}
SUITABLE = {
    "noise": [name for name, entry in catalogue().items() if "dp" in entry.guarantee and name != "SAFEPUB"],
    "averages": [name for name, entry in catalogue().items() if "dp" not in entry.guarantee],
    "truth": ["SAFEPUB"],
    "none": list(catalogue()),
}


@st.composite
def schemas(draw: st.DrawFn, purpose: str) -> Schema:
    kinds = PURPOSES[purpose]
    first, *names = draw(st.lists(TEXTS, min_size=1, max_size=5) if purpose == "none" else NAMES)
    columns = {first: draw(kinds[0])} | {name: draw(draw(st.sampled_from(kinds))) for name in names}
    individual = draw(st.sampled_from([None, None, None, "whose record"])) if purpose != "truth" else None
    return Schema(columns, individual=individual, max_records=draw(st.integers(1, 3)) if individual else 1)


TAME: dict[str, list[Any]] = {
    "epsilon": [1, 0.1, Fraction(1, 3), "2/7", 1e-3, 15, Decimal("0.5"), np.float64(2.0)],
    "delta": [1e-3, 1e-6, "1/100", Decimal("0.01")],
    "epsilon_search": [None, 0.01, "1/50"],
    "steps": [1, 7],
    "score": ["granularity", "intensity", "discernibility", "entropy", "groups"],
    "as_published": [False, False, True],
    "k": [1, 2, 3, 4, 5, np.int64(3)],
    "min_size": [1, 2, 5],
    "gamma": [0.2, 0, 1.5],
    "groups": ["together", "each"],
    "split": ["even", "width"],
    "norm": ["unit", "raw"],
    "output": ["records", "records", "moments"],
    "max_iter": [0, 3],
    "init": [None, "random"],
}
WILD: dict[str, list[Any]] = {
    "epsilon": [0, -1, math.nan, math.inf, "x", None, True, 1e-300, 1e300, 1e6, "1/0", "", [], 10**400],
    "delta": [0, 1, "x", -1e-6, math.nan, [], 1e-300],
    "epsilon_search": [0, -1, 9, "x", []],
    "steps": [0, "x", 2.5, None, 10**30, True],
    "score": ["classification", "x", 3, []],
    "class_column": ["a", "", 3],
    "as_published": ["x", 1, None],
    "k": [0, -3, 10**9, 10**30, 2.5, "5", True, [], None],
    "min_size": [10**6, 0, "x", None],
    "gamma": [-1, math.nan, math.inf, "x", None, []],
    "groups": ["apart", [["a"], ["b"]], [[]], [], 7, None],
    "split": ["odd", {"a": 1}, {}, 7, None],
    "norm": ["round", 7, None],
    "output": ["x", 3, []],
    "partition": ["MDAV", 3, []],
    "max_iter": [-1, "x", 10**30],
    "seed": [-1, "x", 10**30],
    "init": ["x", 3, []],
}
assert {
    key for entry in catalogue().values() for key in inspect.signature(entry.build).parameters
} <= WILD.keys()


@st.composite
def recipes(draw: st.DrawFn, purpose: str) -> tuple[str, dict[str, Any]]:
    """A method's name and parameters, mostly good; what is simplest is, since Hypothesis likes to repeat it."""
    name = draw(st.sampled_from(SUITABLE["none" if draw(st.integers(0, 9)) == 9 else purpose]))
    wild = draw(st.integers(0, 5)) == 5
    parameters = inspect.signature(catalogue()[name].build).parameters
    chosen = {}
    for key, parameter in parameters.items():
        needed = parameter.default is inspect.Parameter.empty or (key == "k" and "partition" in parameters)
        if wild and draw(st.integers(0, 2)) == 2:
            chosen[key] = draw(st.sampled_from(WILD[key]))
        elif key in TAME and (needed or draw(st.booleans())):
            chosen[key] = draw(st.sampled_from(TAME[key]))
    return name, chosen


@st.composite
def numbers(draw: st.DrawFn, n: int, column: Numeric, rng: np.random.Generator, *, wild: bool) -> pa.Array:
    """Mostly numbers inside the bounds, drawn in bulk to be quick; a few odd cells among them."""
    values = rng.random(n) if draw(st.booleans()) else rng.choice(rng.random(4), n)
    cells = (float(column.lower) + values * (float(column.upper) - float(column.lower))).tolist()
    odd = st.floats(-1e7, 1e7) | ODD_FLOATS
    if wild:
        odd |= st.none() | st.floats()
    elif column.missing != "refuse":
        odd |= st.none()
    for place, value in draw(st.lists(st.tuples(st.integers(0, max(0, n - 1)), odd), max_size=3 if n else 0)):
        cells[place] = value
    kind = draw(st.sampled_from(["float", "float", "integer", "float32", "decimal", "dictionary"]))
    if kind in ("integer", "decimal"):
        limit = 2**62 if kind == "integer" else 10**9
        whole = [
            None if cell is None or not math.isfinite(cell) else int(min(max(cell, -limit), limit))
            for cell in cells
        ]
        if kind == "integer":
            return pa.array(whole, pa.int64())
        return pa.array(
            [None if cell is None else Decimal(cell).scaleb(-2) for cell in whole], pa.decimal128(12, 2)
        )
    if kind == "float32":
        with np.errstate(over="ignore"):
            return pa.array(
                [None if c is None else np.float32(np.clip(c, -3e38, 3e38)) for c in cells], pa.float32()
            )
    if kind == "dictionary":  # pandas takes 0 and -0 for one category, and refuses it twice
        return pa.array([None if c is None else c + 0.0 for c in cells], pa.float64()).dictionary_encode()
    return pa.array(cells, pa.float64())


@st.composite
def columns(draw: st.DrawFn, n: int, column: Any, rng: np.random.Generator, *, wild: bool) -> pa.Array:
    if isinstance(column, Numeric) and not (wild and draw(st.integers(0, 5)) == 5):
        return draw(numbers(n, column, rng, wild=wild))
    if isinstance(column, Categorical) and column.hierarchy is not None and not wild:
        leaves = [row[0] for row in column.hierarchy.rows]
        return pa.array([leaves[code] for code in rng.integers(0, len(leaves), n)], pa.string())
    if wild and draw(st.booleans()):
        return pa.array(rng.integers(-5, 5, n))
    mark = KEPT if isinstance(column, Keep) else HIDDEN  # an individual's name has no column in the schema
    odd = draw(TEXTS)
    texts: list[str | None] = [f"{mark} {odd}{code}" for code in rng.integers(0, max(1, n), n)]
    if n and (wild or isinstance(column, Keep)) and draw(st.booleans()):
        texts[0] = None
    return pa.array(texts, pa.string())


@st.composite
def tables(draw: st.DrawFn, schema: Schema, *, wild: bool = False) -> pa.Table:
    """A few records; each of them many times where combinations must be frequent to survive (SafePub)."""
    n = draw(st.integers(0, 3)) if wild else draw(st.integers(5, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made = {name: draw(columns(n, schema.columns.get(name), rng, wild=wild)) for name in schema.names}
    if wild and draw(st.integers(0, 5)) == 5:
        made["one too many"] = pa.array(range(n))
    table = pa.table(made)
    truth = any(isinstance(column, Categorical) for column in schema.columns.values())
    return table.take(pa.array(np.tile(np.arange(n), 30))) if truth and draw(st.booleans()) else table


def as_kind(table: pa.Table, kind: str) -> Any:
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        return pl.from_arrow(table)
    if kind == "numpy":
        plain = table.to_pandas()
        return plain.to_numpy(float) if all(t.kind in "fiu" for t in plain.dtypes) else plain.to_numpy()
    return table


def to_arrow(frame: Any, names: list[str]) -> pa.Table:
    if isinstance(frame, np.ndarray):
        return pa.table({name: frame[:, j] for j, name in enumerate(names)})
    return (
        pa.Table.from_pandas(frame, preserve_index=False)
        if isinstance(frame, pd.DataFrame)
        else pa.table(frame)
    )


def check_refusal(message: str, table: pa.Table, schema: Schema | None) -> None:
    """One line, and no value of the table in it; bounds may be, they are public."""
    assert message
    assert "\n" not in message
    assert HIDDEN not in message
    assert KEPT not in message
    numeric = [c for c in schema.columns.values() if isinstance(c, Numeric)] if schema else []
    public = {str(bound) for column in numeric for bound in (column.lower, column.upper)}
    for column in table.columns:
        for value in column.unique().to_pylist():
            if isinstance(value, (float, Decimal)) and len(str(value)) > 7 and str(value) not in public:
                assert str(value) not in message


def shown(value: object) -> str:
    """A number as a float: a numpy array has one type for all its columns."""
    return str(float(value) if isinstance(value, (int, float, Decimal)) else value)


def check_release(release: Release, table: pa.Table, schema: Schema, made: Method, order: Any) -> None:
    check_certificate(release, table, schema, made, order)
    json.loads(release.evaluation.to_json())
    if getattr(made, "output", "records") == "moments":
        assert np.isfinite(to_arrow(release.table, []).column("value").to_numpy()).all()
        return
    names = [name for name in table.column_names if name in schema.released]
    arrow = to_arrow(release.table, names)
    assert arrow.column_names == names
    if made.name == "SAFEPUB":
        check_truth(arrow, release, schema)
        return
    drops = any(isinstance(c, Numeric) and c.missing == "drop" for c in schema.columns.values())
    if schema.individual is None and not drops:
        assert arrow.num_rows == table.num_rows
    assert 1 <= arrow.num_rows <= table.num_rows
    for name in names:
        column = schema.columns[name]
        released = arrow.column(name)
        if isinstance(column, Numeric):
            values = released.cast(pa.float64(), safe=False).to_numpy()
            assert np.isfinite(values).all()
            # float32 columns are rounded to float32, integers may lie at the nearest integer to a bound.
            slack = 1e-6 * max(abs(float(column.lower)), abs(float(column.upper)))
            assert (values >= float(column.lower) - slack).all()
            assert (values <= float(column.upper) + slack).all()
        elif isinstance(column, Keep) and arrow.num_rows == table.num_rows:
            assert Counter(map(shown, released.to_pylist())) == Counter(
                map(shown, table.column(name).to_pylist())
            )
    if type(made) is Microaggregation and made.groups == "together" and made.moments.order == 0:
        k = getattr(made.partition, "k", 1)
        rows = Counter(zip(*(arrow.column(name).to_pylist() for name in schema.numeric), strict=True))
        assert min(rows.values()) >= k


def check_truth(arrow: pa.Table, release: Release, schema: Schema) -> None:
    """Every record is a combination of the levels' values that occurs at least k times."""
    said = release.certificate.parameters
    for name in arrow.column_names:
        hierarchy = schema.columns[name].hierarchy  # type: ignore[union-attr]
        level = hierarchy.generalise(np.arange(hierarchy.leaves), said["levels"][name])
        assert set(arrow.column(name).to_pylist()) <= set(level.tolist())
    rows = Counter(zip(*(arrow.column(name).to_pylist() for name in arrow.column_names), strict=True))
    assert min(rows.values(), default=said["k"]) >= said["k"]


def check_certificate(release: Release, table: pa.Table, schema: Schema, made: Method, order: Any) -> None:
    certificate = release.certificate
    said = json.loads(certificate.to_json())
    json.dumps(said, allow_nan=False)
    assert pickle.loads(pickle.dumps(certificate)) == certificate
    from_data = any(isinstance(c, Numeric) and c.from_data for c in schema.columns.values())
    assert said["private"] is (made.sound and not from_data)
    if said["budget"]:
        assert sum(map(Fraction, said["budget"].values())) == certificate.epsilon
    if isinstance(made, MicroaggregatedDP):
        assert all(column.public for column in schema.columns.values() if isinstance(column, Keep))
    if said["scope"] == "unconditional" and said["guarantee"] == "dp" and order == "aligned":
        assert made.name == "LAPLACE"
    # Public facts alone give the same, so nothing of the data is in it; SafePub's levels were chosen privately.
    n = table.num_rows if getattr(made, "output", "") == "moments" else release._arrow.num_rows
    again = certify(made, schema, order, n, seeded=False).to_dict()
    if made.name == "SAFEPUB":
        again["parameters"]["levels"] = said["parameters"]["levels"]
    assert json.loads(json.dumps(again)) == said


def check_saved(target: Path) -> None:
    """The folder is whole, and what may be published hides what it should."""
    assert sorted(path.name for path in target.iterdir()) == ["curator", "public"]
    assert sorted(path.name for path in (target / "curator").iterdir()) == ["evaluation.json", "report.html"]
    certificate, data = sorted((target / "public").iterdir())
    assert certificate.name == "certificate.json"
    said = certificate.read_text(encoding="utf-8")
    assert HIDDEN not in said
    assert KEPT not in said
    written = open_file(data).read()
    assert HIDDEN not in str(written.to_pydict())
    assert HIDDEN not in str(written.schema.metadata)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(str(key))} = {toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, (bool, int, float, np.integer)):
        return str(value).lower()
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def write_spec(folder: Path, schema: Schema, recipe: tuple[str, dict[str, Any]], order: str) -> Path:
    """The schema and the method as a user would write them down."""
    described = {}
    for number, (name, column) in enumerate(schema.columns.items()):
        entry = {"type": type(column).__name__.lower(), **vars(column)}
        if (hierarchy := entry.pop("hierarchy", None)) is not None:
            with (folder / f"{number}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, delimiter=";").writerows(hierarchy.rows)
            entry["hierarchy"] = f"{number}.csv"
        described[name] = entry
    chosen = {"name": recipe[0]} | {key: value for key, value in recipe[1].items() if value is not None}
    document = {"columns": described, "method": chosen, "output": {"order": order}}
    if schema.individual is not None:
        document["individual"] = {"column": schema.individual, "max_records": schema.max_records}
    path = folder / "spec.toml"
    path.write_text("".join(f"{name} = {toml(part)}\n" for name, part in document.items()), encoding="utf-8")
    return path


class Curator(RuleBasedStateMachine):
    """A curator releases a table again and again on one budget, saves some, and is sometimes refused."""

    EPSILON, DELTA = Fraction(20), Fraction(1, 2)

    @initialize(data=st.data(), with_ledger=st.sampled_from([False, False, True]))
    def open_account(self, data: st.DataObject, with_ledger: bool) -> None:
        # Reports are written without the plotting library, which takes longer than all the rest.
        self.quick = patch("plotly.offline.get_plotlyjs", return_value="")
        self.quick.start()
        self.folder = Path(tempfile.mkdtemp())
        self.ledger = None
        if with_ledger:
            self.ledger = Ledger.create(self.folder / "ledger.sqlite", "people", self.EPSILON, self.DELTA)
        self.spent = Fraction(0)
        self.states: list[str] = []
        self.unsaved: list[tuple[int, Release]] = []
        self.there = {path.name for path in self.folder.iterdir()}
        self.purpose = data.draw(
            st.sampled_from(["noise", "noise", "averages", "truth", "none"]), label="purpose"
        )
        try:
            self.schema = data.draw(schemas(self.purpose), label="schema")
        except DpmicroError as error:
            event("schema refused")
            check_refusal(str(error), pa.table({}), None)
            self.schema = Schema({"a": Numeric(0, 1)})
        self.table = data.draw(tables(self.schema, wild=self.purpose == "none"), label="table")
        numeric = len(self.schema.numeric) == len(self.schema.names)
        kinds = ["arrow", "pandas", "polars", *(["numpy"] if numeric or self.purpose == "none" else [])]
        self.kind = data.draw(st.sampled_from(kinds), label="kind")
        self.given = as_kind(self.table, self.kind)
        self.before = pickle.dumps(self.given) if self.kind != "arrow" else None

    def note(self, name: str, made: Method | None, outcome: str) -> int:
        """Account for a try; returns the number of its entry, if there is one."""
        event(f"{name} {outcome}")
        if self.ledger is None or len(self.ledger.history()) == len(self.states):
            return -1
        self.states.append("refused" if outcome == "refused" else "reserved")
        if outcome != "refused" and made is not None and (budget := made.budget(self.schema)) is not None:
            # SafePub protects the adding of a record; replacing one costs twice as much.
            self.spent += budget.epsilon * (2 if made.neighbours == "add-remove-one" else 1)
        return len(self.states) - 1

    @rule(
        data=st.data(),
        order=st.sampled_from(["shuffled", "shuffled", "aligned"]),
        patience=st.sampled_from([99] * 20 + [*range(8)]),
    )
    def release(self, data: st.DataObject, order: Any, patience: int) -> None:
        """Sometimes Ctrl-C comes in between: what was reserved stays spent, nobody can tell what was seen."""
        recipe = data.draw(recipes(self.purpose), label="method")
        calls = iter(range(patience))

        def progress(station: str, share: float) -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt

        made = None
        try:
            made = method(recipe[0], **recipe[1])
            release = anonymize(
                self.given, self.schema, made, order=order, threads=1, progress=progress, ledger=self.ledger
            )
        except DpmicroError as error:
            check_refusal(str(error), self.table, self.schema)
            self.note(recipe[0], made, "refused")
        except KeyboardInterrupt:
            self.note(recipe[0], made, "interrupted")
        else:
            entry = self.note(recipe[0], made, "released")
            assert made is not None
            check_release(release, self.table, self.schema, made, order)
            self.unsaved.append((entry, release))

    @precondition(lambda self: self.unsaved)
    @rule(
        data=st.data(),
        force=st.booleans(),
        number=st.integers(0, 1),
        fails=st.sampled_from([None, None, *range(4)]),
    )
    def save(self, data: st.DataObject, force: bool, number: int, fails: int | None) -> None:
        entry, release = data.draw(st.sampled_from(self.unsaved))
        target = self.folder / f"out{number}"
        if fails is not None:
            place = [
                "release.write_file",
                "report.write_report",
                "writing._sync",
                "writing._move_into_place",
            ][fails]
            failure = data.draw(
                st.sampled_from([OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), MemoryError()])
            )
            with (
                patch(f"dpmicro_native.{place}", side_effect=failure),
                pytest.raises((type(failure), InputError)),
            ):
                release.save(target, force=force)
            return
        if target.exists() and not force:
            with pytest.raises(InputError, match="exists"):
                release.save(target)
            return
        release.save(target, force=force)
        self.there.add(target.name)
        if entry >= 0:
            self.states[entry] = "committed"
        written = json.loads((target / "public" / "certificate.json").read_text(encoding="utf-8"))
        assert written == json.loads(release.certificate.to_json())
        check_saved(target)

    @rule(
        data=st.data(),
        suffix=st.sampled_from([".csv", ".csv", ".tsv", ".csv.gz", ".parquet", ".feather"]),
        order=st.sampled_from(["shuffled", "shuffled", "aligned"]),
        force=st.sampled_from([True, True, True, False]),
    )
    def command(self, data: st.DataObject, suffix: str, order: str, force: bool) -> None:
        """The same by files: a table, a spec and `dpmicro anonymize`."""
        recipe = data.draw(recipes(self.purpose), label="method")
        target = self.folder / "out2"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = folder / f"table{suffix}"
            write_file(self.table, path, FileFormat.of(path), {})
            spec = write_spec(folder, self.schema, recipe, order)
            more = ["--force"] * force + ([] if self.ledger is None else ["--ledger", str(self.ledger.path)])
            with redirect_stderr(io.StringIO()) as err:
                code = main(["anonymize", str(path), "--spec", str(spec), "--out", str(target), "-q", *more])
        lines = err.getvalue().splitlines()
        if code == 0:
            assert all(line.startswith("warning: ") and "NOT private" in line for line in lines)
            made = method(recipe[0], **{key: value for key, value in recipe[1].items() if value is not None})
            entry = self.note(recipe[0], made, "released")
            if entry >= 0:
                self.states[entry] = "committed"
            self.there.add(target.name)
            check_saved(target)
        else:
            assert code == 2, lines
            assert len(lines) == 1
            assert lines[0].startswith("error: ")
            check_refusal(lines[0], self.table, self.schema)
            self.note(recipe[0], None, "refused")

    @invariant()
    def account_adds_up(self) -> None:
        if getattr(self, "ledger", None) is not None:
            status = self.ledger.status()
            assert status.epsilon_spent == self.spent <= self.EPSILON
            assert status.delta_spent <= self.DELTA
            assert [entry.state for entry in self.ledger.history()] == self.states

    @invariant()
    def nothing_half_done(self) -> None:
        if hasattr(self, "there"):
            assert {path.name for path in self.folder.iterdir()} == self.there

    def teardown(self) -> None:
        if hasattr(self, "before"):
            assert self.before is None or pickle.dumps(self.given) == self.before
        if hasattr(self, "folder"):
            self.quick.stop()
            shutil.rmtree(self.folder)


Curator.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=4,
    derandomize=False,  # in CI too, so that the two halves and every run differ
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCurator = Curator.TestCase


def test_a_polars_column_with_a_nul_is_refused_before_it_ends_the_process() -> None:
    table = pl.DataFrame({"a\0b": [1.0, 2.0]})
    with pytest.raises(InputError, match="NUL"):
        anonymize(table, Schema({"a": Numeric(0, 9)}), method("IR", k=1))


def test_a_name_with_a_nul_is_refused_as_arrow_would_cut_it_off() -> None:
    with pytest.raises(InputError, match="NUL"):
        Schema({"\0": Numeric(0, 1)})
    with pytest.raises(InputError, match="NUL"):
        Schema({"a": Numeric(0, 1)}, individual="who\0")


def test_a_single_column_may_be_called_as_it_likes(tmp_path: Path) -> None:
    """A name with another delimiter once misled the reader of the release."""
    table = pa.table({"pay; in EUR": [1.0, 2.0]})
    anonymize(table, Schema({"pay; in EUR": Numeric(0, 9)}), method("IR", k=1)).save(tmp_path / "out")
    assert open_file(tmp_path / "out" / "public" / "data.csv").read().column_names == ["pay; in EUR"]


def test_equal_eigenvalues_have_a_sensitivity() -> None:
    """A gap of -0 between them once gave NaN; records that occur several times have such gaps."""
    assert (
        eigenvector_sensitivity(0.1, [-0.0, 0.0], 3).tolist()
        == eigenvector_sensitivity(0.1, [0, 0], 3).tolist()
    )
    rng = np.random.default_rng(8)
    table = np.column_stack([rng.choice(rng.random(4), 25) for _ in range(3)])
    anonymize(table, Schema({name: Numeric(0, 1) for name in "abc"}), method("CM-14", epsilon=1, k=2))


def test_an_epsilon_beyond_all_reason_can_be_reported(tmp_path: Path) -> None:
    """e^epsilon is then no float."""
    table = pa.table({"a": [1.0, 2.0]})
    release = anonymize(table, Schema({"a": Numeric(0, 9)}), method("LAPLACE", epsilon=1e300))
    release.save(tmp_path / "out")
    with pytest.raises(BudgetError, match="finite"):
        method("LAPLACE", epsilon=10**400)


@pytest.mark.parametrize("wrong", ["false", "", 1, None, []])
def test_a_flag_is_true_or_false(wrong: Any) -> None:
    """Any text is true to Python: public = "false" once made a raw column public."""
    with pytest.raises(InputError, match="true or false"):
        Keep(public=wrong)
    with pytest.raises(InputError, match="true or false"):
        Numeric(0, 1, from_data=wrong)
    with pytest.raises(InputError, match="true or false"):
        method("SAFEPUB", epsilon=1, delta=0.1, as_published=wrong)


@pytest.mark.parametrize("threads", [-1, "x", 2.5, None, 10**30, True])
def test_threads_are_a_number(threads: Any) -> None:
    with pytest.raises(InputError, match="threads must be"):
        anonymize(np.ones((2, 1)), Schema({"a": Numeric(0, 1)}), method("IR", k=1), threads=threads)


def test_polars_texts_can_be_kept() -> None:
    """polars hands its texts out as views, of which Arrow cannot take rows."""
    table = pl.DataFrame({"a": [1.0, 2.0, None, 3.0], "city": ["x", None, "y", "z"]})
    schema = Schema({"a": Numeric(0, 9, missing="drop"), "city": Keep()})
    release = anonymize(table, schema, method("IR", k=1))
    assert sorted(release.table["city"].to_list(), key=str) == [None, "x", "z"]
