"""The compiled core. Private: use the names that dpmicro_native exports."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str

Progress = Callable[[float], object] | None

# kernels
def squared_distances(
    X: ArrayLike, point: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.float64]: ...
def sse(X: ArrayLike, labels: ArrayLike, *, threads: int = 0, progress: Progress = None) -> float: ...

# safepub
def score_sensitivity(score: str, k: int, attributes: int, *, hard: bool) -> tuple[int, int, bool]: ...
def safepub_scores(
    codes: NDArray[np.int32],
    tables: Sequence[NDArray[np.int32]],
    schemes: Sequence[Sequence[int]],
    *,
    score: str,
    k: int,
    class_attribute: int,
    hard: bool,
    progress: Progress = None,
) -> list[int]: ...
def safepub(
    codes: NDArray[np.int32],
    tables: Sequence[NDArray[np.int32]],
    *,
    score: str,
    k: int,
    class_attribute: int,
    steps: int,
    step_factor: tuple[int, int],
    final_factor: tuple[int, int],
    epsilon_anon: tuple[int, int],
    as_published: bool,
    threads: int = 0,
    progress: Progress = None,
) -> tuple[NDArray[np.int64], list[int], list[int], list[list[int]], list[int]]: ...
