"""SAFEPUB through the pipeline: what is released, what is claimed, what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

from dpmicro_native import (
    BudgetError,
    Categorical,
    Drop,
    Hierarchy,
    InputError,
    Keep,
    Numeric,
    Schema,
    anonymize,
    method,
    safepub_parameters,
)

SEX = Hierarchy.from_rows([("f", "*"), ("m", "*")])
AGE = Hierarchy.intervals(0, 100, widths=[10, 50])
SCHEMA = Schema({"sex": Categorical(SEX), "age": Numeric(0, 100, hierarchy=AGE), "name": Drop()})


def people(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "age": rng.integers(0, 120, n),
            "name": [f"n{i}" for i in range(n)],
        }
    )


def safepub(**parameters: Any) -> Any:
    return method("SAFEPUB", **({"epsilon": 1, "delta": 1e-4, "steps": 5} | parameters))


def test_released_values_are_true_and_common() -> None:
    table = people()
    release = anonymize(table, SCHEMA, safepub(epsilon=3, epsilon_search=1.5))
    result = release.table
    assert isinstance(result, pd.DataFrame)
    assert list(result.columns) == ["sex", "age"]
    assert 0 < len(result) < len(table)
    k = safepub_parameters(1.5, 1e-4)[1]
    assert release.certificate.parameters["k"] == k
    assert result.value_counts().min() >= k
    levels = release.certificate.parameters["levels"]
    allowed = {
        "sex": set(SEX.generalise([0, 1], levels["sex"])),
        "age": set(AGE.generalise(np.arange(10), levels["age"])),
    }
    for name, labels in allowed.items():
        assert set(result[name]) <= labels


def test_the_certificate_says_what_holds() -> None:
    certificate = json.loads(anonymize(people(), SCHEMA, safepub()).certificate.to_json())
    assert (certificate["guarantee"], certificate["scope"]) == ("dp", "unconditional")
    assert certificate["neighbours"] == "add-remove-one"
    assert (certificate["epsilon"], certificate["delta"]) == (1, 1e-4)
    assert sum(Fraction(share) for share in certificate["budget"].values()) == 1
    assert certificate["private"] is True
    curve = certificate["parameters"]["also_holds"]
    assert curve[0]["epsilon"] == 1
    assert curve[0]["delta"] <= 1e-4
    deltas = [point["delta"] for point in curve]
    assert deltas == sorted(deltas, reverse=True)


def test_the_certificate_holds_no_count_of_records() -> None:
    text = {
        json.dumps(
            {
                key: value
                for key, value in json.loads(
                    anonymize(people(n, seed), SCHEMA, safepub()).certificate.to_json()
                )["parameters"].items()
                if key != "levels"  # part of the private output
            }
        )
        for n, seed in ((3000, 1), (3001, 2), (5000, 3))
    }
    assert len(text) == 1


def test_as_published_claims_less() -> None:
    certificate = anonymize(people(), SCHEMA, safepub(as_published=True)).certificate
    assert certificate.guarantee == "k-anonymity"
    assert certificate.private is False
    assert certificate.epsilon is None
    assert any("not differentially private" in sentence for sentence in certificate.assumptions)


def test_evaluation_and_saving(tmp_path: Path) -> None:
    release = anonymize(people(), SCHEMA, safepub(epsilon=3, epsilon_search=2))
    assert release.evaluation.records == 4000
    assert release.evaluation.records_released == len(release.table)
    assert release.evaluation.smallest_class is not None
    assert all(0 <= share <= 1 for share in release.evaluation.generality.values())
    release.save(tmp_path / "out")
    assert pyarrow.csv.read_csv(tmp_path / "out" / "public" / "data.csv").num_rows == len(release.table)


def test_a_table_too_small_gives_an_empty_release_and_saves(tmp_path: Path) -> None:
    release = anonymize(people(20), SCHEMA, safepub())
    assert len(release.table) == 0
    assert list(release.table.columns) == ["sex", "age"]
    release.save(tmp_path / "out")


def test_numbers_are_clamped_and_filled() -> None:
    schema = Schema({"age": Numeric(0, 100, missing="midpoint", hierarchy=AGE)})
    table = pa.table({"age": pa.array([None, -5.0, 250.0] * 500)})
    release = anonymize(table, schema, safepub(epsilon=5, epsilon_search=3))
    assert set(release.table.column("age").to_pylist()) <= {label for row in AGE.rows for label in row}


def test_missing_numbers_can_be_dropped_since_neighbours_add_or_remove() -> None:
    schema = Schema({"age": Numeric(0, 100, missing="drop", hierarchy=AGE)})
    table = pa.table({"age": pa.array([None, 5.0, 25.0] * 500)})
    assert anonymize(table, schema, safepub()).certificate.private


def test_the_classification_score_needs_its_column() -> None:
    made = safepub(score="classification", class_column="sex")
    levels = anonymize(people(), SCHEMA, made).certificate.parameters["levels"]
    assert levels["sex"] == 0  # never generalised
    with pytest.raises(InputError, match="needs a class_column"):
        safepub(score="classification")
    with pytest.raises(InputError, match="class_column = 'name' is not"):
        anonymize(people(), SCHEMA, safepub(score="classification", class_column="name"))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (Schema({"sex": Categorical(), "age": Drop(), "name": Drop()}), "column 'sex' needs a hierarchy"),
        (
            Schema({"sex": Categorical(SEX), "age": Numeric(0, 9), "name": Drop()}),
            "column 'age' needs a hierarchy",
        ),
        (
            Schema({"sex": Categorical(SEX), "age": Drop(), "name": Keep(public=True)}),
            "tells who is in the sample",
        ),
        (Schema({"sex": Drop(), "age": Drop(), "name": Drop()}), "at least one column with a hierarchy"),
        (
            Schema({"sex": Categorical(SEX), "age": Drop()}, individual="name"),
            "one record per individual",
        ),
    ],
)
def test_schemas_that_cannot_work_are_refused(schema: Schema, message: str) -> None:
    with pytest.raises(InputError, match=message):
        anonymize(people(), schema, safepub())


def test_values_that_the_hierarchy_misses_are_an_error_naming_the_column_only() -> None:
    table = people()
    table.loc[7, "sex"] = "undisclosed"
    with pytest.raises(
        InputError, match="column 'sex' has values that its hierarchy does not list"
    ) as refused:
        anonymize(table, SCHEMA, safepub())
    assert "undisclosed" not in str(refused.value)
    table.loc[7, "sex"] = None
    with pytest.raises(InputError, match="column 'sex' has missing values"):
        anonymize(table, SCHEMA, safepub())


def test_bad_parameters_are_refused() -> None:
    for wrong in ({"epsilon": 0}, {"delta": 0}, {"delta": 1}, {"epsilon_search": 1}, {"epsilon": 99}):
        with pytest.raises(BudgetError):
            safepub(**wrong)
    for wrong in ({"steps": 0}, {"score": "beauty"}):
        with pytest.raises(InputError):
            safepub(**wrong)
    with pytest.raises(InputError, match="random order"):
        anonymize(people(), SCHEMA, safepub(), order="aligned")
