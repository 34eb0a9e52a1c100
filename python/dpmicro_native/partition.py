"""Who sits with whom: partitions of the records into clusters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ._core import Progress
from .errors import InputError

Labels = NDArray[np.int32]


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

    @abstractmethod
    def min_size(self, n: int) -> int:
        """Smallest cluster there can be, from public facts alone."""

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
