"""PCL against the paper's method in numpy and against k-means-constrained from PyPI.

k-means-constrained needs minutes for the larger cases, so it runs on 5,000 x 2 only; with DPMICRO_BENCH_ALL=1
on 65,536 x 2 as well. Distortions are checked here, times are printed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from dpmicro_native.lloyd import pcl
from dpmicro_native.partition import mdav, sse
from reference import lloyd as reference

DATA = Path(os.environ.get("DPMICRO_DATA") or Path(__file__).parents[2] / "shared" / "data")
ALL = bool(os.environ.get("DPMICRO_BENCH_ALL"))


def normal(n, d, rho=0.0, seed=0):
    covariance = np.full((d, d), rho) + (1 - rho) * np.eye(d)
    return np.random.default_rng(seed).standard_normal((n, d)) @ np.linalg.cholesky(covariance).T


def constrained(X, k):
    """Distortion and seconds of k-means-constrained with cells of exactly k records."""
    package = pytest.importorskip("k_means_constrained", reason="k-means-constrained is not installed")
    started = time.perf_counter()
    model = package.KMeansConstrained(len(X) // k, size_min=k, size_max=k, n_init=1, random_state=0).fit(X)
    return model.inertia_, time.perf_counter() - started


def paper(X, k):
    start = mdav(X, k)
    means = np.stack([X[start == q].mean(axis=0) for q in range(len(X) // k)])
    return reference.pcl(X, means, np.full(len(means), k), iterations=40)


def run(benchmark, X, k, **options):
    result = benchmark.pedantic(pcl, (X, k), options, rounds=1, iterations=1)
    sizes = np.bincount(result.labels)
    assert len(sizes) == len(X) // k
    assert sizes.min() >= k
    ours = sse(X, result.labels)
    return ours, 1 - ours / sse(X, mdav(X, k))


@pytest.mark.parametrize(
    ("rho", "cells", "gain", "limit"),
    [(0, 16, 0.14, 0.5), (0, 32, 0.15, 0.8), (0, 64, 0.16, 1.5), (0.5, 16, 0.11, 0.5)],
)
def test_gaussian_plane(benchmark, ratios, rho, cells, gain, limit):
    X, k = normal(65_536, 2, rho, seed=2), 65_536 // cells
    ours, below = run(benchmark, X, k)
    baselines = {"paper in numpy": lambda: paper(X, k)}
    if ALL:
        theirs, baselines["k-means-constrained"] = constrained(X, k)
        assert ours <= 1.005 * theirs
    ratios(f"pcl 65,536 x 2, rho={rho}, {cells} cells, {below:.1%} below MDAV", benchmark, limit, **baselines)
    assert below >= gain


def test_small_cells(benchmark, ratios):
    X = normal(5_000, 2)
    ours, below = run(benchmark, X, 10)
    theirs, elapsed = constrained(X, 10)
    ratios(f"pcl 5,000 x 2, k=10, {below:.1%} below MDAV", benchmark, 1.0, **{"k-means-constrained": elapsed})
    assert ours <= 1.01 * theirs


@pytest.mark.skipif(not (DATA / "adult").exists(), reason="no reference data: set DPMICRO_DATA")
@pytest.mark.parametrize("k", range(500, 4001, 500))
def test_adult(benchmark, ratios, k):
    X = np.loadtxt(DATA / "adult" / "adult_num3_48842.csv", delimiter=",", skiprows=1)
    _, below = run(benchmark, (X - X.mean(axis=0)) / X.std(axis=0), k)
    ratios(f"pcl Adult 48,842 x 3, k={k}, {below:.1%} below MDAV", benchmark)
    assert below >= 0.2


@pytest.mark.parametrize(("n", "k", "limit"), [(100_000, 100, 15.0), (1_000_000, 1_000, 60.0)])
def test_large(benchmark, ratios, n, k, limit):
    _, below = run(benchmark, normal(n, 4), k)
    ratios(f"pcl {n:,} x 4, k={k}, {below:.1%} below MDAV", benchmark, limit)
    assert below >= 0.08
