"""Who sits with whom: partitions of the records into clusters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .errors import InputError

if TYPE_CHECKING:
    from ._core import Progress  # the stubs alone define it

Labels = NDArray[np.int32]


def mdav(X: ArrayLike, k: int, *, threads: int = 0, progress: Progress = None) -> Labels:
    """Clusters of k to 2k-1 records around the records farthest from the mean and from each other.

    Exact MDAV (Domingo-Ferrer & Torra 2005) with squared Euclidean distance; every tie goes to the
    lowest row index. Scale the attributes first: distances mix them.

    >>> mdav([[0, 0], [9, 9], [0, 1], [9, 8], [1, 0], [8, 9]], 3)
    array([0, 1, 0, 1, 0, 1], dtype=int32)
    """
    return _core.mdav(X, k, threads=threads, progress=progress)


def vmdav(X: ArrayLike, k: int, gamma: float, *, threads: int = 0, progress: Progress = None) -> Labels:
    """Groups of k to 2k-1 records whose size follows the data (Solanas et al. 2006).

    A group of k absorbs its nearest record while that record is nearer to the group than ``gamma``
    times its distance to its nearest unassigned record. Leftovers join the group with the nearest
    mean, which may thus grow beyond 2k-1.

    >>> vmdav([[0.0], [0.1], [0.2], [5.0], [5.1]], 2, 1.0)
    array([1, 1, 1, 0, 0], dtype=int32)
    """
    return _core.vmdav(X, k, gamma, threads=threads, progress=progress)


def individual_ranking(x: ArrayLike, k: int) -> Labels:
    """Runs of k in the order of one attribute (ties by row index); the last run takes the remainder.

    >>> individual_ranking([30, 10, 20, 50, 40], 2)
    array([1, 0, 0, 1, 1], dtype=int32)
    """
    return _core.individual_ranking(x, k)


def insensitive_ranking(U: ArrayLike, k: int) -> Labels:
    """Runs of k in the order of distance to the lower corner of the unit cube.

    Ties are broken by the values of the record, then by row index, so that replacing one record
    changes every cluster by at most one record.

    >>> insensitive_ranking([[0.9, 0.9], [0.1, 0.2], [0.5, 0.5], [0.2, 0.1]], 2)
    array([1, 0, 1, 0], dtype=int32)
    """
    return _core.insensitive_ranking(U, k)


def optimal_univariate(x: ArrayLike, *, noise_cost: float = 0.0, min_size: int = 1) -> Labels:
    """Clusters of one attribute that minimise the sum of SSE(C) + noise_cost/size, exactly.

    ``noise_cost=0`` with a ``min_size`` is classical optimal microaggregation. Labels ascend with x;
    of several equally good last clusters the longest is taken, at every step of the program.

    >>> optimal_univariate([1.0, 9.0, 1.1, 9.2, 1.2], min_size=2)
    array([0, 1, 0, 1, 0], dtype=int32)
    """
    return _core.optimal_univariate(x, noise_cost=noise_cost, min_size=min_size)


def sse(X: ArrayLike, labels: ArrayLike, *, threads: int = 0) -> float:
    """Sum over all records and attributes of the squared distance to the mean of the cluster.

    >>> sse([[1.0], [3.0], [7.0]], [0, 0, 1])
    2.0
    """
    return _core.sse(X, labels, threads=threads)


@dataclass(frozen=True)
class Partition(ABC):
    """A way to split n records into clusters; holds parameters, no data.

    A partition declares how it reads the data, because the guarantee of a release rests on it:

    - ``freely``: the labels may depend on everything; the guarantee is then *given the partition*.
    - ``insensitively``: replacing one record moves the list of cluster sums by a bounded amount that
      is proved (``sum_sensitivity``), so the guarantee holds unconditionally.
    - ``privately``: the labels are themselves a differentially private output that spends a named
      share of the budget.
    """

    reads: ClassVar[Literal["freely", "insensitively", "privately"]] = "freely"
    #: Only one attribute can be partitioned at a time (the order of one attribute is used).
    univariate: ClassVar[bool] = False

    @abstractmethod
    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Label every record of ``U`` (n x d, in the unit cube).

        ``noise_cost`` is K in the expected error SSE(C) + K/|C| of a cluster whose mean gets noise;
        only partitions that minimise that error read it.
        """

    @abstractmethod
    def check(self, n: int, d: int) -> None:
        """Refuse parameters that cannot work for n records and d attributes, before data is read."""

    def sum_sensitivity(self, n: int) -> int:
        """L1 sensitivity, in widths of an attribute, of the list of cluster sums of that attribute.

        Replacing one record moves one cluster's sum by at most one width when the labels stay as
        they are (partitions that read freely: given the partition).
        """
        return 1


def check_k(k: int, n: int) -> None:
    """Refuse a cluster size that n records cannot have."""
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}; it is the smallest cluster size")
    if k > n:
        raise InputError(f"k = {k} is larger than the number of records ({n}); choose a smaller k")


@dataclass(frozen=True)
class Singletons(Partition):
    """Every record is its own cluster: noise on each record, as plain Laplace adds it."""

    reads = "insensitively"

    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Number the records."""
        return np.arange(len(U), dtype=np.int32)

    def check(self, n: int, d: int) -> None:
        """Accept every table."""


@dataclass(frozen=True)
class MDAV(Partition):
    """Clusters of k to 2k-1 similar records; see :func:`mdav`."""

    k: int

    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Label the records by MDAV."""
        return mdav(U, self.k, threads=threads, progress=progress)

    def check(self, n: int, d: int) -> None:
        """Refuse k < 1 and k > n."""
        check_k(self.k, n)


@dataclass(frozen=True)
class VMDAV(Partition):
    """Groups of at least k records whose size follows the data; see :func:`vmdav`."""

    k: int
    gamma: float

    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Label the records by V-MDAV."""
        return vmdav(U, self.k, self.gamma, threads=threads, progress=progress)

    def check(self, n: int, d: int) -> None:
        """Refuse k < 1, k > n and a gamma that is negative or not finite."""
        check_k(self.k, n)
        if not isinstance(self.gamma, Real) or not 0 <= self.gamma < float("inf"):
            raise InputError("gamma must be 0 or a positive number; 0 gives groups of exactly k")


@dataclass(frozen=True)
class IR(Partition):
    """Individual ranking: runs of k in the order of one attribute; see :func:`individual_ranking`.

    Reads insensitively: the sizes of the runs depend on n and k alone, and replacing one value by
    another shifts each value ranked between the two by one rank, so that the sums of the runs move,
    all in one direction and in total, by the difference of the two values: at most one width (IR,
    section 3; ``tests/test_partition.py`` checks it by brute force).
    """

    reads = "insensitively"
    univariate = True

    k: int

    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Label the records by the rank of their only attribute."""
        return individual_ranking(_only_attribute(U), self.k)

    def check(self, n: int, d: int) -> None:
        """Refuse k < 1, k > n and more than one attribute."""
        check_k(self.k, n)
        _check_univariate(d)


@dataclass(frozen=True)
class Insensitive(Partition):
    """Runs of k by distance to the lower corner of the domain; see :func:`insensitive_ranking`.

    Reads insensitively: replacing one record changes every cluster by at most one record, so each of
    the n // k sums moves by at most one width (OPT, the INS_DP baseline).
    """

    reads = "insensitively"

    k: int

    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Label the records by their distance to the lower corner."""
        return insensitive_ranking(U, self.k)

    def check(self, n: int, d: int) -> None:
        """Refuse k < 1 and k > n."""
        check_k(self.k, n)

    def sum_sensitivity(self, n: int) -> int:
        """Return the number of clusters: every sum may move by one width."""
        return n // self.k


@dataclass(frozen=True)
class Optimal(Partition):
    """The clusters of one attribute with the least expected error; see :func:`optimal_univariate`."""

    univariate = True

    min_size: int = 1

    def labels(
        self,
        U: NDArray[np.float64],
        *,
        noise_cost: float = 0.0,
        threads: int = 0,
        progress: Progress = None,
    ) -> Labels:
        """Label the records by the optimal cut of their only attribute."""
        return _core.optimal_univariate(
            _only_attribute(U), noise_cost=noise_cost, min_size=self.min_size, progress=progress
        )

    def check(self, n: int, d: int) -> None:
        """Refuse a smallest cluster below 1 or above n, and more than one attribute."""
        check_k(self.min_size, n)
        _check_univariate(d)


def _check_univariate(d: int) -> None:
    if d != 1:
        raise InputError("this partition reads one attribute; partition each attribute by itself")


def _only_attribute(U: NDArray[np.float64]) -> NDArray[np.float64]:
    _check_univariate(U.shape[1])
    return U[:, 0]
