"""The compiled core. Private: use the names that dpmicro_native exports."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str

Progress = Callable[[float], object] | None

# kernels
def squared_distances(
    X: ArrayLike, point: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.float64]: ...
def sse(X: ArrayLike, labels: ArrayLike, *, threads: int = 0, progress: Progress = None) -> float: ...

# evaluate
def compare_sorted(a: ArrayLike, b: ArrayLike, *, tolerance: float = 0.0) -> tuple[float, float]: ...
def row_classes(X: ArrayLike) -> tuple[int, int, int]: ...
def linkage(
    original: ArrayLike, own: ArrayLike, released: ArrayLike, scale: ArrayLike, *, threads: int = 0
) -> NDArray[np.float64]: ...
def range_counts(
    X: ArrayLike, columns: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, threads: int = 0
) -> NDArray[np.int64]: ...
