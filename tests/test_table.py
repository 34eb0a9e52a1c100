from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmicro_native import Drop, InputError, Keep, Numeric, Release, Schema, anonymize, method
from dpmicro_native.table import complete_rows, from_unit_cube, read_table, released_column, unit_cube

PEOPLE = {
    "age": [30, 41, 52, 63, 24, 35],
    "pay": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5],
    "city": ["a", "b", "c", "d", "e", "f"],
    "note": ["secret"] * 6,
}
SCHEMA = Schema({"age": Numeric(0, 120), "pay": Numeric(0, 10), "city": Keep(), "note": Drop()})


def release(table: Any, schema: Schema = SCHEMA, **options: Any) -> Release:
    return anonymize(table, schema, method("IR", k=2), **options)


class OnlyCapsule:
    """A foreign frame: nothing but the Arrow PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return self.table.__arrow_c_stream__(requested)


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (pd.DataFrame(PEOPLE), pd.DataFrame),
        (pl.DataFrame(PEOPLE), pl.DataFrame),
        (pa.table(PEOPLE), pa.Table),
        (OnlyCapsule(pa.table(PEOPLE)), pa.Table),
    ],
)
def test_the_kind_of_frame_that_came_in_comes_out(table: Any, kind: type) -> None:
    result = release(table, order="aligned").table
    assert type(result) is kind
    arrow = result if isinstance(result, pa.Table) else pa.table(result)
    assert arrow.column_names == ["age", "pay", "city"]
    assert pa.types.is_integer(arrow.schema.field("age").type)
    assert arrow.column("city").to_pylist() == PEOPLE["city"]
    # IR with k = 2 on sorted pay: means of neighbours.
    assert arrow.column("pay").to_pylist() == pytest.approx([2.0, 2.0, 4.0, 4.0, 6.0, 6.0], abs=1e-8)


def test_integers_stay_integers_and_are_means_of_their_run() -> None:
    result = release(pa.table(PEOPLE), order="aligned").table
    assert result.schema.field("age").type == pa.int64()
    # sorted ages 24 30 | 35 41 | 52 63 -> 27, 38, 57.5 (rounded to even)
    assert result.column("age").to_pylist() == [27, 38, 58, 58, 27, 38]


def test_numpy_takes_its_names_from_the_schema() -> None:
    schema = Schema({"age": Numeric(0, 120), "pay": Numeric(0, 10)})
    X = np.column_stack([PEOPLE["age"], PEOPLE["pay"]])
    result = anonymize(X, schema, method("IR", k=2), order="aligned").table
    assert isinstance(result, np.ndarray)
    assert result.shape == (6, 2)
    assert result[:, 1] == pytest.approx([2, 2, 4, 4, 6, 6], abs=1e-8)
    with pytest.raises(InputError, match="3 columns and the schema 2"):
        anonymize(np.zeros((4, 3)), schema, method("IR", k=2))
    with pytest.raises(InputError, match="2-D"):
        anonymize(np.zeros(4), schema, method("IR", k=2))
    with pytest.raises(InputError, match="must hold numbers"):
        anonymize(np.array([["a", "b"]]), schema, method("IR", k=2))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_paths_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"people{suffix}"
    if suffix == ".csv":
        pyarrow.csv.write_csv(pa.table(PEOPLE), path)
    else:
        pyarrow.parquet.write_table(pa.table(PEOPLE), path)
    made = release(path)
    assert made.table.column_names == ["age", "pay", "city"]
    made.save(tmp_path / "out")
    assert (tmp_path / "out" / "public" / f"data{suffix}").exists()


def test_pandas_and_column_order() -> None:
    frame = pd.DataFrame(PEOPLE)[["note", "pay", "city", "age"]].set_index(pd.Index(list("uvwxyz")))
    assert list(release(frame).table.columns) == ["pay", "city", "age"]


@pytest.mark.parametrize(
    "dtype", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.float32(), pa.float64()]
)
def test_types_are_kept(dtype: pa.DataType) -> None:
    table = pa.table({"age": pa.array(PEOPLE["age"], dtype)})
    made = release(table, Schema({"age": Numeric(0, 120)})).table
    assert made.schema.field("age").type == dtype


def test_an_integer_type_too_small_for_the_bounds_is_widened() -> None:
    table = pa.table({"age": pa.array(PEOPLE["age"], pa.uint8())})
    made = release(table, Schema({"age": Numeric(0, 300)})).table
    assert made.schema.field("age").type == pa.int64()


def test_released_integers_stay_inside_fractional_bounds() -> None:
    column = released_column(np.array([0.4, 0.6, 9.5]), pa.int64(), Numeric(0.4, 9.5))
    assert column.to_pylist() == [1, 1, 9]


def test_values_outside_the_bounds_are_clamped() -> None:
    table = read_table(pa.table({"x": [-5.0, 0.0, 2.5, 99.0]}), Schema({"x": Numeric(0, 5)}))
    assert unit_cube(table, Schema({"x": Numeric(0, 5)}), ["x"])[:, 0].tolist() == [0, 0, 0.5, 1]


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.lists(st.floats(0, 1), min_size=2, max_size=20, unique=True),
)
def test_there_and_back(lower: float, width: float, shares: list[float]) -> None:
    bounds = Numeric(lower, lower + width)
    values = np.clip(lower + np.array(shares) * width, bounds.lower, bounds.upper)
    if len(set(values.tolist())) < 2:
        return
    schema = Schema({"x": bounds})
    U = unit_cube(read_table(pa.table({"x": values}), schema), schema, ["x"])
    assert ((U >= 0) & (U <= 1)).all()
    back = from_unit_cube(U[:, 0], bounds)
    assert ((back >= bounds.lower) & (back <= bounds.upper)).all()
    assert back == pytest.approx(values, abs=1e-9 * max(1, abs(lower), width))


MISSING = {"x": [1.0, None, 3.0, float("nan"), 5.0], "y": [1, 2, 3, 4, 5]}


def test_missing_values_are_refused_by_default_naming_the_column_only() -> None:
    schema = Schema({"x": Numeric(0, 10), "y": Numeric(0, 10)})
    for table in (pa.table(MISSING), pd.DataFrame(MISSING), pl.DataFrame(MISSING)):
        with pytest.raises(InputError, match="column 'x' has missing values"):
            release(table, schema)
    with pytest.raises(InputError, match="column 'x' has missing values"):
        release(np.column_stack([MISSING["x"], MISSING["y"]]).astype(float), schema)


def test_midpoint_fills_with_the_middle_of_the_public_bounds() -> None:
    schema = Schema({"x": Numeric(0, 10, missing="midpoint"), "y": Numeric(0, 10)})
    source = complete_rows(read_table(pa.table(MISSING), schema), schema)
    assert unit_cube(source, schema, ["x"])[:, 0].tolist() == [0.1, 0.5, 0.3, 0.5, 0.5]


def test_drop_leaves_the_records_out() -> None:
    schema = Schema({"x": Numeric(0, 10, missing="drop"), "y": Numeric(0, 10)})
    assert release(pa.table(MISSING), schema).table.num_rows == 3
    with pytest.raises(InputError, match="no record is left"):
        release(pa.table({"x": pa.array([None, None], pa.float64()), "y": [1, 2]}), schema)


def test_dp_methods_refuse_to_drop() -> None:
    schema = Schema({"x": Numeric(0, 10, missing="drop"), "y": Numeric(0, 10)})
    with pytest.raises(InputError, match="use missing='midpoint'"):
        anonymize(pa.table(MISSING), schema, method("LAPLACE", epsilon=1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array(["a", "b"]), "column 'x' is Numeric in the schema but holds text"),
        (pa.array([True, False]), "true/false"),
        (pa.array([1, 2], pa.timestamp("s")), "dates or times"),
        (pa.array([None, None], pa.null()), "missing values"),
        (pa.array([1.0, float("inf")]), "infinite"),
        (pa.array([3.0, 3.0]), "the same value in every record"),
        (pa.array([], pa.float64()), "empty"),
    ],
)
def test_bad_columns_are_refused_without_a_value(values: pa.Array, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        release(pa.table({"x": values}), Schema({"x": Numeric(0, 10)}))
    assert "3.0" not in str(refused.value)


def test_other_objects_are_refused() -> None:
    with pytest.raises(InputError, match="cannot read a table from dict"):
        release({"x": [1, 2]})


def test_mixed_pandas_columns_are_refused_without_a_value() -> None:
    frame = pd.DataFrame(
        {"age": [1, "forty", 3.5], "pay": [1, 2, 3], "city": list("abc"), "note": list("abc")}
    )
    with pytest.raises(InputError) as refused:
        release(frame)
    assert "forty" not in str(refused.value)


def test_dictionary_encoded_and_chunked_columns_work() -> None:
    chunked = pa.chunked_array([[1.0, 2.0], [3.0, 4.0, 5.0]])
    encoded = pa.array([1, 2, 3, 4, 5]).dictionary_encode()
    made = release(pa.table({"x": chunked, "y": encoded}), Schema({"x": Numeric(0, 10), "y": Numeric(0, 10)}))
    assert made.table.num_rows == 5
