from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmicro_native import _core
from dpmicro_native.aggregate import cluster_moments
from dpmicro_native.errors import InputError
from dpmicro_native.lloyd import assign, pcl
from dpmicro_native.partition import (
    IR,
    MDAV,
    VMDAV,
    Insensitive,
    Optimal,
    Singletons,
    individual_ranking,
    insensitive_ranking,
    mdav,
    optimal_univariate,
    sse,
    vmdav,
)
from reference import partition as reference

PATHS = ["auto", "tree", "scan"]
DATA = Path(os.environ.get("DPMICRO_DATA") or Path(__file__).parents[2] / "shared" / "data")


def make_table(kind: str, n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return rng.normal(size=(n, d))
    if kind == "grid":
        return rng.integers(0, 5, size=(n, d)).astype(float)
    if kind == "duplicates":
        return rng.normal(size=(max(1, n // 20), d))[rng.integers(0, max(1, n // 20), size=n)]
    if kind == "constant column":
        table = rng.uniform(size=(n, d))
        table[:, rng.integers(d)] = 0.3
        return table
    if kind == "one point":
        return np.full((n, d), 0.1)
    assert kind == "scales"
    return rng.normal(size=(n, d)) * 10.0 ** rng.integers(-12, 12, size=d) + 1e6 * rng.normal(size=d)


KINDS = ["normal", "grid", "duplicates", "constant column", "one point", "scales"]


@st.composite
def tables(draw, max_n=400):
    n = draw(st.one_of(st.integers(1, 40), st.integers(1, max_n)))
    k = draw(st.one_of(st.integers(1, min(n, 12)), st.integers(1, n)))
    d = draw(st.integers(1, 13))
    return make_table(draw(st.sampled_from(KINDS)), n, d, draw(st.integers(0, 2**32))), k


def rows(X):
    return [tuple(row) for row in X.tolist()]


@settings(max_examples=150, deadline=None)
@given(tables())
def test_mdav_is_the_definition(table_and_k):
    X, k = table_and_k
    expected = reference.mdav(rows(X), k)
    for path in PATHS:
        assert _core.mdav(X, k, path=path).tolist() == expected, path
    assert mdav(np.asfortranarray(X), k).tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "d", "k"), [(20_000, 2, 10), (20_000, 4, 100), (6_000, 13, 10), (3_000, 3, 1), (5_000, 1, 7)]
)
def test_mdav_paths_agree_label_by_label(kind, n, d, k):
    X = make_table(kind, n, d, seed=n + d)
    expected = _core.mdav(X, k, path="scan", threads=1)
    sizes = np.bincount(expected)
    assert sizes.min() >= k
    assert sizes.max() <= max(2 * k - 1, k)
    for path in ["tree", "auto"]:
        np.testing.assert_array_equal(_core.mdav(X, k, path=path), expected, err_msg=path)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("d", [2, 13])
def test_threads_do_not_change_labels(path, d):
    X = make_table("normal", 4_000, d, seed=5)
    expected = _core.mdav(X, 10, threads=1, path=path)
    for threads in (2, 4):
        np.testing.assert_array_equal(_core.mdav(X, 10, threads=threads, path=path), expected)


def census(columns):
    path = DATA / "casc" / "census.csv"
    if not path.exists():
        pytest.skip("census.csv is not there; set DPMICRO_DATA to the folder of the reference data")
    with path.open() as file:
        names = file.readline().replace('"', "").strip().split(",")
        table = np.loadtxt(file, delimiter=",")
    if columns is not None:
        table = table[:, [names.index(c) for c in columns]]
    return (table - table.mean(axis=0)) / table.std(axis=0, ddof=1)


# Two independent programs agree on these figures. They belong to the sample standard deviation (n - 1);
# with the population's every one of them is larger by 1080/1079, and the labels are the same.
@pytest.mark.parametrize(
    ("columns", "k", "expected"),
    [
        (None, 3, "798.4430"),
        (None, 5, "1274.8348"),
        (None, 10, "1985.6524"),
        (["FICA", "FEDTAX", "INTVAL", "POTHVAL"], 3, "106.8837"),
        (["FICA", "FEDTAX", "INTVAL", "POTHVAL"], 5, "200.1036"),
        (["FICA", "FEDTAX", "INTVAL", "POTHVAL"], 10, "359.5549"),
    ],
)
def test_mdav_sse_on_census(columns, k, expected):
    X = census(columns)
    assert f"{sse(X, mdav(X, k)):.4f}" == expected


@settings(max_examples=150, deadline=None)
@given(tables(max_n=60), st.sampled_from([0.0, 0.2, 0.8, 1.0, 1.1, 3.0, 1e9]))
def test_vmdav_is_the_definition(table_and_k, gamma):
    X, k = table_and_k
    labels = vmdav(X, k, gamma)
    assert labels.tolist() == reference.vmdav(rows(X), k, gamma)
    assert np.bincount(labels).min() >= k


@settings(max_examples=100, deadline=None)
@given(tables())
def test_rankings_are_the_definition(table_and_k):
    X, k = table_and_k
    assert individual_ranking(X[:, 0], k).tolist() == reference.individual_ranking(X[:, 0].tolist(), k)
    U = np.clip(X, 0, 1)
    assert insensitive_ranking(U, k).tolist() == reference.insensitive_ranking(rows(U), k)


def test_rankings_order_negative_zero_and_signs():
    x = np.array([0.0, -0.0, -1.0, 5e-324, -5e-324, 1e308, -1e308, 0.0])
    assert individual_ranking(x, 1).tolist() == reference.individual_ranking(x.tolist(), 1)


def test_insensitive_ties_are_lexicographic_then_by_row():
    U = [[0.6, 0.8], [0.8, 0.6], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8], [0.5, 0.5]]
    assert reference.squared_distance((0.6, 0.8), (0, 0)) == 1.0
    assert insensitive_ranking(U, 1).tolist() == [2, 4, 1, 5, 3, 0]


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 2**32))
def test_replacing_one_record_moves_sums_no_more_than_declared(n, k, seed):
    rng = np.random.default_rng(seed)
    k = min(k, n)
    U = rng.integers(0, 4, size=(n, 2)) / 3
    V = U.copy()
    V[rng.integers(n)] = rng.integers(0, 4, size=2) / 3

    def sums(partition, table):
        return np.array([np.bincount(partition.labels(table), weights=column) for column in table.T])

    for partition, a, b in [(IR(k), U[:, :1], V[:, :1]), (Insensitive(k), U, V), (Singletons(), U, V)]:
        moved = np.abs(sums(partition, a) - sums(partition, b)).sum(axis=1).max()
        assert moved <= partition.sum_sensitivity(n) + 1e-12


OFFSETS = [0.0, 1e9, -1e9]


@settings(max_examples=600, deadline=None)
@given(
    st.integers(1, 120),
    st.sampled_from(["normal", "grid", "duplicates", "one point", "heavy tail"]),
    st.sampled_from([0.0, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6]),
    st.integers(1, 20),
    st.sampled_from(OFFSETS),
    st.integers(0, 2**32),
)
def test_optimal_cost_is_the_quadratic_programs(n, kind, noise_cost, min_size, offset, seed):
    min_size = min(min_size, n)
    if kind == "heavy tail":
        x = np.random.default_rng(seed).standard_cauchy(n)
    else:
        x = make_table(kind, n, 1, seed)[:, 0]
    x = x + offset
    labels = optimal_univariate(x, noise_cost=noise_cost, min_size=min_size)
    # Subtracting the offset is exact enough for both sides alike, and spares the oracle its rounding.
    centred = (x - offset).tolist()
    expected = reference.optimal_cost(centred, noise_cost, min_size)
    assert reference.partition_cost(centred, labels, noise_cost) == pytest.approx(
        expected, rel=1e-9, abs=1e-13
    )
    assert np.bincount(labels).min() >= min_size
    assert (np.diff(labels[np.argsort(x, kind="stable")]) >= 0).all()


@pytest.mark.parametrize("min_size", [2, 10])
@pytest.mark.parametrize("offset", OFFSETS)
def test_optimal_among_many_values_is_exact_everywhere(min_size, offset):
    # Clusters are a millionth of the range: global sums of squares would drown their spread.
    x = np.random.default_rng(1).uniform(size=100_000) + offset
    labels = optimal_univariate(x, min_size=min_size)
    order = np.argsort(x, kind="stable")
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    # Any stretch between two cuts of an optimal partition is optimal by itself.
    for start in range(0, len(cuts) - 60, len(cuts) // 20):
        stretch = x[order[cuts[start] : cuts[start + 30]]] - offset
        found = labels[order[cuts[start] : cuts[start + 30]]]
        cost = reference.partition_cost(stretch.tolist(), found.tolist(), 0.0)
        assert cost == pytest.approx(reference.optimal_cost(stretch.tolist(), 0.0, min_size), rel=1e-9)


def quadratic_program(x, noise_cost, min_size):
    """Label x by the shortest path over all cuts, with every step over all starts at once."""
    order = np.argsort(x, kind="stable")
    v = x[order].astype(np.longdouble) - x[order[len(x) // 2]]
    first, second = (np.concatenate([[0], np.cumsum(power)]) for power in (v, v * v))
    best = np.full(len(x) + 1, np.inf, dtype=np.longdouble)
    best[0] = 0
    start_of = [0] * (len(x) + 1)
    for end in range(min_size, len(x) + 1):
        start = slice(0, end - min_size + 1)
        length = end - np.arange(end - min_size + 1)
        spread = second[end] - second[start] - (first[end] - first[start]) ** 2 / length
        total = best[start] + spread + noise_cost / length
        start_of[end] = int(total.argmin())
        best[end] = total[start_of[end]]
    labels = np.zeros(len(x), dtype=np.int32)
    end = len(x)
    while end > 0:
        labels[order[start_of[end] : end]] = end
        end = start_of[end]
    return labels


def make_values(kind, n):
    rng = np.random.default_rng(n)
    return {
        "normal": lambda: rng.normal(size=n),
        "grid": lambda: rng.integers(0, 50, size=n).astype(float),
        "heavy tail": lambda: rng.standard_cauchy(n),
        "two far groups": lambda: np.where(rng.uniform(size=n) < 0.4, 0, 3e3) + rng.normal(size=n),
    }[kind]()


@pytest.mark.parametrize("kind", ["normal", "grid", "heavy tail", "two far groups"])
@pytest.mark.parametrize("n", [63, 64, 65, 128, 4500])
@pytest.mark.parametrize(("noise_cost", "min_size"), [(0.01, 1), (100.0, 1), (1e6, 1), (0.0, 20), (1.0, 700)])
def test_optimal_sees_long_runs_right(kind, n, noise_cost, min_size):
    min_size = min(min_size, n)
    x = make_values(kind, n)
    labels = optimal_univariate(x, noise_cost=noise_cost, min_size=min_size)
    cost = reference.partition_cost(x.tolist(), labels.tolist(), noise_cost)
    expected = quadratic_program(x, noise_cost, min_size)
    # No partition is better than the optimum; the program's own rounding may make it miss it.
    assert cost <= reference.partition_cost(x.tolist(), expected.tolist(), noise_cost) * (1 + 1e-9)
    assert np.bincount(labels).min() >= min_size


@pytest.mark.parametrize("noise_cost", [0.0, 1e-7])
def test_outliers_do_not_spoil_the_rest(noise_cost):
    bulk = np.random.default_rng(4).normal(size=20_000)
    alone = optimal_univariate(bulk, noise_cost=noise_cost, min_size=3)
    low, high = [-1e12] * 3, [1e11] * 4
    together = optimal_univariate(np.concatenate([low, bulk, high]), noise_cost=noise_cost, min_size=3)
    np.testing.assert_array_equal(together[3:-4] - 1, alone)


def test_optimal_without_noise_cost_leaves_only_equal_values_together():
    assert optimal_univariate([3.0, 1.0, 2.0, 1.0]).tolist() == [2, 0, 1, 0]
    assert optimal_univariate([7.0]).tolist() == [0]
    assert optimal_univariate([7.0] * 5, min_size=2).tolist() == [0] * 5
    assert optimal_univariate([1.0, 2.0, 3.0], noise_cost=1e9).tolist() == [0] * 3


@settings(max_examples=50, deadline=None)
@given(tables(max_n=100))
def test_sse_is_the_definition(table_and_k):
    X, k = table_and_k
    labels = mdav(X, k)
    # A mean is rounded to within 2^-52 of the values, so differences below that say nothing.
    rounding = X.size * (k * 2.0**-52 * np.abs(X).max()) ** 2
    expected = reference.sse(rows(X), labels.tolist())
    assert sse(X, labels) == pytest.approx(expected, rel=1e-9, abs=rounding)


@pytest.mark.parametrize(
    "call",
    [
        lambda X, k: mdav(X, k),
        lambda X, k: vmdav(X, k, 0.2),
        lambda X, k: individual_ranking(X[:, 0], k),
        lambda X, k: insensitive_ranking(X, k),
        lambda X, k: optimal_univariate(X[:, 0], min_size=k),
    ],
)
def test_bad_input_is_refused(call):
    X = np.linspace(0, 1, 10).reshape(5, 2)
    for k in (0, -3, 6):
        with pytest.raises(InputError, match=r"at least 1|larger than the number of records"):
            call(X, k)
    for bad in (np.nan, np.inf, -np.inf):
        spoiled = X.copy()
        spoiled[2, 0] = bad
        with pytest.raises(InputError, match="NaN or infinite"):
            call(spoiled, 2)
    with pytest.raises(InputError, match="empty"):
        call(np.empty((0, 2)), 1)


def test_bad_parameters_are_refused():
    X = np.linspace(0, 1, 10).reshape(5, 2)
    for gamma in (-0.1, np.nan, np.inf):
        with pytest.raises(InputError, match="gamma"):
            vmdav(X, 2, gamma)
        with pytest.raises(InputError, match="gamma"):
            VMDAV(2, gamma).check(5, 2)
    for noise_cost in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="noise_cost"):
            optimal_univariate(X[:, 0], noise_cost=noise_cost)
    with pytest.raises(InputError, match="unit cube"):
        insensitive_ranking(X + 0.5, 2)
    with pytest.raises(InputError, match="threads"):
        mdav(X, 2, threads=-1)
    with pytest.raises(InputError, match="path"):
        _core.mdav(X, 2, path="guess")


def test_partitions_declare_how_they_read():
    X = np.random.default_rng(3).uniform(size=(50, 1))
    for partition, reads, univariate, size in [
        (Singletons(), "insensitively", False, 1),
        (MDAV(4), "freely", False, 4),
        (VMDAV(4, 0.2), "freely", False, 4),
        (IR(4), "insensitively", True, 4),
        (Insensitive(4), "insensitively", False, 4),
        (Optimal(4), "freely", True, 4),
        (Optimal(), "freely", True, 1),
    ]:
        assert (partition.reads, partition.univariate) == (reads, univariate)
        assert partition.sum_sensitivity(50) == (12 if isinstance(partition, Insensitive) else 1)
        partition.check(50, 1)
        labels = partition.labels(X, noise_cost=0.5)
        assert labels.dtype == np.int32
        assert np.bincount(labels).min() >= size
        if univariate:
            with pytest.raises(InputError, match="one attribute"):
                partition.check(50, 2)
        if size > 1:
            with pytest.raises(InputError, match="larger than the number of records"):
                partition.check(3, 1)
    assert repr(Optimal(3)) == "Optimal(min_size=3)"
    assert Optimal(3) == Optimal(min_size=3) != Optimal(2)


def test_progress_rises_to_the_end_and_may_cancel():
    X = make_table("normal", 60_000, 3, seed=2)
    shares: list[float] = []
    mdav(X, 2, progress=shares.append)
    assert shares == sorted(shares)
    assert len(shares) > 1

    class EnoughError(Exception):
        pass

    def stop(share: float) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        mdav(X, 2, progress=stop)


@pytest.mark.parametrize("path", PATHS)
def test_interrupt_stops_within_a_second(path):
    import signal

    X = make_table("normal", 150_000, 13, seed=2)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _core.mdav(X, 3, path=path)
    assert time.monotonic() - started < 1.5


@pytest.mark.parametrize(
    "call",
    [
        lambda X: mdav(X, 2),
        lambda X: vmdav(X, 2, 0.2),
        lambda X: optimal_univariate(X[:, 0]),
        lambda X: pcl(X, 2),
        lambda X: pcl(X / 1e200, 2, init=X[:5]),
        lambda X: assign(X / 1e200, X[:2], [0.0, 0.0]),
        lambda X: cluster_moments(X, np.arange(12) // 6, 2),
    ],
)
def test_values_whose_distances_overflow_are_refused(call):
    """PCL once crashed on them, and optimal_univariate put all in one cluster."""
    X = np.random.default_rng(0).standard_normal((12, 2))
    call(X * 1e-200)
    with pytest.raises(InputError, match="scale it first"):
        call(X * 1e200)


@pytest.mark.parametrize(
    "call",
    [
        lambda X: mdav(X, "5"),
        lambda X: mdav(X, 2.5),
        lambda X: vmdav(X, 2, "0.2"),
        lambda X: individual_ranking(X[:, 0], 2.5),
        lambda X: optimal_univariate(X[:, 0], min_size="5"),
        lambda X: insensitive_ranking(X, "5"),
        lambda X: pcl(X, 2, threads="2"),
        lambda X: pcl(X, 2, max_iter=1.5),
        lambda X: assign(X, X[:2], [0.0, 0.0], threads="a"),
    ],
)
def test_arguments_of_the_wrong_type_do_not_quote_the_table(call):
    with pytest.raises(InputError, match="wrong type") as caught:
        call(np.full((12, 2), 0.123456789))
    assert "0.123" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
