"""Moments, repair and sampling against numpy and the plain references, in one run.

pytest bench/test_moments.py
"""

from __future__ import annotations

import numpy as np
import pytest

from dpmicro_native._cm_catalogue import CATALOGUE
from dpmicro_native.aggregate import cluster_moments, noisy_answers
from dpmicro_native.repair import nearest_psd, repair_moments
from dpmicro_native.sample import sample_records
from reference import moments as reference

N, D, K = 1_000_000, 4, 1000


@pytest.fixture(scope="module")
def million():
    rng = np.random.default_rng(0)
    return rng.random((N, D)), rng.permutation(np.arange(N) // K).astype(np.int32)


def numpy_moments(U, labels):
    """The same moments with numpy: sort by label, then one cluster after the other."""
    order = np.argsort(labels, kind="stable")
    result = []
    for Y in np.split(U[order], np.flatnonzero(np.diff(labels[order])) + 1):
        k, y = len(Y), Y - Y.mean(axis=0)
        result.append(
            (Y.mean(axis=0), y.T @ y / (k - 1), np.einsum("ni,nj,nl->ijl", y, y, y) * k / ((k - 1) * (k - 2)))
        )
    return result


@pytest.mark.benchmark(group="moments of order 2, 10^6 x 4, k = 1000")
@pytest.mark.parametrize("which", ["core", "numpy"])
def test_moments(benchmark, million, which):
    if which == "core":
        benchmark.pedantic(cluster_moments, args=(*million, 2), rounds=5)
    else:
        benchmark.pedantic(numpy_moments, args=million, rounds=1)


@pytest.mark.benchmark(group="from labels to sampled records, 10^6 x 4, k = 1000")
@pytest.mark.parametrize("name", ["CM-2", "CM-3", "CM-8", "CM-12", "CM-15"])
def test_method(benchmark, million, name):
    U, labels = million
    queries = CATALOGUE[name].queries()

    def release():
        moments = queries.moments(U, labels)
        answers = [noisy_answers(query, 1) for query in queries.queries(moments)]
        repaired = repair_moments(queries.assemble(moments.sizes, D, answers)).moments
        return sample_records(labels, repaired)

    assert benchmark.pedantic(release, rounds=3).shape == U.shape


@pytest.mark.benchmark(group="nearest correlation matrix, 100 of 6 x 6")
@pytest.mark.parametrize("which", ["Newton", "Dykstra"])
def test_nearest_psd(benchmark, which):
    A = np.random.default_rng(0).normal(size=(100, 6, 6))
    A += A.swapaxes(1, 2)
    A[:, range(6), range(6)] = 1
    if which == "Newton":
        benchmark.pedantic(nearest_psd, args=(A,), rounds=5)
    else:
        benchmark.pedantic(lambda: [reference.dykstra_nearest_correlation(a) for a in A], rounds=1)


@pytest.mark.benchmark(group="10^6 x 4 normal records")
@pytest.mark.parametrize("which", ["core", "numpy"])
def test_sampling(benchmark, million, which):
    U, labels = million
    moments = cluster_moments(U, labels, 1)
    if which == "core":
        benchmark.pedantic(sample_records, args=(labels, moments), rounds=3)
        return

    def loop():
        rng = np.random.default_rng()
        out = np.empty_like(U)
        order = np.argsort(labels, kind="stable")
        for c, rows in enumerate(np.split(order, np.cumsum(moments.sizes)[:-1])):
            out[rows] = rng.multivariate_normal(moments.mean[c], moments.covariance[c], len(rows))
        return np.clip(out, 0, 1)

    benchmark.pedantic(loop, rounds=1)
