"""Records again, drawn from the (noisy, repaired) moments of their clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .aggregate import Moments
from .repair import marginal_skewness

if TYPE_CHECKING:
    from ._core import Progress  # exists in the stubs only


def sample_records(
    labels: ArrayLike, moments: Moments, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.float64]:
    """One record in the unit cube for each label, from the moments of the label's cluster.

    Means alone are repeated; with a covariance, records are drawn from a normal distribution, and with
    skewness from Azzalini's skew-normal (multivariate; if only variances are given, every attribute by
    itself). Values are truncated to [0, 1]. Drawn from the system's generator.

    >>> from dpmicro_native.aggregate import cluster_moments
    >>> sample_records([0, 1, 0], cluster_moments([[0.2], [0.9], [0.4]], [0, 1, 0], 0)).round(2).tolist()
    [[0.3], [0.9], [0.3]]
    """
    skewness = None if moments.skewness is None else marginal_skewness(moments.skewness)
    return _core.sample_records(
        labels, moments.mean, moments.covariance, skewness, threads=threads, progress=progress
    )
