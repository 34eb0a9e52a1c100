"""Sampled records have the moments they were drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from dpmicro_native import testing
from dpmicro_native.aggregate import Moments
from dpmicro_native.errors import InputError
from dpmicro_native.repair import repair_moments
from dpmicro_native.sample import sample_records

N = 200_000
SIGMA = 0.04  # means in the middle lie 10 deviations from the bounds: truncation does nothing


def draw(mean, covariance, skewness=None, n=N, seed=1, threads=0):
    moments = Moments(
        np.array([n]),
        np.array([mean], float),
        np.array([covariance], float),
        None if skewness is None else np.array([skewness], float),
    )
    with testing.seeded(seed):
        return sample_records(np.zeros(n, np.int32), moments, threads=threads)


def assert_moments(records, mean, covariance, skewness):
    """Within 5 standard errors, which are estimated from the sample; and they are small."""
    n, d = records.shape
    y = records - records.mean(axis=0)

    def close(terms, target, scale):
        error = terms.std() / np.sqrt(n)
        assert abs(terms.mean() - target) < 5 * error
        assert error < 0.02 * scale  # so a wrong target would be noticed

    for i in range(d):
        close(records[:, i], mean[i], SIGMA)
        # The third moment's error includes that of the mean: y^3 - 3 σ² y is uncorrelated with it.
        close(y[:, i] ** 3 - 3 * y[:, i].var() * y[:, i], skewness[i], SIGMA**3)
        for j in range(d):
            close(y[:, i] * y[:, j], covariance[i][j], SIGMA**2)


@pytest.mark.parametrize("correlation", [-0.95, 0.0, 0.6, 1.0])
def test_normal_records(correlation):
    covariance = SIGMA**2 * np.array([[1, correlation / 2], [correlation / 2, 0.25]])
    records = draw([0.4, 0.6], covariance)
    assert_moments(records, [0.4, 0.6], covariance, [0, 0])


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.8])
@pytest.mark.parametrize("gamma", [(0.0, 0.3), (0.5, 0.5), (-0.4, 0.1), (0.2, 0.6)])
def test_multivariate_skew_normal_records(correlation, gamma):
    covariance = SIGMA**2 * np.array([[1, correlation], [correlation, 1]])
    target = SIGMA**3 * np.array(gamma)
    moments, shrunk = repair_moments(
        Moments(np.array([N]), np.array([[0.5, 0.5]]), covariance[None], target[None])
    )
    records = draw([0.5, 0.5], covariance, moments.skewness[0])
    assert_moments(records, [0.5, 0.5], covariance, moments.skewness[0])
    c = np.cbrt(2 * np.array(gamma) / (4 - np.pi))
    feasible = (np.pi - 2) / 2 * c @ np.linalg.inv(covariance / SIGMA**2) @ c <= 1
    assert shrunk == (not feasible)
    if feasible:
        np.testing.assert_array_equal(moments.skewness[0], target)


@pytest.mark.parametrize("gamma", [-0.99, -0.3, 0.0, 0.5, 0.9, 0.99])
def test_univariate_skew_normal_records(gamma):
    """With variances only, every attribute is a skew-normal by itself and all are independent."""
    variances = SIGMA**2 * np.array([1.0, 0.5])
    skewness = gamma * variances**1.5
    records = draw([0.5, 0.5], variances, skewness)
    assert_moments(records, [0.5, 0.5], np.diag(variances), skewness)


def test_skew_normal_has_azzalinis_distribution():
    from scipy import stats

    alpha = 3.0
    delta = alpha / np.sqrt(1 + alpha**2)
    mean, variance, gamma = stats.skewnorm.stats(alpha, moments="mvs")
    scale = SIGMA / np.sqrt(variance)
    records = draw([0.5], [[SIGMA**2]], [gamma * SIGMA**3], n=50_000)
    location = 0.5 - scale * mean
    assert delta < 1
    assert stats.kstest(records[:, 0], stats.skewnorm(alpha, location, scale).cdf).pvalue > 1e-6
    assert stats.kstest(records[:, 0], stats.norm(0.5, SIGMA).cdf).pvalue < 1e-6  # the test has power


def test_means_are_repeated_and_truncated():
    moments = Moments(np.array([2, 1]), np.array([[0.25, 0.5], [1.0, 0.0]]))
    np.testing.assert_array_equal(
        sample_records(np.array([0, 1, 0]), moments), [[0.25, 0.5], [1.0, 0.0], [0.25, 0.5]]
    )


def test_records_stay_in_the_unit_cube():
    records = draw([0.01, 0.99], 0.25 * np.eye(2), n=2000)
    assert records.min() == 0
    assert records.max() == 1


def test_records_go_to_the_rows_of_their_cluster():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(20000) % 50).astype(np.int32)
    mean = rng.random((50, 2)) * 0.5 + 0.25
    tiny = np.tile(1e-8 * np.eye(2), (50, 1, 1))
    records = sample_records(labels, Moments(np.full(50, 400), mean, tiny))
    assert np.abs(records - mean[labels]).max() < 1e-3
    assert len(np.unique(records)) == records.size


def test_threads_do_not_change_a_seeded_sample():
    first = draw([0.5, 0.5], 0.01 * np.eye(2), [1e-4, 0], n=30_000, threads=1)
    np.testing.assert_array_equal(first, draw([0.5, 0.5], 0.01 * np.eye(2), [1e-4, 0], n=30_000, threads=3))
    assert (first != draw([0.5, 0.5], 0.01 * np.eye(2), [1e-4, 0], n=30_000, seed=2)).all()


def test_unseeded_samples_differ():
    moments = Moments(np.array([100]), np.array([[0.5]]), np.array([[[0.01]]]))
    a, b = (sample_records(np.zeros(100, np.int32), moments) for _ in range(2))
    assert (a != b).all()


@pytest.mark.parametrize(
    ("covariance", "skewness"),
    [
        ([[0.01, 0.02], [0.02, 0.01]], None),
        ([[0.01, 0.0], [0.0, -0.01]], None),
        ([[0.01, 0.0], [0.0, 0.01]], [1e-3, 1e-3]),
        ([0.01, -0.01], None),
        ([0.01, 0.01], [0.0, 2e-3]),
    ],
)
def test_impossible_moments_are_refused(covariance, skewness):
    with pytest.raises(InputError, match="repair"):
        draw([0.5, 0.5], covariance, skewness, n=3)


def test_mismatched_moments_are_refused():
    moments = Moments(np.array([3]), np.array([[0.5]]))
    with pytest.raises(InputError, match="another number of clusters"):
        sample_records(np.array([0, 1, 1]), moments)
    with pytest.raises(InputError, match="same clusters"):
        sample_records(np.zeros(3, np.int32), moments._replace(covariance=np.ones((1, 2, 2))))
    with pytest.raises(InputError, match="without covariance"):
        sample_records(np.zeros(3, np.int32), moments._replace(skewness=np.ones((1, 1))))
