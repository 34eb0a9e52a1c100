"""Noisy moments made valid again: the nearest moments that a distribution on the unit cube may have.

Never looks at the data, so it costs no privacy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .aggregate import Moments, Spectra
from .errors import InputError

if TYPE_CHECKING:
    from ._core import Progress  # exists in the stubs only

Array = NDArray[np.float64]


class Repaired(NamedTuple):
    """Valid moments (skewness: marginal), and for how many clusters the skewness had to be shrunk."""

    moments: Moments
    shrunk: int


def nearest_psd(
    A: ArrayLike, diagonal: ArrayLike | None = None, *, threads: int = 0, progress: Progress = None
) -> Array:
    """The positive semidefinite matrix with the given diagonal that is nearest to ``A``.

    ``A`` is a symmetric d x d matrix or a stack of them; ``diagonal`` defaults to A's own, clipped at 0.
    Nearness is measured after rescaling to unit diagonal: the nearest correlation matrix, by Qi & Sun's
    Newton method (2006), scaled back.

    >>> nearest_psd([[1.0, 2.0], [2.0, 1.0]])
    array([[1., 1.],
           [1., 1.]])
    """
    matrix = np.asarray(A)
    if matrix.ndim not in (2, 3) or matrix.shape[-1] != matrix.shape[-2] or matrix.size == 0:
        raise InputError("a square matrix is needed, or a stack of square matrices")
    if matrix.dtype.kind not in "fiu" or not np.isfinite(matrix).all():
        raise InputError("the matrix needs finite numbers; fill NaN and infinite values first")
    if np.abs(matrix - matrix.swapaxes(-1, -2)).max() > 1e-8 * np.abs(matrix).max():
        raise InputError("the matrix must be symmetric; take (A + A.T) / 2")
    stack = matrix.reshape(-1, *matrix.shape[-2:])
    stack = stack / 2 + stack.swapaxes(1, 2) / 2  # what rounding left; symmetric ones keep every bit
    if diagonal is None:
        diagonals = np.maximum(np.diagonal(stack, axis1=1, axis2=2), 0)
    else:
        diagonals = np.broadcast_to(np.asarray(diagonal, np.float64), matrix.shape[:-1]).reshape(
            len(stack), -1
        )
    return _core.nearest_psd(stack, diagonals, threads=threads, progress=progress).reshape(matrix.shape)


def repair_moments(noisy: Moments | Spectra, *, threads: int = 0, progress: Progress = None) -> Repaired:
    """Moments that records in the unit cube can be sampled from, near the noisy ones (CM, section 5.2).

    Means are clipped to [0, 1] and variances to [0, 1/4]; covariances become the nearest positive
    semidefinite matrix with these variances, so that |q_ij| <= 1/4; skewness is shrunk to what a skew-normal
    distribution can have. Of spectra, eigenvectors are made orthonormal and the covariance's
    eigenvalues clipped at 0 first. How many clusters were shrunk is for the curator's eyes.

    >>> noisy = Moments(np.array([5]), np.array([[1.2, 0.5]]), np.array([[[0.1, 0.9], [0.9, -0.1]]]))
    >>> repair_moments(noisy).moments.covariance
    array([[[0.1, 0. ],
            [0. , 0. ]]])
    """
    if isinstance(noisy, Spectra):
        noisy = _rebuild(noisy, threads)
    mean = np.clip(noisy.mean, 0, 1)
    if noisy.covariance is None:
        return Repaired(Moments(noisy.sizes, mean), 0)
    covariance = noisy.covariance
    if covariance.ndim == 2:
        covariance = np.clip(covariance, 0, 1 / 4)
    else:
        variances = np.clip(np.diagonal(covariance, axis1=1, axis2=2), 0, 1 / 4)
        covariance = _core.nearest_psd(covariance, variances, threads=threads, progress=progress)
    if noisy.skewness is None:
        return Repaired(Moments(noisy.sizes, mean, covariance), 0)
    skewness, shrunk = _core.feasible_skewness(
        covariance, marginal_skewness(noisy.skewness), threads=threads, progress=progress
    )
    return Repaired(Moments(noisy.sizes, mean, covariance, skewness), int(shrunk.sum()))


def marginal_skewness(skewness: Array) -> Array:
    """The entries φ_iii, clusters x d, of a coskewness that may hold no others."""
    return skewness if skewness.ndim == 2 else np.asarray(np.einsum("ciii->ci", skewness))


def _rebuild(spectra: Spectra, threads: int) -> Moments:
    """Symmetric matrices from noisy eigenvalues and eigenvectors."""
    d = spectra.mean.shape[1]

    def compose(values: Array, vectors: Array) -> Array:
        rows = _core.nearest_orthogonal(vectors.reshape(-1, d, d), threads=threads)
        return np.asarray(rows.swapaxes(1, 2) * values.reshape(-1, 1, d) @ rows)

    covariance = compose(np.maximum(spectra.values, 0), spectra.vectors)
    if spectra.skewness_values is None or spectra.skewness_vectors is None:
        return Moments(spectra.sizes, spectra.mean, covariance)
    slices = compose(spectra.skewness_values, spectra.skewness_vectors).reshape(-1, d, d, d)
    return Moments(spectra.sizes, spectra.mean, covariance, marginal_skewness(slices))
