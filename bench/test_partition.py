"""Partitioners against the definition in plain Python, in numpy, and PyPI's microagg1d."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dpmicro_native import _core
from dpmicro_native.partition import (
    individual_ranking,
    insensitive_ranking,
    mdav,
    optimal_univariate,
    vmdav,
)

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from reference import partition as reference


def numpy_mdav(X, k):
    """MDAV as one writes it in numpy: every distance, every time."""
    labels = np.full(len(X), -1, dtype=np.int32)
    remaining = np.arange(len(X))
    cluster = 0

    def distances(point):
        return ((X[remaining] - point) ** 2).sum(axis=1)

    def close(point):
        nonlocal remaining, cluster
        nearest = np.argpartition(distances(point), k - 1)[:k]
        labels[remaining[nearest]] = cluster
        remaining = np.delete(remaining, nearest)
        cluster += 1

    while len(remaining) >= 3 * k:
        r = X[remaining[distances(X[remaining].mean(axis=0)).argmax()]]
        s = X[remaining[distances(r).argmax()]]
        close(r)
        close(s)
    if len(remaining) >= 2 * k:
        close(X[remaining[distances(X[remaining].mean(axis=0)).argmax()]])
    labels[remaining] = cluster
    return labels


def table(n, d):
    return np.random.default_rng(n + d).normal(size=(n, d))


@pytest.mark.parametrize(
    ("n", "d", "k", "limit"),
    [
        (1_000, 4, 10, None),
        (20_000, 4, 10, None),
        (100_000, 4, 10, 0.3),
        (100_000, 13, 10, 4.0),
        (1_000_000, 2, 10, 3.0),
        (1_000_000, 4, 10, 5.0),
        (1_000_000, 4, 100, 2.0),
    ],
)
def test_mdav(benchmark, ratios, n, d, k, limit):
    X = table(n, d)
    benchmark.pedantic(mdav, (X, k), rounds=5 if n <= 100_000 else 2)
    baselines = {}
    if n <= 1_000:
        baselines["reference"] = lambda: reference.mdav([tuple(row) for row in X.tolist()], k)
    if n <= 20_000:
        baselines["numpy"] = lambda: numpy_mdav(X, k)
        baselines["own scan, 1 thread"] = lambda: _core.mdav(X, k, path="scan", threads=1)
    ratios(f"mdav {n:,} x {d}, k={k}", benchmark, limit, **baselines)


@pytest.mark.parametrize(("n", "limit"), [(300, None), (100_000, 10.0)])
def test_vmdav(benchmark, ratios, n, limit):
    X = table(n, 4)
    benchmark.pedantic(vmdav, (X, 10, 0.2), rounds=3)
    baselines = {}
    if n <= 300:
        baselines["reference"] = lambda: reference.vmdav([tuple(row) for row in X.tolist()], 10, 0.2)
    ratios(f"vmdav {n:,} x 4, k=10", benchmark, limit, **baselines)


@pytest.mark.parametrize(
    ("noise_cost", "min_size"), [(0.0, 1), (0.0, 10), (1e-6, 1), (1.0, 1), (1e3, 1), (1e6, 1)]
)
def test_optimal_univariate(benchmark, ratios, noise_cost, min_size):
    x = table(1_000_000, 1)[:, 0]
    benchmark.pedantic(optimal_univariate, (x,), {"noise_cost": noise_cost, "min_size": min_size}, rounds=3)
    case = f"optimal_univariate 1,000,000, K={noise_cost:g}, min_size={min_size}"
    ratios(case, benchmark, limit=0.4)


def test_optimal_univariate_against_the_quadratic_program(benchmark, ratios):
    x = table(1_000, 1)[:, 0]
    benchmark.pedantic(optimal_univariate, (x,), {"noise_cost": 1.0}, rounds=10)
    ratios(
        "optimal_univariate 1,000, K=1",
        benchmark,
        reference=lambda: reference.optimal_cost(x.tolist(), 1.0, 1),
    )


# numba, which microagg1d compiles with, warns about its own dependencies.
@pytest.mark.filterwarnings("ignore")
def test_optimal_univariate_against_microagg1d(benchmark, ratios):
    microagg1d = pytest.importorskip("microagg1d", reason="pip install microagg1d to compare with it")
    x = table(1_000_000, 1)[:, 0]
    microagg1d.univariate_microaggregation(x[:1000].copy(), 10)  # compiles
    labels = benchmark.pedantic(optimal_univariate, (x,), {"min_size": 10}, rounds=3)
    theirs = []
    ratios(
        "optimal_univariate 1,000,000, min_size=10",
        benchmark,
        microagg1d=lambda: theirs.append(microagg1d.univariate_microaggregation(x.copy(), 10)),
    )
    if theirs:
        ours, other = (_core.sse(x[:, None], found) for found in (labels, theirs[0].astype(np.int32)))
        print(f"SSE of microagg1d / ours - 1: {other / ours - 1:.3g}")
        assert ours <= other * (1 + 1e-9)


def test_individual_ranking(benchmark, ratios):
    x = table(1_000_000, 1)[:, 0]
    benchmark.pedantic(individual_ranking, (x, 10), rounds=3)
    ratios(
        "individual_ranking 1,000,000, k=10",
        benchmark,
        limit=0.3,
        numpy_argsort=lambda: np.argsort(x, kind="stable"),
        reference=lambda: reference.individual_ranking(x.tolist(), 10),
    )


def test_insensitive_ranking(benchmark, ratios):
    U = np.random.default_rng(0).uniform(size=(1_000_000, 4))
    benchmark.pedantic(insensitive_ranking, (U, 10), rounds=3)
    ratios(
        "insensitive_ranking 1,000,000 x 4, k=10",
        benchmark,
        limit=0.3,
        numpy_argsort=lambda: np.argsort((U * U).sum(axis=1), kind="stable"),
    )
