"""The pipeline end to end: what is released, what is claimed, and whether the claim can hold."""

from __future__ import annotations

import itertools
import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmicro_native import (
    BudgetError,
    Categorical,
    InputError,
    Keep,
    Method,
    Numeric,
    Schema,
    anonymize,
    method,
    sse,
    testing,
)
from dpmicro_native.mask import cluster_sums
from dpmicro_native.methods import MicroaggregatedDP, catalogue, worst_case_cluster_size
from dpmicro_native.partition import IR, MDAV, Insensitive, Optimal, Partition, Singletons
from dpmicro_native.release import GRID_BITS
from permissions import is_private

CENSUS = ("FICA", "FEDTAX", "INTVAL", "POTHVAL")
NAMES = ("a", "b", "c")
CUBE = Schema({name: Numeric(0, 1) for name in NAMES})


def cube(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, d))


def read_columns(path: Path, names: tuple[str, ...]) -> np.ndarray:
    import pandas as pd

    return pd.read_csv(path)[list(names)].to_numpy(float)


def bounded_by_data(X: np.ndarray, names: tuple[str, ...], lower: Any = 0.0) -> Schema:
    """The papers' bounds [0, 1.5 max]; they read the data, and say so."""
    return Schema({name: Numeric(lower, 1.5 * X[:, j].max(), from_data=True) for j, name in enumerate(names)})


ALL_DP = ["LAPLACE", "MDAV_DP", "MDAV_IR_DP_1", "MDAV_IR_DP_2", "OPT_DP_1", "OPT_DP_2", "INS_DP", "IR_DP"]


def dp_method(name: str, epsilon: Any = 1) -> Method:
    return method(name, epsilon=epsilon, **({"k": 5} if name == "INS_DP" else {}))


# What is released


@pytest.mark.parametrize("name", ALL_DP)
def test_every_method_releases_as_many_records_inside_the_bounds(name: str) -> None:
    schema = Schema({"a": Numeric(-3, 5), "b": Numeric(10, 11), "c": Numeric(0, 1e6)})
    X = cube(50) * [8, 1, 1e6] + [-3, 10, 0]
    result = anonymize(X, schema, dp_method(name)).table
    assert result.shape == X.shape
    for j, column in enumerate(schema.columns):
        assert result[:, j].min() >= schema.bounds(column).lower
        assert result[:, j].max() <= schema.bounds(column).upper


def test_one_draw_per_cluster_and_attribute() -> None:
    result = anonymize(cube(60), CUBE, method("MDAV_DP", epsilon=1, k=10)).table
    assert len(np.unique(result, axis=0)) == 6
    result = anonymize(cube(60), CUBE, method("IR_DP", epsilon=5, k=10), order="aligned").table
    assert [len(np.unique(result[:, j])) for j in range(3)] == pytest.approx(
        [6, 6, 6], abs=2
    )  # clipping may merge


def test_standalone_methods_are_exact_means() -> None:
    X = cube(40)
    for made in (method("MDAV", k=4), method("VMDAV", k=4, gamma=0.2), method("PCL", k=4)):
        result = anonymize(X, CUBE, made, order="aligned").table
        rows, inverse, sizes = np.unique(result, axis=0, return_inverse=True, return_counts=True)
        assert sizes.min() >= 4
        for c in range(len(rows)):
            assert rows[c] == pytest.approx(X[inverse == c].mean(axis=0), abs=1e-8)


def test_every_method_of_the_contract_can_be_made_and_is_documented_as_it_is() -> None:
    contract = [*ALL_DP, *(f"CM-{i}" for i in range(1, 27)), *(f"B{i}" for i in range(1, 9))]
    contract += ["SAFEPUB", "MDAV", "VMDAV", "IR", "OPT", "PCL"]
    assert sorted(catalogue()) == sorted(contract)
    documented = (Path(__file__).parents[1] / "docs" / "methods.md").read_text("utf-8").splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in documented if line.startswith("| `")
    ]
    told = {row[0].strip("`"): row[-1] for row in rows if "," not in row[0]}
    assert {"MDAV", "VMDAV", "PCL", "IR", "OPT", "LAPLACE", "MDAV_DP", "INS_DP", "IR_DP"} <= told.keys()
    for name, parameters in told.items():
        assert parameters == catalogue()[name].needs, name


def test_rows_are_shuffled_unless_asked() -> None:
    X = np.column_stack([np.linspace(0, 1, 500)])
    schema = Schema({"x": Numeric(0, 1)})
    aligned = anonymize(X, schema, method("IR", k=2), order="aligned").table
    assert (np.diff(aligned[:, 0]) >= 0).all()
    first, second = (anonymize(X, schema, method("IR", k=2)).table[:, 0] for _ in range(2))
    assert sorted(first) == sorted(second) == sorted(aligned[:, 0])
    assert not np.array_equal(first, second)
    assert (np.diff(first) < 0).any()


def test_kept_columns_stay_with_their_record() -> None:
    x = np.arange(100.0)
    table = pa.table({"x": x, "id": [str(int(v)) for v in x]})
    schema = Schema({"x": Numeric(0, 100), "id": Keep()})
    result = anonymize(table, schema, method("IR", k=2)).table
    assert all(
        abs(value - int(i)) <= 0.5 + 1e-6 for value, i in zip(*result.to_pydict().values(), strict=True)
    )


def test_threads_and_seed_decide_everything() -> None:
    X = cube(3000)
    results = []
    for threads in (1, 2, 4):
        with testing.seeded(7):
            results.append(anonymize(X, CUBE, method("OPT_DP_1", epsilon=1), threads=threads).table)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    with testing.seeded(8):
        assert not np.array_equal(results[0], anonymize(X, CUBE, method("OPT_DP_1", epsilon=1)).table)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_in_the_progress_callback_stops_every_group(threads: int) -> None:
    schema = Schema({name: Numeric(0, 1) for name in "abcd"})

    def stop(station: str, share: float) -> None:
        if station == "partition" and share > 0:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        anonymize(
            cube(500_000, 4), schema, method("MDAV", k=3, groups="each"), threads=threads, progress=stop
        )


def test_progress_names_the_stations() -> None:
    seen: list[tuple[str, float]] = []
    anonymize(cube(100), CUBE, method("OPT_DP_1", epsilon=1), progress=lambda *step: seen.append(step))
    assert seen[0][0] == "read"
    names = {name for name, _ in seen}
    assert (
        {"read", "mask", "sample", "release"} <= names <= {"read", "partition", "mask", "sample", "release"}
    )
    assert all(0 <= share <= 1 for _, share in seen)


# What is claimed


@pytest.mark.parametrize(
    ("name", "columns", "scope"),
    [
        ("LAPLACE", 3, "unconditional"),
        ("INS_DP", 3, "unconditional"),
        ("IR_DP", 1, "unconditional"),
        ("IR_DP", 3, "given-partition"),
        ("MDAV_DP", 3, "given-partition"),
        ("MDAV_IR_DP_1", 3, "given-partition"),
        ("MDAV_IR_DP_2", 3, "given-partition"),
        ("OPT_DP_1", 3, "given-partition"),
        ("OPT_DP_1", 1, "given-partition"),
        ("OPT_DP_2", 3, "given-partition"),
    ],
)
def test_scope_of_the_dp_methods(name: str, columns: int, scope: str) -> None:
    schema = Schema({name: Numeric(0, 1) for name in NAMES[:columns]})
    certificate = json.loads(anonymize(cube(30, columns), schema, dp_method(name)).certificate.to_json())
    assert (certificate["guarantee"], certificate["scope"]) == ("dp", scope)
    assert certificate["neighbours"] == "replace-one"
    assert certificate["private"] is True
    assert certificate["epsilon"] == 1
    assert certificate["delta"] == 0
    assert sum(Fraction(share) for share in certificate["budget"].values()) == 1
    assert ("partition" in " ".join(certificate["assumptions"])) == (scope == "given-partition")


def test_a_released_order_or_a_public_column_takes_back_the_unconditional_claim() -> None:
    schema = Schema({"a": Numeric(0, 1)})
    made = method("IR_DP", epsilon=1, k=5)
    assert anonymize(cube(30, 1), schema, made).certificate.scope == "unconditional"
    aligned = anonymize(cube(30, 1), schema, made, order="aligned").certificate
    assert aligned.scope == "given-partition"
    assert any("order of the input" in sentence for sentence in aligned.assumptions)
    linked = Schema({"a": Numeric(0, 1), "town": Keep(public=True)})
    table = pa.table({"a": cube(30, 1)[:, 0], "town": ["x"] * 30})
    certificate = anonymize(table, linked, made).certificate
    assert certificate.scope == "given-partition"
    assert any("town" in sentence for sentence in certificate.assumptions)
    # A record that is alone in its cluster says nothing about the others.
    alone = anonymize(cube(30, 1), schema, method("LAPLACE", epsilon=1), order="aligned").certificate
    assert alone.scope == "unconditional"


def test_k_anonymity_claims_no_more_than_holds() -> None:
    whole = anonymize(cube(30), CUBE, method("MDAV", k=3)).certificate
    assert (whole.guarantee, whole.scope, whole.epsilon) == ("k-anonymity", "unconditional", None)
    each = anonymize(cube(30), CUBE, method("IR", k=3)).certificate
    assert (each.guarantee, each.scope) == ("k-anonymity", "given-partition")
    assert any("may be unique" in sentence for sentence in each.assumptions)


def test_three_shares_add_up_exactly() -> None:
    for epsilon in (1, 0.1, "0.3", Fraction(2, 7)):
        budget = anonymize(cube(20), CUBE, method("OPT_DP_1", epsilon=epsilon)).certificate.budget
        assert list(budget) == list(NAMES)
        exact = Fraction(str(epsilon))
        assert sum(budget.values()) == exact
        assert set(budget.values()) == {exact / 3}


def test_shares_by_width_and_by_weight() -> None:
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 3)})
    assert method("OPT_DP_2", epsilon=1).budget(schema).shares == {"a": Fraction(1, 4), "b": Fraction(3, 4)}
    raw = method("MDAV_DP", epsilon=1, k=5, norm="raw").budget(schema).shares
    assert raw == {"a": Fraction(1, 4), "b": Fraction(3, 4)}
    weighed = MicroaggregatedDP(name="mine", partition=MDAV(3), epsilon=2, split={"a": 3, "b": 1}).budget(
        schema
    )
    assert weighed.shares == {"a": Fraction(3, 2), "b": Fraction(1, 2)}


def test_groups_of_attributes_have_their_shares() -> None:
    made = method("MDAV_DP", epsilon=100, k=5, groups=[["a", "b"], ["c"]])
    assert made.budget(CUBE).shares == {"a": 25, "b": 25, "c": 50}
    result = anonymize(cube(50), CUBE, made, order="aligned").table
    assert len(np.unique(result[:, :2], axis=0)) == 10
    assert len(np.unique(result, axis=0)) > 10


def test_a_seeded_release_and_bounds_from_data_are_not_private() -> None:
    with testing.seeded(1):
        seeded = anonymize(cube(20), CUBE, method("LAPLACE", epsilon=1)).certificate
    assert seeded.private is False
    assert any("seeded" in sentence for sentence in seeded.assumptions)
    schema = bounded_by_data(cube(20), NAMES)
    read = anonymize(cube(20), schema, method("LAPLACE", epsilon=1)).certificate
    assert read.private is False
    assert any("read from the data" in sentence for sentence in read.assumptions)
    assert anonymize(cube(20), CUBE, method("LAPLACE", epsilon=1)).certificate.private is True


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([*ALL_DP, "MDAV", "IR", "OPT"]), st.integers(0, 2**32), st.integers(0, 11))
def test_no_field_of_a_certificate_changes_with_the_data(name: str, seed: int, row: int) -> None:
    X = cube(12, seed=seed)
    Y = X.copy()
    Y[row] = 1 - Y[row] ** 2
    made = dp_method(name) if name in ALL_DP else method(name, k=3)
    certificates = {
        anonymize(table, CUBE, made).certificate.to_json() for table in (X, Y, cube(12, seed=seed + 1))
    }
    assert len(certificates) == 1


# Whether the claim can hold: brute force over replacements


def moves(partition: Partition, table: np.ndarray, other: np.ndarray, fixed: bool) -> np.ndarray:
    """L1 distance, per attribute and in widths, of the lists of cluster sums of two tables."""
    labels = partition.labels(table, noise_cost=1.0)
    others = labels if fixed else partition.labels(other, noise_cost=1.0)
    sums = [
        cluster_sums(t, lab, bits=GRID_BITS)[1].astype(object)
        for t, lab in ((table, labels), (other, others))
    ]
    return np.abs(sums[0] - sums[1]).sum(axis=0) / (1 << GRID_BITS)


def neighbours(table: np.ndarray, values: tuple[float, ...]) -> Any:
    for row in range(len(table)):
        for value in itertools.product(values, repeat=table.shape[1]):
            other = table.copy()
            other[row] = value
            yield other


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("partition", "d"),
    [(MDAV(2), 2), (MDAV(3), 1), (IR(2), 1), (Insensitive(2), 2), (Optimal(), 1), (Singletons(), 2)],
)
def test_no_sum_moves_by_more_than_claimed_given_the_partition(
    partition: Partition, d: int, seed: int
) -> None:
    table = np.random.default_rng(seed).choice([0, 0.1, 0.5, 0.8, 1], size=(7, d))
    largest = max(moves(partition, table, other, True).max() for other in neighbours(table, (0, 0.3, 1)))
    assert 0.5 <= largest <= 1  # each replacement touches one cluster; the bound is nearly attained


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("partition", "d"), [(IR(2), 1), (IR(3), 1), (Insensitive(2), 2), (Insensitive(3), 1), (Singletons(), 2)]
)
def test_insensitive_partitions_keep_their_bound_when_recomputed(
    partition: Partition, d: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for n in (3, 6, 7, 8):
        table = rng.choice([0, 0.1, 0.5, 0.8, 1], size=(n, d))
        bound = partition.sum_sensitivity(n)
        assert all(
            moves(partition, table, other, False).max() <= bound for other in neighbours(table, (0, 0.3, 1))
        )


def test_a_free_partition_breaks_that_bound_which_is_why_its_guarantee_is_conditional() -> None:
    table = np.array([[0.0], [0.1], [0.45], [0.55], [0.9], [1.0]])
    largest = max(moves(MDAV(2), table, other, False).max() for other in neighbours(table, (0, 0.3, 1)))
    assert largest > 1


@pytest.mark.parametrize("c", [2, 3])
def test_an_individual_with_several_records_moves_the_sums_by_at_most_c(c: int) -> None:
    rng = np.random.default_rng(c)
    for partition in (MDAV(2), IR(2), Optimal()):
        table = rng.choice([0, 0.2, 0.7, 1], size=(6, 1))
        largest = 0.0
        for rows in itertools.combinations(range(6), c):
            for values in itertools.product((0, 0.5, 1), repeat=c):
                other = table.copy()
                other[list(rows), 0] = values
                largest = max(largest, moves(partition, table, other, True).max())
                if partition.reads == "insensitively":
                    assert moves(partition, table, other, False).max() <= c * partition.sum_sensitivity(6)
        assert c - 1 < largest <= c


def test_noise_grows_with_the_records_per_individual() -> None:
    n = 2000
    ids = np.arange(n) // 4
    table = pa.table({"x": np.linspace(0, 1, n), "person": ids})
    made = method("IR_DP", epsilon=1, k=20)
    errors = {}
    for c in (1, 4):
        schema = Schema({"x": Numeric(0, 1)}, individual="person", max_records=c)
        release = anonymize(table, schema, made)
        assert release.table.column_names == ["x"]
        assert release.table.num_rows == n // 4 * c
        assert release.evaluation.records_dropped == n - n // 4 * c
        assert "person" not in release.certificate.to_json().replace("persons", "")
        assert any(("at most 4 records" in s) for s in release.certificate.assumptions) == (c == 4)
        errors[c] = release.evaluation.sse_expected / release.table.num_rows
    assert errors[4] > 10 * errors[1]  # variance grows with c squared


def test_missing_individuals_are_refused() -> None:
    schema = Schema({"x": Numeric(0, 1)}, individual="person", max_records=2)
    table = pa.table({"x": [0.1, 0.2, 0.3], "person": ["a", None, "b"]})
    with pytest.raises(InputError, match="column 'person' says whose record it is and has missing values"):
        anonymize(table, schema, method("IR_DP", epsilon=1, k=2))


# Figures


@pytest.mark.parametrize(
    ("name", "epsilon", "expected"),
    [
        ("OPT_DP_1", 1, 4.983e10),
        ("OPT_DP_2", 1, 3.560e10),
        ("OPT_DP_1", 2, 2.983e10),
        ("OPT_DP_2", 2, 2.041e10),
    ],
)
def test_expected_and_measured_error_on_census(
    data_folder: Path, name: str, epsilon: int, expected: float
) -> None:
    X = read_columns(data_folder / "casc" / "census.csv", CENSUS)
    schema = bounded_by_data(X, CENSUS)
    with testing.seeded(epsilon):
        runs = [anonymize(X, schema, method(name, epsilon=epsilon)).evaluation for _ in range(200)]
    assert runs[0].sse_expected == pytest.approx(expected, rel=1e-3)
    measured = np.array([run.sse_before_truncation for run in runs])
    standard_error = measured.std(ddof=1) / np.sqrt(len(measured))
    assert abs(measured.mean() - runs[0].sse_expected) < 3 * standard_error
    assert standard_error < 0.05 * measured.mean()  # so the line above can fail
    assert np.mean([run.sse for run in runs]) < measured.mean()  # truncation can only help


def test_plain_laplace_matches_its_closed_form_on_census(data_folder: Path) -> None:
    X = read_columns(data_folder / "casc" / "census.csv", CENSUS)
    schema = bounded_by_data(X, CENSUS)
    widths = np.array([float(schema.bounds(name).width) for name in CENSUS])
    with testing.seeded(3):
        measured = anonymize(X, schema, method("LAPLACE", epsilon=1)).evaluation
    closed = 2 * len(X) * 4**2 * (widths**2).sum()
    assert np.log2(closed) == pytest.approx(49.97, abs=0.005)  # CM, Table 1
    assert measured.sse_expected == pytest.approx(closed, rel=0.01)
    # Relative standard deviation of a sum of n squared Laplace draws is sqrt(5/n).
    assert np.log2(measured.sse_before_truncation) == pytest.approx(np.log2(closed), abs=0.3)


def expected_sse(X: np.ndarray, schema: Schema, made: Any) -> float:
    """Closed form, no truncation: clustering error plus |C| times the variance of the noise."""
    U = X / [float(schema.bounds(name).upper) for name in schema.numeric]
    shares = made.budget(schema).shares
    total = 0.0
    for group, partition in zip(made.grouped(schema), made.partitions(schema, len(X)), strict=True):
        columns = [schema.numeric.index(name) for name in group]
        labels = partition.labels(
            np.asfortranarray(U[:, columns]), noise_cost=made.noise_cost(schema, group[0])
        )
        inverse = (1 / np.bincount(labels)).sum()
        for j, name in zip(columns, group, strict=True):
            width = float(schema.bounds(name).width)
            total += width**2 * (sse(U[:, [j]], labels) + 2 * inverse / float(shares[name]) ** 2)
    return total


@pytest.mark.parametrize("data", ["census", "california"])
@pytest.mark.parametrize("epsilon", [1, 2])
def test_the_papers_ordering_of_methods(data_folder: Path, data: str, epsilon: int) -> None:
    if data == "census":
        names, path = CENSUS, data_folder / "casc" / "census.csv"
    else:
        names = ("longitude", "latitude", "median_house_value")
        path = data_folder / "california" / "california_20640x3.csv"
    X = read_columns(path, names)
    if data == "california":
        X[:, 0] += 180  # bounds [0, 1.5 max] need values above 0
    schema = bounded_by_data(X, names)
    full = data == "census" or os.environ.get("DPMICRO_FULL") == "1"
    opt_1 = expected_sse(X, schema, method("OPT_DP_1", epsilon=epsilon))
    opt_2 = expected_sse(X, schema, method("OPT_DP_2", epsilon=epsilon))
    assert opt_2 <= opt_1
    for k in range(2, 501) if full else (2, 3, 5, 10, 20, 50, 100, 200, 350, 500):
        each_1 = expected_sse(X, schema, method("MDAV_IR_DP_1", epsilon=epsilon, k=k))
        each_2 = expected_sse(X, schema, method("MDAV_IR_DP_2", epsilon=epsilon, k=k))
        whole = expected_sse(X, schema, method("MDAV_DP", epsilon=epsilon, k=k, norm="raw"))
        assert opt_1 <= each_1 * (1 + 1e-12), k
        assert opt_2 <= each_2 * (1 + 1e-12), k
        assert each_2 <= whole, k


def test_standalone_mdav_on_each_attribute_of_census(data_folder: Path) -> None:
    X = read_columns(data_folder / "casc" / "census.csv", CENSUS)
    alone = anonymize(X, bounded_by_data(X, CENSUS), method("MDAV", k=50, groups="each")).evaluation
    assert alone.sse == pytest.approx(1.884e10, rel=1e-3)


# Cluster size from public facts


def test_the_default_cluster_size_minimises_the_worst_case() -> None:
    for n, epsilon in ((1000, 1.0), (10**6, 0.25), (50, 3.0)):
        k = worst_case_cluster_size(n, Fraction(repr(epsilon)))

        def error(k: int, n: int = n, epsilon: float = epsilon) -> float:
            return k / n / 4 + 2 / (k * epsilon) ** 2

        assert error(k) <= min(error(max(2, k - 1)), error(k + 1)) * 1.001
    assert worst_case_cluster_size(3, Fraction(1, 100)) == 3
    assert worst_case_cluster_size(10**6, Fraction(10**6)) == 2
    assert worst_case_cluster_size(1, Fraction(1)) == 1


def test_k_may_be_left_out_and_is_told() -> None:
    certificate = anonymize(
        cube(1000, 1), Schema({"a": Numeric(0, 1)}), method("IR_DP", epsilon=1)
    ).certificate
    assert certificate.parameters["k"] == 25


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: method("MDAV_DP", epsilon=0, k=3), "epsilon must be positive"),
        (lambda: method("MDAV_DP", epsilon=-1, k=3), "epsilon must be positive"),
        (lambda: method("MDAV_DP", epsilon=float("nan"), k=3), "epsilon"),
        (lambda: method("MDAV_DP", epsilon=float("inf"), k=3), "epsilon"),
        (lambda: method("MDAV_DP", epsilon="much", k=3), "epsilon"),
        (lambda: method("MDAV_DP", k=3), "needs epsilon; for example epsilon=1"),
        (lambda: method("MDAV", k=0), "k must be at least 1"),
        (lambda: method("PCL", k=2, max_iter=-1), "max_iter must be at least 0"),
        (lambda: method("PCL", k=2, seed=0.5), "seed must be a whole number"),
        (lambda: method("MDAV", k=2.5), "whole number"),
        (lambda: method("MDAV"), "needs k; for example k=5"),
        (lambda: method("MDVA", k=3), "did you mean 'MDAV'"),
        (lambda: method("MDAV", k=3, gama=1), "has no parameter 'gama'"),
        (lambda: method("MDAV_DP", epsilon=1, norm="l2"), "use 'unit' or 'raw'"),
        (lambda: method("MDAV_DP", epsilon=1, groups="all"), "use 'together', 'each'"),
    ],
)
def test_bad_parameters_are_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("made", "schema", "message"),
    [
        (method("MDAV", k=21), CUBE, r"k = 21 is larger than the number of records \(20\)"),
        (method("MDAV_DP", epsilon=1, k=21), CUBE, "larger than the number of records"),
        (method("IR_DP", epsilon=1, k=21), CUBE, "larger than the number of records"),
        (method("MDAV_DP", epsilon=1, k=2, groups=[["a"], ["b"]]), CUBE, "groups miss column 'c'"),
        (
            method("MDAV_DP", epsilon=1, k=2, groups=[["a", "b"], ["b", "c"]]),
            CUBE,
            "groups overlap: column 'b'",
        ),
        (method("MDAV_DP", epsilon=1, k=2, groups=[["a", "b", "c"], ["z"]]), CUBE, "groups name 'z'"),
        (method("MDAV_DP", epsilon=1, k=2, groups=[["a", "b", "c"], []]), CUBE, "empty"),
        (method("MDAV_DP", epsilon=1, split={"a": 1, "b": 1}), CUBE, "split has no weight for column 'c'"),
        (method("MDAV_DP", epsilon=1, split=dict.fromkeys("abcz", 1)), CUBE, "split names 'z'"),
        (method("LAPLACE", epsilon=1), Schema({"a": Categorical()}), "needs at least one Numeric"),
        (
            method("LAPLACE", epsilon=1),
            Schema({"a": Numeric(0, 1), "b": Categorical(), "c": Numeric(0, 1)}),
            "column 'b' is Categorical",
        ),
        (
            method("LAPLACE", epsilon=1),
            Schema({"a": Numeric(0, 1), "b": Keep(), "c": Numeric(0, 1)}),
            "column 'b' is Keep.*voids the claim",
        ),
    ],
)
def test_what_cannot_work_is_refused(made: Method, schema: Schema, message: str) -> None:
    with pytest.raises(InputError, match=message):
        anonymize(cube(20), schema, made)


@pytest.mark.parametrize("name", [*ALL_DP, "CM-3"])
@pytest.mark.parametrize("epsilon", [1e-9, 1e-300])
def test_noise_beyond_reason_is_refused(name: str, epsilon: float) -> None:
    made = method(name, epsilon=epsilon, **({"k": 5} if name in ("INS_DP", "CM-3") else {}))
    with pytest.raises(BudgetError, match="epsilon is too small"):
        anonymize(cube(20), CUBE, made)


def test_a_univariate_partition_refuses_groups() -> None:
    made = MicroaggregatedDP(name="mine", partition=IR(3), epsilon=1)
    with pytest.raises(InputError, match="one attribute at a time"):
        anonymize(cube(20), CUBE, made)


def test_wrong_kinds_of_arguments_are_told() -> None:
    with pytest.raises(InputError, match="schema must be a Schema"):
        anonymize(cube(20), {"a": Numeric(0, 1)}, method("IR", k=2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="method must be made by"):
        anonymize(cube(20), CUBE, "IR")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'shuffled' or 'aligned'"):
        anonymize(cube(20), CUBE, method("IR", k=2), order="sorted")  # type: ignore[arg-type]


def test_the_budget_is_refused_before_the_table_is_read() -> None:
    made = MicroaggregatedDP(name="mine", partition=MDAV(2), epsilon=1, split={"a": 1})
    with pytest.raises(BudgetError):
        anonymize("no such file.csv", CUBE, made)


# Saving


def test_save_writes_public_and_curator_apart(tmp_path: Path) -> None:
    release = anonymize(cube(30), CUBE, method("OPT_DP_1", epsilon=1))
    target = release.save(tmp_path / "out")
    assert {p.relative_to(target).as_posix() for p in (target / "public").iterdir()} == {
        "public/data.csv",
        "public/certificate.json",
    }
    assert json.loads((target / "public" / "certificate.json").read_text())["method"] == "OPT_DP_1"
    assert json.loads((target / "curator" / "evaluation.json").read_text())["records"] == 30
    assert is_private(target / "curator")
    with pytest.raises(InputError, match="exists already"):
        release.save(tmp_path / "out")
    release.save(tmp_path / "out", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_results_read_well() -> None:
    release = anonymize(cube(30), CUBE, method("OPT_DP_1", epsilon=1))
    assert "30 rows x 3 columns" in repr(release)
    assert "OPT_DP_1: dp, given-partition, epsilon = 1" in repr(release.certificate)
    assert "<table>" in release._repr_html_()
