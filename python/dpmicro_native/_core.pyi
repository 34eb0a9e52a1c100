"""The compiled core. Private: use the names that dpmicro_native exports."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str

Progress = Callable[[float], object] | None

# kernels
def squared_distances(
    X: ArrayLike, point: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.float64]: ...
def sse(X: ArrayLike, labels: ArrayLike, *, threads: int = 0, progress: Progress = None) -> float: ...

# partition
def mdav(
    X: ArrayLike,
    k: int,
    *,
    threads: int = 0,
    progress: Progress = None,
    path: Literal["auto", "tree", "scan"] = "auto",
) -> NDArray[np.int32]: ...
def vmdav(
    X: ArrayLike, k: int, gamma: float, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.int32]: ...
def individual_ranking(x: ArrayLike, k: int, *, progress: Progress = None) -> NDArray[np.int32]: ...
def insensitive_ranking(U: ArrayLike, k: int, *, progress: Progress = None) -> NDArray[np.int32]: ...
def optimal_univariate(
    x: ArrayLike, *, noise_cost: float = 0.0, min_size: int = 1, progress: Progress = None
) -> NDArray[np.int32]: ...
