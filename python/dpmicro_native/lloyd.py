"""Probability-constrained Lloyd (PCL): k-anonymous cells of exactly the sizes asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .errors import InputError
from .partition import Labels, Partition, check_k

if TYPE_CHECKING:
    from ._core import Progress

Start = Literal["mdav", "k-means++"]

# With few cells it matters which of the many local optima a start leads to, and iterations are cheap.
_MOST_CELLS_FOR_A_RACE = 64
_RIVALS = 5


class PCLResult(NamedTuple):
    """A partition and the quantiser behind it.

    Every record sits in the cell that minimises its squared distance to the centroid plus the cell's
    cost (``assign`` does the same for new records); records on a border are dealt out so that the
    sizes are right.
    """

    labels: Labels
    #: The points that the labels are optimal for: at the end the means of the cells, or close to them.
    centroids: NDArray[np.float64]
    costs: NDArray[np.float64]
    #: Sum of squared distances to the means of the cells, for every partition that improved on the
    #: one before; it starts with the initial partition if that has the sizes asked for.
    distortions: NDArray[np.float64]


def pcl(
    X: ArrayLike,
    k: int,
    *,
    init: Start | ArrayLike | None = None,
    max_iter: int = 100,
    threads: int = 0,
    seed: int = 0,
    sizes: ArrayLike | None = None,
    min_size: int | None = None,
    cells: int | None = None,
    weights: ArrayLike | None = None,
    speed: float = 1.7,
    progress: Progress = None,
) -> PCLResult:
    """Partition into cells of at least k records with as little distortion as possible.

    By default there are ⌊n/k⌋ cells of k records, with the remainder spread evenly (or left in one
    cell as MDAV has it, should that be better). The result is never worse than the initial
    partition, if that has the sizes asked for. Scale the attributes first: distances mix them.

    init: ``"mdav"``, ``"k-means++"``, a partition (labels, whose sizes are kept), or centroids (one
        row per cell). None is MDAV; with up to 64 cells of the default sizes, a few k-means++ starts
        compete with it, and the best four go on.
    sizes: the exact size of every cell instead, none below k.
    min_size: a lower bound (at least k) instead of exact sizes: cells may grow where that is better.
    cells: their number, where ``init`` and ``sizes`` do not say it.
    weights: of the records in the distortion and in the means; sizes count records all the same. A
        record's cell then minimises weight x distance + cost.
    speed: of the centroids towards the means: the paper's is 1/2, Lloyd's 1; beyond 1 they overshoot,
        which ends lower and sooner.
    seed: for k-means++ and for seeding empty cells anew; it protects nothing.
    max_iter: 0 only assigns the records to the initial centroids, optimally.

    >>> result = pcl([[0.0], [1.0], [9.0], [2.0], [8.0], [7.0]], 3)
    >>> result.labels
    array([0, 0, 1, 0, 1, 1], dtype=int32)
    >>> result.centroids
    array([[1.],
           [8.]])
    """
    table = np.asarray(X)
    if table.ndim != 2:
        raise InputError("a 2-D table is needed, rows are records; reshape a single column to (n, 1)")
    n = table.shape[0]
    check_k(k, n)
    if seed < 0:
        raise InputError("seed must be 0 or larger")
    if sizes is not None and min_size is not None:
        raise InputError("give sizes (exact) or min_size (a lower bound), not both")
    if min_size is not None and min_size < k:
        raise InputError(f"min_size = {min_size} is below k = {k}; cells need at least k records")

    partition, centroids = _given_start(init)
    if partition is not None and partition.shape != (n,):
        raise InputError("an initial partition needs one label per record")
    targets = _targets(n, k, sizes, min_size, cells, partition, centroids)
    count = targets.size

    def run(
        targets: NDArray[np.int64],
        partition: Labels | None,
        centroids: Sequence[NDArray[np.float64]] = (),
    ) -> PCLResult:
        return PCLResult(
            *_core.pcl(
                table,
                targets.tolist(),
                at_least=min_size is not None,
                partition=partition,
                centroids=list(centroids),
                weights=weights,
                max_iter=max_iter,
                speed=speed,
                seed=seed,
                threads=threads,
                progress=progress,
            )
        )

    def scattered(seed: int) -> NDArray[np.float64]:
        return _core.kmeans_plus_plus(table, count, seed=seed, threads=threads, progress=progress)

    if centroids is not None:
        return run(targets, None, [centroids])
    if isinstance(init, str) and init == "k-means++":
        return run(targets, None, [scattered(seed)])
    default_sizes = sizes is None and min_size is None
    rivals = []
    if partition is None:
        partition = _mdav_start(table, k, count, threads, progress)
        many_optima = table.shape[1] > 1 and 1 < count <= _MOST_CELLS_FOR_A_RACE
        if init is None and default_sizes and weights is None and many_optima:
            rivals = [scattered(seed + r) for r in range(_RIVALS)]
    result = run(targets, partition, rivals)
    # Another start, or a remainder spread elsewhere, is not bound to beat the initial partition.
    if default_sizes and result.distortions[-1] > _distortion(table, partition, weights):
        result = run(np.bincount(partition, minlength=count), partition)
    return result


def assign(
    X_new: ArrayLike, centroids: ArrayLike, costs: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> Labels:
    """Cell of each record under a quantiser: the least squared distance + cost, ties to the lowest cell.

    New records fall where they fall: this makes no promise about sizes.

    >>> assign([[0.4], [4.0], [5.0]], [[1.0], [8.0]], [0.0, 0.0])
    array([0, 0, 1], dtype=int32)
    """
    return _core.assign_cells(X_new, centroids, costs, threads=threads, progress=progress)


def _given_start(
    init: Start | ArrayLike | None,
) -> tuple[Labels | None, NDArray[np.float64] | None]:
    """Split a given initialisation into labels or centroids; neither if it is yet to be made."""
    if init is None or (isinstance(init, str) and init in ("mdav", "k-means++")):
        return None, None
    if isinstance(init, str):
        raise InputError(f'init = "{init}" is unknown; use "mdav", "k-means++", labels or centroids')
    given = np.asarray(init)
    if given.ndim == 1 and given.dtype.kind in "iu":
        if given.size == 0 or given.min() < 0 or given.max() >= given.size:
            raise InputError("the initial partition must number its clusters 0, 1, 2, ...")
        return given.astype(np.int32), None
    if given.ndim == 2 and given.dtype.kind in "fiu":
        return None, given.astype(np.float64)
    raise InputError("init must be labels (1-D whole numbers) or centroids (2-D, one row per cell)")


def _targets(
    n: int,
    k: int,
    sizes: ArrayLike | None,
    min_size: int | None,
    cells: int | None,
    partition: Labels | None,
    centroids: NDArray[np.float64] | None,
) -> NDArray[np.int64]:
    """Size that each cell must have, exactly or at least."""
    given = None if sizes is None else np.asarray(sizes)
    if given is not None and (given.ndim != 1 or given.dtype.kind not in "iu"):
        raise InputError("sizes must be a 1-D array of whole numbers, one per cell")
    counts = {
        "sizes": None if given is None else given.size,
        "cells": cells,
        "init": None,
    }
    if partition is not None:
        counts["init"] = int(partition.max()) + 1
    elif centroids is not None:
        counts["init"] = centroids.shape[0]
    known = {name: count for name, count in counts.items() if count is not None}
    if len(set(known.values())) > 1:
        raise InputError(f"{' and '.join(known)} disagree on the number of cells")
    count = next(iter(known.values()), n // (min_size or k))
    if given is not None:
        if given.sum() != n:
            raise InputError(f"sizes add up to {given.sum()}, but there are {n} records")
        if given.min() < k:
            raise InputError(f"sizes must be at least k = {k}; choose a smaller k or larger cells")
        return given.astype(np.int64)
    least = min_size or k
    if count < 1 or count * least > n:
        raise InputError(f"{n} records are too few for {count} cells of {least}; ask for fewer cells")
    if min_size is not None:
        return np.full(count, min_size, np.int64)
    if partition is not None:
        own = np.bincount(partition, minlength=count)
        if own.min() < k:
            raise InputError(f"the initial partition has a cluster below k = {k}; give sizes or another k")
        return own
    base, rest = divmod(n, count)
    # MDAV makes the outer clusters first; the larger cells belong where records are dense.
    return np.asarray([base + (q >= count - rest) for q in range(count)], np.int64)


def _mdav_start(table: NDArray[np.float64], k: int, cells: int, threads: int, progress: Progress) -> Labels:
    """Partition by MDAV into a number of clusters that may be other than n // k."""
    n = table.shape[0]
    size = k if n // k == cells else n // cells
    labels = _core.mdav(table, size, threads=threads, progress=progress)
    # Clusters of n // cells records may be a few too many; those join the last one.
    return np.minimum(labels, cells - 1, out=labels)


def _means(
    table: NDArray[np.float64], labels: Labels, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    total = np.bincount(labels, weights=weights)
    columns = (x if weights is None else weights * x for x in table.T)
    return np.stack([np.bincount(labels, weights=x) / total for x in columns], axis=1)


def _distortion(table: NDArray[np.float64], labels: Labels, weights: ArrayLike | None) -> float:
    if weights is None:
        return _core.sse(table, labels)
    w = np.asarray(weights, np.float64)
    return float(w @ ((table - _means(table, labels, w)[labels]) ** 2).sum(axis=1))


@dataclass(frozen=True)
class PCL(Partition):
    """Probability-constrained Lloyd cells of at least k records (Rebollo-Monedero et al. 2013).

    >>> PCL(2).labels(np.array([[0.0], [0.9], [0.1], [1.0], [0.2]]))
    array([1, 0, 1, 0, 1], dtype=int32)
    """

    k: int
    init: Start | None = None
    max_iter: int = 100
    seed: int = 0

    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Labels by :func:`pcl`."""
        return pcl(
            U,
            self.k,
            init=self.init,
            max_iter=self.max_iter,
            seed=self.seed,
            threads=threads,
            progress=progress,
        ).labels

    def check(self, n: int, d: int) -> None:
        """Refuse a k that n records cannot have, and an unknown start."""
        check_k(self.k, n)
        if self.init not in (None, "mdav", "k-means++"):
            raise InputError(f'init = "{self.init}" is unknown; use "mdav" or "k-means++"')
        if self.max_iter < 0:
            raise InputError("max_iter must be 0 or larger")
