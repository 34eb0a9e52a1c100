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
