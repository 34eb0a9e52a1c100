"""How far a release is from the table it came from. For the curator's eyes only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InputError
from .schema import Schema

if TYPE_CHECKING:
    from .release import Masked


@dataclass(frozen=True)
class Evaluation:
    """Utility figures computed from the original records: never publish them."""

    records: int
    records_dropped: int  # beyond an individual's max_records
    clusters: dict[str, int]  # per group of attributes
    sse: float  # in raw units
    sse_before_truncation: float
    sse_expected: float  # of clustering and noise together, before truncation, in closed form
    information_loss: float  # 100 SSE/SST, in the unit cube

    def to_json(self) -> str:
        """The figures as JSON text."""
        return json.dumps(asdict(self), indent=2)


def evaluate_masked(masked: Masked, schema: Schema, dropped: int) -> Evaluation:
    """Compare the masked records with the originals they stand for."""
    from .partition import sse

    widths = np.array([float(schema.bounds(name).width) for name in masked.names])
    U, V = masked.original, masked.released
    clipped = np.clip(V, 0.0, 1.0)
    losses = ((clipped - U) ** 2).sum(axis=0)
    expected = sum(
        sse(U[:, [masked.names.index(name)]], labels) * float(schema.bounds(name).width) ** 2
        for group, labels in masked.labels.items()
        for name in group
    ) + sum(
        variance * float(schema.bounds(name).width) ** 2 for name, variance in masked.noise_variance.items()
    )
    total = ((U - U.mean(axis=0)) ** 2).sum()
    return Evaluation(
        records=len(U),
        records_dropped=dropped,
        clusters={", ".join(group): int(labels.max()) + 1 for group, labels in masked.labels.items()},
        sse=float(losses @ widths**2),
        sse_before_truncation=float(((V - U) ** 2).sum(axis=0) @ widths**2),
        sse_expected=float(expected),
        information_loss=float(100 * losses.sum() / total),
    )


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
