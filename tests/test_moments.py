"""Moments against exact arithmetic; sensitivities against every vertex of the cube; budgets add up."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstat

from dpmicro_native import testing
from dpmicro_native._cm_catalogue import CATALOGUE
from dpmicro_native.aggregate import (
    STRATEGIES,
    MomentQueries,
    Moments,
    cluster_moments,
    covariance_sensitivity,
    eigenvalue_sensitivity,
    eigenvalues_sensitivity,
    eigenvector_sensitivity,
    mean_sensitivity,
    noisy_answers,
    skewness_sensitivity,
)
from dpmicro_native.errors import BudgetError, InputError
from reference import moments as reference

COEFFICIENT = [name for name, entry in CATALOGUE.items() if entry.noise and entry.family == "coefficient"]
EIGEN = [name for name, entry in CATALOGUE.items() if entry.family == "eigen"]


def random_labels(rng, n, clusters):
    labels = np.concatenate([np.arange(clusters), rng.integers(0, clusters, n - clusters)])
    return rng.permutation(labels).astype(np.int32)


# Moments


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_moments_equal_exact_arithmetic(d, offset):
    rng = np.random.default_rng(d)
    X = offset + rng.exponential(size=(60, d))
    labels = random_labels(rng, 60, 4)
    moments = cluster_moments(X, labels, 2)
    for c in range(4):
        records = reference.exact(X[labels == c])
        assert moments.sizes[c] == len(records)
        spread = X[labels == c].std(axis=0)
        assert moments.mean[c] == pytest.approx(np.array(reference.mean(records), float), rel=1e-15)
        for i in range(d):
            for j in range(d):
                exact = float(reference.covariance(records, i, j))
                assert abs(moments.covariance[c, i, j] - exact) <= 1e-13 * spread[i] * spread[j]
                for m in range(d):
                    exact = float(reference.coskewness(records, i, j, m))
                    scale = spread[i] * spread[j] * spread[m]
                    assert abs(moments.skewness[c, i, j, m] - exact) <= 1e-12 * scale


def test_large_clusters_equal_numpy_and_scipy():
    rng = np.random.default_rng(0)
    X = rng.gamma(2.0, size=(9000, 3)) @ rng.normal(size=(3, 3))
    labels = (rng.random(9000) < 0.3).astype(np.int32)  # both clusters span several blocks
    moments = cluster_moments(X, labels, 2)
    for c in (0, 1):
        Y = X[labels == c]
        np.testing.assert_allclose(moments.covariance[c], np.cov(Y.T), rtol=1e-12)
        marginal = [kstat(Y[:, j], 3) for j in range(3)]
        np.testing.assert_allclose(np.einsum("iii->i", moments.skewness[c]), marginal, rtol=1e-12)


def test_threads_and_storage_order_do_not_change_a_bit():
    rng = np.random.default_rng(1)
    X = rng.random((20000, 3))
    labels = random_labels(rng, 20000, 50)
    labels[rng.random(20000) < 0.5] = 0
    first = cluster_moments(X, labels, 2, threads=1)
    for other in (cluster_moments(X, labels, 2, threads=3), cluster_moments(np.asfortranarray(X), labels, 2)):
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_marginal_moments_are_the_diagonals():
    rng = np.random.default_rng(2)
    X, labels = rng.random((300, 3)), random_labels(rng, 300, 7)
    full = cluster_moments(X, labels, 2)
    marginal = cluster_moments(X, labels, 2, marginal=("covariance", "skewness"))
    np.testing.assert_allclose(marginal.covariance, np.einsum("cii->ci", full.covariance), rtol=1e-14)
    np.testing.assert_allclose(marginal.skewness, np.einsum("ciii->ci", full.skewness), atol=1e-16)
    mixed = cluster_moments(X, labels, 2, marginal=["covariance"])
    np.testing.assert_array_equal(mixed.skewness, full.skewness)
    np.testing.assert_array_equal(mixed.covariance, marginal.covariance)


def test_orders_and_clusters_too_small_for_a_moment():
    X = np.array([[0.1, 0.2], [0.4, 0.9], [0.5, 0.5]])
    zero = cluster_moments(X, [0, 1, 1], 0)
    assert zero.covariance is None
    assert zero.skewness is None
    moments = cluster_moments(X, [0, 1, 1], 2)
    assert (moments.covariance[0] == 0).all()
    assert (moments.covariance[1] != 0).any()
    assert (moments.skewness == 0).all()


def test_constant_columns_have_variance_exactly_zero():
    moments = cluster_moments(np.full((1000, 2), 0.1), np.arange(1000) % 3, 2)
    assert (moments.covariance >= 0).all()
    assert np.abs(moments.covariance).max() < 1e-30
    assert np.abs(moments.skewness).max() < 1e-30


@pytest.mark.parametrize(
    ("labels", "order", "reason"),
    [
        ([0, 2, 2], 1, "without gaps"),
        ([0, -1, 0], 1, "0 or larger"),
        ([0, 5, 0], 1, "more clusters"),
        ([0, 0], 1, "one label per record"),
        ([0, 0, 0], 3, "order"),
    ],
)
def test_bad_input_is_refused(labels, order, reason):
    with pytest.raises(InputError, match=reason):
        cluster_moments(np.ones((3, 2)), np.array(labels, np.int32), order)


def test_unknown_marginal_is_refused():
    with pytest.raises(InputError, match="marginal"):
        cluster_moments(np.ones((3, 2)), [0, 0, 0], 1, marginal="covariances")


# Sensitivities


@pytest.mark.parametrize("k", range(2, 8))
def test_covariance_sensitivity_is_exact(k):
    assert reference.vertex_sensitivity(partial(reference.covariance, i=0, j=1), k, 2) == Fraction(1, k)
    assert covariance_sensitivity(k) == Fraction(1, k)


@pytest.mark.parametrize("k", range(3, 7))
def test_coskewness_sensitivity_is_exact(k):
    exact = reference.vertex_sensitivity(partial(reference.coskewness, i=0, j=1, k=2), k, 3)
    assert exact == skewness_sensitivity(k) == (Fraction(2, 3) if k == 3 else Fraction(1, k))


@pytest.mark.parametrize("k", range(3, 9))
@pytest.mark.parametrize("index", [(0, 0, 0), (0, 0, 1)])
def test_coskewness_with_repeated_attributes_stays_within(k, index):
    i, j, m = index

    def phi(records):
        y = records - records.mean(axis=0)
        return (y[:, i] * y[:, j] * y[:, m]).sum() * k / ((k - 1) * (k - 2))

    found = reference.largest_change(phi, k, 1 + max(index), np.random.default_rng(k), starts=6)
    bound = float(skewness_sensitivity(k))
    assert found <= bound + 1e-12
    assert found >= 0.9 * bound  # the search is worth something


@pytest.mark.parametrize("k", range(2, 8))
def test_variance_sensitivity_by_search(k):
    found = reference.largest_change(lambda x: x[:, 0].var(ddof=1), k, 1, np.random.default_rng(k), starts=4)
    assert 0.9 / k <= found <= 1 / k + 1e-12


def test_erratum_coskewness_of_three_records():
    """CM, Proposition 8 says 1/k for every k >= 3."""
    before, after = ([[Fraction(x)] for x in cluster] for cluster in ((0, 0, 1), (0, 1, 1)))
    assert reference.coskewness(before, 0, 0, 0) == Fraction(1, 3)
    assert reference.coskewness(after, 0, 0, 0) == Fraction(-1, 3)
    assert skewness_sensitivity(3) == Fraction(2, 3) > Fraction(1, 3)


def first_eigenvector(records):
    values, vectors = np.linalg.eigh(np.cov(records.T))
    return vectors[:, -1], values[-1] - values[-2]


def test_erratum_eigenvector_bound():
    """CM, Proposition 9 bounds the first eigenvector's change by √d d / (k gap)."""
    k, d = 50, 2
    before = np.zeros((k, d))
    before[0], before[1] = (0.8, 0), (1, 0)
    after = before.copy()
    after[1] = (0, 1)
    v, gap = first_eigenvector(before)
    w, _ = first_eigenvector(after)
    change = min(np.abs(v - w).sum(), np.abs(v + w).sum())
    assert change > 1.95 > 1.76 > np.sqrt(d) * d / (k * gap)
    assert change <= eigenvector_sensitivity(1 / k, gap, d)


@pytest.mark.parametrize("d", [2, 3])
def test_eigenvector_bound_holds_for_random_matrices(d):
    """A symmetric perturbation of norm at most d * entry, small and large, turned every way."""
    rng = np.random.default_rng(d)
    largest = 0.0
    for _ in range(4000):
        A = np.diag(np.sort(rng.random(d))[::-1])
        E = rng.normal(size=(d, d))
        E += E.T
        entry = rng.random() ** 3 / d
        E *= d * entry / np.linalg.norm(E, 2)
        w = np.linalg.eigh(A + E)[1][:, ::-1]
        for i in range(d):
            gap = min(abs(A[i, i] - A[j, j]) for j in range(d) if j != i)
            v = np.eye(d)[i]
            change = min(np.linalg.norm(v - w[:, i]), np.linalg.norm(v + w[:, i]))
            bound = eigenvector_sensitivity(entry, gap, d) / np.sqrt(d)  # its 2-norm
            assert change <= bound * (1 + 1e-9)
            largest = max(largest, change / bound)
    assert largest > 0.9  # and it is nearly attained


def test_sensitivities_of_eigenvalues_are_rounded_up():
    assert eigenvalue_sensitivity(Fraction(1, 10), 3) == Fraction(3, 10)
    assert eigenvalues_sensitivity(Fraction(1, 10), 4) == Fraction(8, 10)
    for d in (2, 3, 5):
        bound = eigenvalues_sensitivity(Fraction(1, 10), d)
        assert 0 < bound**2 - Fraction(d**3, 100) < Fraction(1, 2**30)


def test_one_attribute_has_one_eigenvector():
    assert eigenvector_sensitivity(0.5, np.inf, 1) == 0


# Queries and budgets


def neighbours(draw_or_rng, k, d):
    before = draw_or_rng.random((k, d))
    before[draw_or_rng.random((k, d)) < 0.6] = 0.0
    after = before.copy()
    after[0] = draw_or_rng.integers(0, 2, d)
    return before, after


def privacy_loss(queries, before, after):
    """Σ share · |f(C') - f(C)|₁ / sensitivity, which must not exceed 1; signs of vectors do not count."""
    labels = np.zeros(len(before), np.int32)
    d = before.shape[1]
    first, second = (queries.queries(queries.moments(x, labels)) for x in (before, after))
    flat = [np.concatenate([q.values[0].ravel() for q in parts]) for parts in (first, second)]
    price = np.concatenate([np.repeat(q.sensitivity[0] / float(q.share), q.values.shape[2]) for q in first])
    loss, start = 0.0, 0
    for statistic in queries._statistics(d):
        end = start + statistic.queries * statistic.entries
        a, b, p = (x[start:end].reshape(statistic.queries, -1) for x in (*flat, price))
        change = np.abs(a - b).sum(axis=1)
        if statistic.name.endswith("eigenvectors"):
            change = np.minimum(change, np.abs(a + b).sum(axis=1))
        loss += (change / p[:, 0]).sum()
        start = end
    return loss


@pytest.mark.parametrize("name", [*COEFFICIENT, *EIGEN])
def test_privacy_loss_of_random_neighbours_is_within_budget(name):
    queries = CATALOGUE[name].queries()
    rng = np.random.default_rng(5)
    losses = [privacy_loss(queries, *neighbours(rng, k, d)) for k in (3, 4, 5, 8, 20) for d in (1, 2, 3)]
    assert max(losses) <= 1


@pytest.mark.parametrize("name", COEFFICIENT)
def test_joint_and_separate_sensitivities_are_attained(name):
    """All others at the lower corner, one record from there to the upper corner."""
    before = np.zeros((6, 3))
    after = before.copy()
    after[0] = 1
    assert privacy_loss(CATALOGUE[name].queries(), before, after) == pytest.approx(1, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(1, 9),
    d=st.integers(1, 3),
    name=st.sampled_from(COEFFICIENT),
    seed=st.integers(0, 2**32 - 1),
)
def test_privacy_loss_property(k, d, name, seed):
    assert privacy_loss(CATALOGUE[name].queries(), *neighbours(np.random.default_rng(seed), k, d)) <= 1


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("m", [1, 2])
def test_algorithm_1_draws_and_scales(d, m):
    labels = np.zeros(10, np.int32)
    U = np.random.default_rng(0).random((10, d))
    queries = MomentQueries(m, "eigen")
    (query,) = queries.queries(queries.moments(U, labels))
    assert query.values.size == reference.draws(d, m, eigen=True)
    if m == 1:
        queries = MomentQueries(1)
        (query,) = queries.queries(queries.moments(U, labels))
        assert query.values.size == reference.draws(d, 1, eigen=False)
        assert query.sensitivity[0, 0] == pytest.approx(reference.joint_numerator(d, 1) / 10, rel=1e-9)
    assert mean_sensitivity(10, d) == Fraction(d, 10)


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_shares_add_up(name):
    queries = CATALOGUE[name].queries()
    for d in (1, 2, 4):
        assert sum(queries.budget(d).values()) == 1
        rng = np.random.default_rng(d)
        parts = queries.queries(queries.moments(rng.random((12, d)), np.arange(12) // 6))
        assert sum(q.share * q.values.shape[1] for q in parts) == 1
        assert all(q.sensitivity.shape == q.values.shape[:2] for q in parts)


def test_methods_3_and_6_have_the_same_noise():
    """CM, section 5.5 finds their errors very similar; their scales are equal."""
    rng = np.random.default_rng(0)
    U, labels = rng.random((40, 3)), np.arange(40) // 10
    scales = []
    for name in ("CM-3", "CM-6"):
        queries = CATALOGUE[name].queries()
        parts = queries.queries(queries.moments(U, labels))
        scales.append(
            np.concatenate(
                [
                    np.repeat(q.sensitivity / float(q.share), q.values.shape[2], axis=1).reshape(4, -1)
                    for q in parts
                ],
                axis=1,
            )
        )
    np.testing.assert_allclose(*scales, rtol=1e-9)
    np.testing.assert_allclose(scales[0], 2 * 3 / 10, rtol=1e-9)


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_assembling_exact_answers_gives_the_moments_back(name):
    queries = CATALOGUE[name].queries()
    rng = np.random.default_rng(3)
    moments = queries.moments(rng.random((30, 3)), np.arange(30) // 10)
    parts = queries.queries(moments)
    back = queries.assemble(moments.sizes, 3, [q.values for q in parts])
    if isinstance(back, Moments):
        for a, b in zip(moments, back, strict=True):
            if a is not None:
                np.testing.assert_array_equal(a, b)
    else:
        Q = np.einsum("cia,ci,cib->cab", back.vectors, back.values, back.vectors)
        np.testing.assert_allclose(Q, moments.covariance, atol=1e-14)
        if back.skewness_values is not None:
            v, w = back.skewness_vectors, back.skewness_values
            np.testing.assert_allclose(
                np.einsum("csia,csi,csib->csab", v, w, v), moments.skewness, atol=1e-14
            )


def test_noise_has_the_scale_that_was_paid_for():
    """Two different cluster sizes: mean absolute deviation of Laplace noise is its scale."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(600), np.where(np.arange(600) < 300, 5, 20))
    U = rng.random((len(labels), 2))
    queries = MomentQueries(2, weights=STRATEGIES[2, 1])
    moments = queries.moments(U, labels)
    with testing.seeded(7):
        for query in queries.queries(moments):
            noise = np.abs(noisy_answers(query, 2) - query.values)
            scale = query.sensitivity[:, :, None] / float(query.share * 2)
            for rows in (slice(0, 300), slice(300, 600)):
                ratio = (noise[rows] / scale[rows]).mean()
                error = 1 / np.sqrt(noise[rows].size)  # standard deviation of |Laplace| is its mean
                assert abs(ratio - 1) < 5 * error < 0.3


@pytest.mark.parametrize("weights", [(0.5, 0.4), (1.0,), (1.0, 0.0), (1.5, -0.5)])
def test_weights_that_do_not_add_up_are_refused(weights):
    with pytest.raises(BudgetError, match="add up"):
        MomentQueries(1, weights=weights)


@pytest.mark.parametrize(
    "arguments",
    [
        {"order": 3},
        {"order": 1, "family": "spectral"},
        {"order": 1, "terms": "all"},
        {"order": 0, "family": "eigen"},
        {"order": 1, "family": "eigen", "terms": "variances"},
    ],
)
def test_unknown_queries_are_refused(arguments):
    with pytest.raises(InputError):
        MomentQueries(**arguments)


# The catalogue


def test_catalogue_is_the_papers():
    assert list(CATALOGUE) == [f"CM-{i}" for i in range(1, 27)] + [f"B{i}" for i in range(1, 9)]
    assert len({entry[1:] for entry in CATALOGUE.values()}) == len(CATALOGUE)  # no column twice
    # What section 5.5 says in words about some of them.
    three, six, twelve = (CATALOGUE[f"CM-{i}"] for i in (3, 6, 12))
    assert (three.order, three.algorithm, three.terms) == (1, "joint", "variances")
    assert (six.order, six.algorithm, six.terms, six.strategy) == (1, "separate", "variances", 1)
    assert (twelve.order, twelve.algorithm, twelve.terms) == (2, "separate", "variances")
    assert CATALOGUE["CM-15"].algorithm == "separate"
    assert [n for n in EIGEN if CATALOGUE[n].algorithm == "joint"] == ["CM-14", "CM-17"]
    assert [f"CM-{i}" for i in range(14, 20)] == EIGEN
    assert all(CATALOGUE[f"CM-{i}"].partition == "IR-MDAV" for i in range(20, 27))
    for order, joint in combinations_with_replacement((1, 2), 2):
        assert sum(STRATEGIES[order, joint]) == 1
