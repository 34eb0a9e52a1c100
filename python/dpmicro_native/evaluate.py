"""How much a release lost, for the curator's eyes only: everything here reads the original data."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InputError


def rank_match(original: ArrayLike, sampled: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """The sampled values in the order of the originals, within each cluster and attribute.

    The smallest sampled value of a cluster goes to the record with the cluster's smallest original value,
    and so on, attribute by attribute. ``labels`` is one label per record, or n x d where every
    attribute has its own partition. The result reads the original order: it must never be released.

    >>> rank_match([[3.0], [1.0], [2.0]], [[10.0], [30.0], [20.0]], [0, 0, 0]).tolist()
    [[30.0], [10.0], [20.0]]
    """
    X, Y = np.asarray(original, np.float64), np.asarray(sampled, np.float64)
    groups = np.asarray(labels)
    if X.ndim != 2 or X.shape != Y.shape:
        raise InputError("two tables of the same shape are needed, rows are records")
    if groups.shape not in (X.shape, X.shape[:1]):
        raise InputError("labels must be one per record, or one per record and attribute")
    matched = np.empty_like(Y)
    for j in range(X.shape[1]):
        cluster = groups if groups.ndim == 1 else groups[:, j]
        matched[np.lexsort((X[:, j], cluster)), j] = Y[np.lexsort((Y[:, j], cluster)), j]
    return matched


def rank_matched_sse(original: ArrayLike, sampled: ArrayLike, labels: ArrayLike) -> float:
    """Sum of squared errors after :func:`rank_match`, the figure that the cross-moment paper plots.

    Not a property of the release: nobody without the original data can restore that order.

    >>> rank_matched_sse([[3.0], [1.0]], [[1.0], [2.0]], [0, 0])
    1.0
    """
    matched = rank_match(original, sampled, labels)
    return float(((np.asarray(original, np.float64) - matched) ** 2).sum())
