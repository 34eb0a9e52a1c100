"""Random schemas, methods and tables through the whole pipeline: a sound release or a clean refusal.

``DPMICRO_EXAMPLES`` sets the number of examples (CI: 10000).
"""

from __future__ import annotations

import inspect
import json
import math
import os
import pickle
import shutil
import tempfile
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dpmicro_native import (
    Categorical,
    DpmicroError,
    Drop,
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
from dpmicro_native.ledger import Ledger
from dpmicro_native.methods import catalogue

EXAMPLES = int(os.environ.get("DPMICRO_EXAMPLES", "300"))
# Refusals are part of what is tested, so many examples end early.
FUZZ = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
    unique=True,
)
ODD_FLOATS = st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1.0, 123456.789, 1e15, -1e15, 1.7e308, -1.7e308])
BOUND = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6), ODD_FLOATS, st.just(np.float64(3.5)))


@st.composite
def numeric_columns(draw: st.DrawFn) -> Numeric:
    lower, upper = sorted((draw(BOUND), draw(BOUND)))
    missing = draw(st.sampled_from(["refuse", "refuse", "midpoint", "drop"]))
    return Numeric(lower, upper, missing=missing, from_data=draw(st.booleans()))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    kinds = st.one_of(
        numeric_columns(),
        numeric_columns(),
        numeric_columns(),
        st.builds(Keep, public=st.booleans()),
        st.just(Drop()),
        st.just(Categorical()),
    )
    names = draw(NAMES)
    individual = draw(st.sampled_from([None, None, "whose record"]))
    most = draw(st.integers(1, 4)) if individual else 1
    return Schema({name: draw(kinds) for name in names}, individual=individual, max_records=most)


EPSILON = st.one_of(
    st.sampled_from([1, 0.1, Fraction(1, 3), "2/7", 1e-3, 1e6, Decimal("0.5"), np.float64(2.0)]),
    st.sampled_from([0, -1, math.nan, math.inf, "x", None, True, 1e-300, 1e300, "1/0", ""]),
)
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "epsilon": EPSILON,
    "delta": st.sampled_from([1e-3, 1e-6, 0, 1, "x"]),
    "k": st.one_of(st.integers(1, 8), st.sampled_from([0, -3, 10**9, 2.5, "5", True, np.int64(3)])),
    "min_size": st.sampled_from([1, 2, 5, 10**6, 0]),
    "gamma": st.sampled_from([0.2, 0, 1.5, -1, math.nan]),
    "groups": st.sampled_from(["together", "each", "apart", [["a"], ["b"]], [[]]]),
    "split": st.sampled_from(["even", "width", "odd", {"a": 1}]),
    "norm": st.sampled_from(["unit", "raw", "round"]),
}


@st.composite
def recipes(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A method's name and parameters, good or bad."""
    name = draw(st.sampled_from(sorted(catalogue())))
    chosen = {}
    for key, parameter in inspect.signature(catalogue()[name].build).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        if key in PARAMETERS and (required or draw(st.booleans())):
            chosen[key] = draw(PARAMETERS[key])
    return name, chosen


@st.composite
def columns(draw: st.DrawFn, n: int, column: Any) -> pa.Array:
    exact = st.lists
    if isinstance(column, Numeric) and draw(st.integers(0, 9)):
        inside = st.floats(float(column.lower), float(column.upper), allow_nan=False)
        kind = draw(st.sampled_from(["float", "float", "integer", "float32", "decimal", "odd", "dictionary"]))
        if kind == "integer":
            values = draw(exact(st.integers(-(2**62), 2**62) | st.integers(-9, 9), min_size=n, max_size=n))
            return pa.array(values, pa.int64())
        if kind == "decimal":
            cents = draw(exact(st.integers(-(10**6), 10**6), min_size=n, max_size=n))
            return pa.array([Decimal(cent).scaleb(-2) for cent in cents], pa.decimal128(12, 2))
        cells = inside | st.floats(-1e7, 1e7) if kind != "odd" else st.none() | st.floats()
        drawn = draw(exact(cells, min_size=n, max_size=n))
        if kind == "float32":
            return pa.array(np.clip(np.array(drawn, float), -3e38, 3e38).astype(np.float32))
        if kind == "dictionary":  # pandas takes 0 and -0 for one category, and refuses it twice
            return pa.array([value + 0.0 for value in drawn], pa.float64()).dictionary_encode()
        return pa.array(drawn, pa.float64())
    texts = st.text(max_size=4).map(lambda text: f"secret{text}")
    cells = st.one_of(st.none(), texts) if draw(st.booleans()) else st.integers(-5, 5)
    drawn = draw(exact(cells, min_size=n, max_size=n))
    return pa.array(drawn) if n else pa.array([], pa.string())


@st.composite
def tables(draw: st.DrawFn, schema: Schema) -> pa.Table:
    n = draw(st.one_of(st.integers(1, 30), st.integers(0, 3)))
    made = {name: draw(columns(n, schema.columns.get(name))) for name in schema.names}
    if not draw(st.integers(0, 20)):
        made["one too many"] = pa.array(range(n))
    return pa.table(made)


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


def check_refusal(error: DpmicroError, table: pa.Table) -> None:
    message = str(error)
    assert message
    assert "\n" not in message
    assert "secret" not in message
    for column in table.columns:
        for value in column.to_pylist():
            if isinstance(value, (float, Decimal)) and len(str(value)) > 7:
                assert str(value) not in message


def shown(value: object) -> str:
    """A number as a float: a numpy array has one type for all its columns."""
    return str(float(value) if isinstance(value, (int, float, Decimal)) else value)


def check_release(release: Release, table: pa.Table, schema: Schema, made: Method, order: str) -> None:
    names = [name for name in table.column_names if name in schema.released]
    arrow = to_arrow(release.table, names)
    assert arrow.column_names == names
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
        elif isinstance(column, Keep) and order == "aligned" and arrow.num_rows == table.num_rows:
            assert Counter(map(shown, released.to_pylist())) == Counter(
                map(shown, table.column(name).to_pylist())
            )
    check_certificate(release, schema, made, order)
    if type(made) is Microaggregation and made.groups == "together" and made.moments.order == 0:
        k = getattr(made.partition, "k", 1)
        rows = Counter(zip(*(arrow.column(name).to_pylist() for name in schema.numeric), strict=True))
        assert min(rows.values()) >= k


def test_a_polars_column_with_a_nul_is_refused_before_it_ends_the_process() -> None:
    table = pl.DataFrame({"a\0b": [1.0, 2.0]})
    with pytest.raises(InputError, match="NUL"):
        anonymize(table, Schema({"a": Numeric(0, 9)}), method("IR", k=1))


def test_a_name_with_a_nul_is_refused_as_arrow_would_cut_it_off() -> None:
    with pytest.raises(InputError, match="NUL"):
        Schema({"\0": Numeric(0, 1)})
    with pytest.raises(InputError, match="NUL"):
        Schema({"a": Numeric(0, 1)}, individual="who\0")


def test_polars_texts_can_be_kept() -> None:
    """polars hands its texts out as views, of which Arrow cannot take rows."""
    table = pl.DataFrame({"a": [1.0, 2.0, None, 3.0], "city": ["x", None, "y", "z"]})
    schema = Schema({"a": Numeric(0, 9, missing="drop"), "city": Keep()})
    release = anonymize(table, schema, method("IR", k=1))
    assert sorted(release.table["city"].to_list(), key=str) == [None, "x", "z"]


def check_certificate(release: Release, schema: Schema, made: Method, order: str) -> None:
    certificate = release.certificate
    said = json.loads(certificate.to_json())
    json.dumps(said, allow_nan=False)
    assert pickle.loads(pickle.dumps(certificate)) == certificate
    assert said["guarantee"] == made.guarantee
    from_data = any(isinstance(c, Numeric) and c.from_data for c in schema.columns.values())
    assert said["private"] is not from_data
    if isinstance(made, MicroaggregatedDP):
        assert sum(map(Fraction, said["budget"].values())) == made.epsilon
        assert all(column.public for column in schema.columns.values() if isinstance(column, Keep))
    if said["scope"] == "unconditional" and said["guarantee"] == "dp" and order == "aligned":
        assert made.name == "LAPLACE"
    assert "secret" not in certificate.to_json().replace(*["whose record"] * 2)
    json.loads(release.evaluation.to_json())


@FUZZ
@given(st.data())
def test_a_sound_release_or_a_clean_refusal(data: st.DataObject) -> None:
    table = pa.table({})
    try:
        schema = data.draw(schemas(), label="schema")
        name, chosen = data.draw(recipes(), label="method")
        made = method(name, **chosen)
        table = data.draw(tables(schema), label="table")
        kind = data.draw(st.sampled_from(["arrow", "pandas", "polars", "numpy"]), label="kind")
        order = data.draw(st.sampled_from(["shuffled", "aligned"]), label="order")
        given_table = as_kind(table, kind)
        before = pickle.dumps(given_table) if kind != "arrow" else None
        release = anonymize(given_table, schema, made, order=order, threads=1)
    except DpmicroError as error:
        event(f"refused: {type(error).__name__}")
        check_refusal(error, table)
    else:
        event(f"released: {made.name}")
        check_release(release, table, schema, made, order)
        assert before is None or pickle.dumps(given_table) == before


class Curator(RuleBasedStateMachine):
    """A curator releases a table again and again on one budget, saves some, and is sometimes refused."""

    TOTAL = Fraction(3)
    SCHEMA = Schema({"age": Numeric(0, 100), "pay": Numeric(-5, 5), "note": Drop()})

    @initialize(n=st.integers(1, 25), seed=st.integers(0, 99))
    def open_account(self, n: int, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.ledger = Ledger.create(self.folder / "ledger.sqlite", "people", self.TOTAL)
        rng = np.random.default_rng(seed)
        self.table = pa.table(
            {"age": rng.integers(0, 90, n), "pay": rng.normal(size=n), "note": ["secret"] * n}
        )
        self.spent = Fraction(0)
        self.states: list[str] = []
        self.unsaved: list[tuple[int, Release]] = []
        self.saved = 0

    @rule(recipe=recipes(), order=st.sampled_from(["shuffled", "aligned"]))
    def release(self, recipe: tuple[str, dict[str, Any]], order: Any) -> None:
        try:
            made = method(recipe[0], **recipe[1])
            release = anonymize(self.table, self.SCHEMA, made, order=order, threads=1, ledger=self.ledger)
        except DpmicroError as error:
            check_refusal(error, self.table)
            if len(self.ledger.history()) > len(self.states):
                self.states.append("refused")
            return
        check_release(release, self.table, self.SCHEMA, made, order)
        self.spent += release.certificate.epsilon or 0
        self.unsaved.append((len(self.states), release))
        self.states.append("reserved")

    @rule(data=st.data(), force=st.booleans(), number=st.integers(0, 2))
    def save(self, data: st.DataObject, force: bool, number: int) -> None:
        if not self.unsaved:
            return
        entry, release = data.draw(st.sampled_from(self.unsaved))
        target = self.folder / f"out{number}"
        if target.exists() and not force:
            with pytest.raises(InputError, match="exists"):
                release.save(target)
            return
        release.save(target, force=force)
        self.states[entry] = "committed"
        written = json.loads((target / "public" / "certificate.json").read_text())
        assert written == json.loads(release.certificate.to_json())
        assert "secret" not in (target / "public" / "data.csv").read_text()

    @invariant()
    def account_adds_up(self) -> None:
        if hasattr(self, "ledger"):
            assert self.ledger.status().epsilon_spent == self.spent <= self.TOTAL
            assert [entry.state for entry in self.ledger.history()] == self.states
            assert not list(self.folder.glob(".out*"))  # nothing half written is left behind

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


Curator.TestCase.settings = settings(
    max_examples=max(5, EXAMPLES // 50),
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCurator = Curator.TestCase
