"""Repaired moments: nearest, valid, and untouched when valid already."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmicro_native import _core
from dpmicro_native.aggregate import MomentQueries, Moments, Spectra, cluster_moments
from dpmicro_native.errors import InputError
from dpmicro_native.repair import nearest_psd, repair_moments
from reference import moments as reference


def symmetric(rng, d, scale=1.0):
    A = rng.normal(size=(d, d)) * scale
    return (A + A.T) / 2


def correlation_of(A):
    deviation = np.sqrt(np.diagonal(A))
    return A / np.outer(deviation, deviation)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
def test_nearest_psd_agrees_with_dykstra(d, scale):
    rng = np.random.default_rng(d)
    for _ in range(3):
        G = symmetric(rng, d, scale)
        np.fill_diagonal(G, 1)
        np.testing.assert_allclose(nearest_psd(G), reference.dykstra_nearest_correlation(G), atol=1e-9)


def test_nearest_psd_rescales_to_the_given_diagonal():
    rng = np.random.default_rng(1)
    diagonal = np.array([1e-4, 0.25, 3.0, 0.01])
    scale = np.sqrt(np.outer(diagonal, diagonal))
    G = symmetric(rng, 4, 2.0)
    result = nearest_psd(G * scale, diagonal)
    np.testing.assert_array_equal(np.diagonal(result), diagonal)
    np.fill_diagonal(G, 1)
    np.testing.assert_allclose(result / scale, reference.dykstra_nearest_correlation(G), atol=1e-9)


def test_entries_that_dwarf_the_diagonal():
    """Beyond 1000 times the allowed size it is nearest to about 1e-3: the optimality conditions say so."""
    rng = np.random.default_rng(1)
    for scale in (1e4, 1e6, 1e9):
        G = symmetric(rng, 5, scale)
        np.fill_diagonal(G, 1)
        X = nearest_psd(G)
        # X solves the problem if Z = X - G - diag(y) >= 0 and X Z = 0 for some y.
        Z = X - G - np.diag(np.diagonal(X @ (X - G)))
        assert np.linalg.eigvalsh(Z)[0] >= -2e-3 * np.linalg.norm(G)
        assert np.abs(X @ Z).max() <= 2e-3 * np.linalg.norm(G)


@settings(max_examples=80, deadline=None)
@given(
    d=st.integers(1, 7), scale=st.floats(1e-3, 1e7), zeros=st.integers(0, 3), seed=st.integers(0, 2**32 - 1)
)
def test_nearest_psd_is_valid_and_idempotent(d, scale, zeros, seed):
    rng = np.random.default_rng(seed)
    A = symmetric(rng, d, scale)
    diagonal = rng.random(d)
    diagonal[: min(zeros, d)] = 0
    result = nearest_psd(A, diagonal)
    np.testing.assert_array_equal(np.diagonal(result), diagonal)
    np.testing.assert_array_equal(result, result.T)
    assert (result[diagonal == 0] == 0).all()
    positive = result[np.ix_(diagonal > 0, diagonal > 0)]
    if positive.size:
        assert np.linalg.eigvalsh(correlation_of(positive))[0] >= -1e-13 * d
    np.testing.assert_array_equal(nearest_psd(result), result)


def test_valid_matrices_are_untouched():
    X = np.random.default_rng(0).random((50, 5))
    Q = np.cov(X.T)
    np.testing.assert_array_equal(nearest_psd(Q), Q)


def test_rounding_in_the_symmetry_is_forgiven():
    A = np.array([[1.0, 1e-17, 2.0], [-1e-17, 1.0, 0.5], [2.0, 0.5, 1.0]])
    np.testing.assert_array_equal(nearest_psd(A), nearest_psd((A + A.T) / 2))


def test_own_diagonal_is_clipped_at_zero():
    A = np.array([[-1.0, 0.5], [0.5, 2.0]])
    np.testing.assert_array_equal(nearest_psd(A), [[0, 0], [0, 2]])


def test_stacks_equal_single_matrices_for_every_number_of_threads():
    rng = np.random.default_rng(2)
    stack = np.array([symmetric(rng, 4) for _ in range(300)])
    together = nearest_psd(stack, np.ones(4), threads=3)
    np.testing.assert_array_equal(together, nearest_psd(stack, np.ones(4), threads=1))
    for single, A in zip(together[:20], stack, strict=False):
        np.testing.assert_array_equal(single, nearest_psd(A, np.ones(4)))


@pytest.mark.parametrize(
    ("A", "diagonal", "reason"),
    [
        ([[1.0, 2.0]], None, "square"),
        ([[1.0, 2.0], [0.0, 1.0]], None, "symmetric"),
        ([[1.0, np.nan], [np.nan, 1.0]], None, "finite"),
        ([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], "negative"),
    ],
)
def test_bad_matrices_are_refused(A, diagonal, reason):
    with pytest.raises(InputError, match=reason):
        nearest_psd(A, diagonal)


def test_repaired_moments_are_valid():
    rng = np.random.default_rng(3)
    c, d = 200, 3
    noise = np.array([symmetric(rng, d, 0.3) for _ in range(c)])
    noisy = Moments(np.full(c, 10), rng.normal(0.5, 1, (c, d)), noise, rng.normal(0, 0.1, (c, d)))
    moments, shrunk = repair_moments(noisy)
    assert moments.mean.min() == 0
    assert moments.mean.max() == 1
    variances = np.einsum("cii->ci", moments.covariance)
    assert variances.min() >= 0
    assert variances.max() <= 1 / 4
    assert np.abs(moments.covariance).max() <= 1 / 4 + 1e-15
    assert np.linalg.eigvalsh(moments.covariance).min() >= -1e-14
    assert 0 < shrunk <= c
    again = repair_moments(moments)
    assert again.shrunk == 0
    for a, b in zip(again.moments, moments, strict=True):
        np.testing.assert_array_equal(a, b)


def test_variances_are_repaired_without_covariances():
    noisy = Moments(np.array([9]), np.array([[0.5, 0.5]]), np.array([[-0.1, 0.4]]), np.array([[0.1, 0.001]]))
    moments, shrunk = repair_moments(noisy)
    np.testing.assert_array_equal(moments.covariance, [[0, 0.25]])
    np.testing.assert_allclose(moments.skewness, [[0, 0.001]])
    assert shrunk == 1


def test_means_alone():
    moments, shrunk = repair_moments(Moments(np.array([3]), np.array([[-0.5, 1.5]])))
    np.testing.assert_array_equal(moments.mean, [[0, 1]])
    assert moments.covariance is None
    assert shrunk == 0


# Skewness


def feasible(Q, phi):
    """Σ - (1 - 2/π) s s' is positive semidefinite, straight from the definition."""
    s = np.cbrt(phi / (np.sqrt(2 / np.pi) * (4 / np.pi - 1)))
    left = Q - (1 - 2 / np.pi) * np.outer(s, s)
    return np.linalg.eigvalsh(left)[0] >= -1e-10 * np.trace(Q)


def test_univariate_skewness_is_clipped_at_azzalinis_limit():
    skewness, shrunk = _core.feasible_skewness([[0.04], [0.04], [0.04]], [[0.0075], [0.0081], [-0.1]])
    limit = 0.5 * (4 - np.pi) * (2 / (np.pi - 2)) ** 1.5  # 0.99527
    np.testing.assert_array_equal(shrunk, [False, True, True])
    np.testing.assert_allclose(skewness[:, 0], [0.0075, limit * 0.008, -limit * 0.008], rtol=1e-8)


@settings(max_examples=100, deadline=None)
@given(d=st.integers(1, 5), rank=st.integers(1, 5), size=st.floats(0, 30), seed=st.integers(0, 2**32 - 1))
def test_multivariate_skewness_becomes_the_nearest_feasible(d, rank, size, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, min(rank, d)))
    Q = root @ root.T
    c = rng.normal(size=d) * size / np.sqrt(d)
    sigma = np.sqrt(np.diagonal(Q))
    unit = np.sqrt(2 / np.pi) * (4 / np.pi - 1) * (np.pi / 2) ** 1.5
    phi = unit * (c * sigma) ** 3
    result, shrunk = _core.feasible_skewness(Q[None], phi[None])
    assert feasible(Q, result[0])
    if not shrunk[0]:
        np.testing.assert_array_equal(result[0], phi)
        return
    moved = np.cbrt(result[0] / unit) / sigma
    assert np.linalg.norm(moved) <= np.linalg.norm(c) * (1 + 1e-9)
    # Nearest: no feasible point on the way from the result to c, nor a random one, is nearer.
    R = correlation_of(Q)
    vectors = np.linalg.eigh(R)
    for _ in range(20):
        other = vectors[1] @ (rng.normal(size=d) * np.sqrt(np.maximum(vectors[0], 0)))
        other *= (
            rng.random()
            * np.sqrt(2 / (np.pi - 2))
            / max(np.sqrt(other @ np.linalg.pinv(R, rcond=1e-10) @ other), 1e-300)
        )
        assert np.linalg.norm(moved - c) <= np.linalg.norm(other - c) + 1e-6 * (1 + np.linalg.norm(c))


def test_feasible_multivariate_skewness_is_untouched():
    Q = np.array([[[0.02, 0.01], [0.01, 0.03]]])
    phi = np.array([[0.0008, 0.0009]])
    result, shrunk = _core.feasible_skewness(Q, phi)
    assert not shrunk[0]
    np.testing.assert_array_equal(result, phi)


# Spectra


def test_exact_spectra_are_rebuilt():
    rng = np.random.default_rng(4)
    U, labels = rng.random((40, 3)), np.arange(40) // 20
    queries = MomentQueries(2, "eigen")
    moments = queries.moments(U, labels)
    spectra = queries.assemble(moments.sizes, 3, [q.values for q in queries.queries(moments)])
    assert isinstance(spectra, Spectra)
    repaired, shrunk = repair_moments(spectra)
    np.testing.assert_allclose(repaired.covariance, moments.covariance, atol=1e-14)
    if shrunk == 0:
        np.testing.assert_allclose(repaired.skewness, np.einsum("ciii->ci", moments.skewness), atol=1e-14)


def test_noisy_spectra_become_valid():
    rng = np.random.default_rng(5)
    c, d = 50, 3
    spectra = Spectra(
        np.full(c, 9),
        rng.random((c, d)),
        rng.normal(0, 0.2, (c, d)),
        rng.normal(0, 3, (c, d, d)),
        rng.normal(0, 0.1, (c, d, d)),
        rng.normal(0, 3, (c, d, d, d)),
    )
    moments, _ = repair_moments(spectra)
    assert np.linalg.eigvalsh(moments.covariance).min() >= -1e-14
    assert moments.skewness.shape == (c, d)


def test_nearest_orthogonal_is_the_polar_factor():
    A = np.random.default_rng(6).normal(size=(5, 4, 4))
    result = _core.nearest_orthogonal(A)
    for a, q in zip(A, result, strict=True):
        u, _, v = np.linalg.svd(a)
        np.testing.assert_allclose(q, u @ v, atol=1e-12)


def test_eigengaps():
    Q = np.diag([0.5, 0.1, 0.4])[None]
    values, vectors, gaps = _core.symmetric_eigen(Q)
    np.testing.assert_allclose(values, [[0.5, 0.4, 0.1]])
    np.testing.assert_allclose(gaps, [[0.1, 0.1, 0.3]])
    np.testing.assert_allclose(np.abs(vectors[0]), np.eye(3)[[0, 2, 1]])
    assert _core.symmetric_eigen([[[2.0]]])[2] == np.inf


def test_moments_of_records_need_no_repair_but_shrinking():
    rng = np.random.default_rng(7)
    moments = cluster_moments(rng.random((60, 2)), np.arange(60) // 20, 1)
    repaired, shrunk = repair_moments(moments)
    np.testing.assert_array_equal(repaired.covariance, moments.covariance)
    assert shrunk == 0
