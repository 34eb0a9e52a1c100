"""Evaluating a million records, and its parts beside numpy and scipy.

Run with ``pytest bench/test_evaluate.py``; the table at the end holds the best time of each.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpmicro_native import Numeric, Schema, _core, anonymize, method
from dpmicro_native.evaluate import Evaluation
from dpmicro_native.report import write_report

MILLION = 10**6
NAMES = ("a", "b", "c", "d")
SCHEMA = Schema({name: Numeric(0, 1) for name in NAMES})


@pytest.fixture(scope="module")
def original() -> np.ndarray:
    return np.asfortranarray(np.random.default_rng(0).random((MILLION, 4)) ** 2)


@pytest.fixture(scope="module")
def masked(original: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(1).laplace(0, 0.02, original.shape)
    return np.asfortranarray(np.clip(original + noise, 0, 1))


@pytest.mark.parametrize("name", ["LAPLACE", "OPT_DP_1"])
def test_evaluation(benchmark, ratios, original, name):
    release = anonymize(original, SCHEMA, method(name, epsilon=1))
    benchmark.pedantic(release._evaluate, rounds=3)
    ratios(f"evaluation 1e6 x 4, {name}", benchmark, limit=1.5)


def test_report(benchmark, ratios, original, tmp_path):
    release = anonymize(original, SCHEMA, method("OPT_DP_1", epsilon=1))
    found: Evaluation = release.evaluation
    benchmark.pedantic(write_report, (tmp_path / "report.html", release.certificate, found), rounds=3)
    ratios("report of 1e6 x 4", benchmark, limit=1.0)


def test_linkage(benchmark, ratios, original, masked):
    spatial = pytest.importorskip("scipy.spatial")
    rows = np.sort(np.random.default_rng(2).choice(MILLION, 2000, replace=False))
    benchmark.pedantic(_core.linkage, (original[rows], rows, masked, np.ones(4)), {"threads": 1}, rounds=3)

    def tree() -> None:
        spatial.cKDTree(masked).query(original[rows])

    ratios("linkage of 2,000 among 1e6 x 4, one thread", benchmark, ckdtree=tree)


def test_linkage_of_all(benchmark, ratios, original, masked):
    spatial = pytest.importorskip("scipy.spatial")
    n = 20_000
    U, V, rows = original[:n], np.asfortranarray(masked[:n]), np.arange(n)
    benchmark.pedantic(_core.linkage, (U, rows, V, np.ones(4)), {"threads": 1}, rounds=3)

    def brute() -> None:
        for begin in range(0, n, 500):
            spatial.distance.cdist(U[begin : begin + 500], V, "sqeuclidean").argmin(axis=1)

    ratios(
        "linkage of 20,000 among 20,000 x 4, one thread",
        benchmark,
        all_pairs=brute,
        ckdtree=lambda: spatial.cKDTree(V).query(U),
    )


def test_row_classes(benchmark, ratios, masked):
    rounded = np.round(masked, 1)
    benchmark.pedantic(_core.row_classes, (rounded,), rounds=3)
    ratios(
        "classes of equal rows, 1e6 x 4",
        benchmark,
        numpy=lambda: np.unique(rounded, axis=0, return_counts=True),
    )


def test_range_counts(benchmark, ratios, original):
    generator = np.random.default_rng(3)
    columns = np.array([sorted(generator.choice(4, 2, replace=False)) for _ in range(200)])
    lower = generator.random((200, 2)) * 0.5
    upper = lower + 0.3
    benchmark.pedantic(_core.range_counts, (original, columns, lower, upper), {"threads": 1}, rounds=3)

    def masks() -> None:
        for (s, t), low, high in zip(columns, lower, upper, strict=True):
            x, y = original[:, s], original[:, t]
            np.count_nonzero((x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1]))

    ratios("200 range counts on pairs, 1e6, one thread", benchmark, numpy=masks)


def test_distribution_distances(benchmark, ratios, original, masked):
    stats = pytest.importorskip("scipy.stats")
    a, b = np.sort(original[:, 0]), np.sort(masked[:, 0])
    benchmark.pedantic(_core.compare_sorted, (a, b), rounds=3)

    def scipy() -> None:
        stats.ks_2samp(a, b, method="asymp")
        stats.wasserstein_distance(a, b)

    ratios("Kolmogorov-Smirnov and Wasserstein, 2 x 1e6", benchmark, scipy=scipy)
