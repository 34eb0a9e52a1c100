from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from pathlib import Path

import pytest

from dpmicro_native import Categorical, Drop, InputError, Keep, Numeric, Schema


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (None, 1, "lower bound must be a finite number"),
        (0, None, "upper bound must be a finite number"),
        (0, float("inf"), "upper bound must be a finite number"),
        (float("nan"), 1, "lower bound must be a finite number"),
        (True, 3, "lower bound must be a finite number"),
        ("0", 3, "lower bound must be a finite number"),
        (1, 0, "inverted or equal"),
        (2, 2, "inverted or equal"),
        (-1.7e308, 1.7e308, "too far apart"),
    ],
)
def test_bounds_are_refused_with_a_reason(lower: float, upper: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Numeric(lower, upper)


def test_width_is_what_was_written() -> None:
    assert Numeric(0, 0.1).width == Fraction(1, 10)
    assert Numeric(-1.5, 2).width == Fraction(7, 2)


def test_unknown_missing_policy_is_refused() -> None:
    with pytest.raises(InputError, match="'refuse', 'midpoint' or 'drop'"):
        Numeric(0, 1, missing="mean")  # type: ignore[arg-type]


def test_a_schema_needs_columns_of_known_kinds() -> None:
    with pytest.raises(InputError, match="at least one column"):
        Schema({})
    with pytest.raises(InputError, match="column 'age' must be"):
        Schema({"age": (0, 120)})  # type: ignore[dict-item]


def test_match_names_the_column_and_the_remedy() -> None:
    schema = Schema({"income": Numeric(0, 1), "note": Drop()})
    schema.match(["note", "income"])
    with pytest.raises(InputError, match="no column 'income'; did you mean 'incme'"):
        schema.match(["incme", "note"])
    with pytest.raises(InputError, match="column 'city' of the table is not in the schema"):
        schema.match(["income", "note", "city"])
    with pytest.raises(InputError, match="two columns named 'note'"):
        schema.match(["income", "note", "note"])


def test_the_individual_is_named_once_and_bounded() -> None:
    columns = {"x": Numeric(0, 1)}
    assert Schema(columns, individual="id", max_records=3).names == ("x", "id")
    with pytest.raises(InputError, match="never released"):
        Schema({**columns, "id": Drop()}, individual="id")
    with pytest.raises(InputError, match="max_records needs individual"):
        Schema(columns, max_records=2)
    with pytest.raises(InputError, match="at least 1"):
        Schema(columns, individual="id", max_records=0)


def test_a_schema_cannot_be_changed_and_can_be_sent_to_another_process() -> None:
    columns = {"x": Numeric(0, 1), "y": Keep(public=True)}
    schema = Schema(columns)
    columns["z"] = Numeric(0, 1)
    assert schema.released == ("x", "y")
    with pytest.raises(TypeError):
        schema.columns["x"] = Drop()  # type: ignore[index]
    assert pickle.loads(pickle.dumps(schema)) == schema == copy.deepcopy(schema)


SPEC = """
[columns]
age = {type = "numeric", lower = 0, upper = 120, missing = "midpoint"}
sex = {type = "categorical"}
note = {type = "drop"}
city = {type = "keep", public = true}

[individual]
column = "person"
max_records = 2
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "spec.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_from_toml(tmp_path: Path) -> None:
    assert Schema.from_toml(write(tmp_path, SPEC)) == Schema(
        {
            "age": Numeric(0, 120, missing="midpoint"),
            "sex": Categorical(),
            "note": Drop(),
            "city": Keep(public=True),
        },
        individual="person",
        max_records=2,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no \[columns\]"),
        ("[columns", "not valid TOML"),
        ("[colums]\nx = {type = 'drop'}", "unknown key 'colums'; did you mean 'columns'"),
        ("[columns]\nx = 3", "column 'x' needs a type"),
        ("[columns]\nx = {type = 'numerical'}", "unknown type 'numerical'; did you mean 'numeric'"),
        ("[columns]\nx = {type = 'numeric'}", "needs lower and upper"),
        (
            "[columns]\nx = {type = 'numeric', lower = 1, upper = 0}",
            "column 'x': bounds 1 and 0 are inverted",
        ),
        ("[columns]\nx = {type = 'numeric', lower = 0, uper = 1}", "did you mean 'upper'"),
        ("[columns]\nx = {type = 'drop'}\n[individual]\ncolum = 'id'", "did you mean 'column'"),
    ],
)
def test_a_bad_spec_is_refused_with_the_place_and_the_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Schema.from_toml(write(tmp_path, text))


def test_a_missing_or_unreadable_spec_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        Schema.from_toml(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(InputError, match="not UTF-8"):
        Schema.from_toml(tmp_path / "latin.toml")
