"""The compiled core. Private: use the names that dpmicro_native exports."""

from collections.abc import Callable, Sequence
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

# moments, repair, sample
def cluster_moments(
    X: ArrayLike,
    labels: ArrayLike,
    order: int,
    marginal_covariance: bool,
    marginal_skewness: bool,
    *,
    threads: int = 0,
    progress: Progress = None,
) -> tuple[
    NDArray[np.int64], NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.float64] | None
]: ...
def symmetric_eigen(
    matrices: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
def nearest_psd(
    matrices: ArrayLike, diagonals: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.float64]: ...
def nearest_orthogonal(
    matrices: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.float64]: ...
def feasible_skewness(
    covariance: ArrayLike, skewness: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]: ...
def sample_records(
    labels: ArrayLike,
    mean: ArrayLike,
    covariance: ArrayLike | None,
    skewness: ArrayLike | None,
    *,
    threads: int = 0,
    progress: Progress = None,
) -> NDArray[np.float64]: ...

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

# noise
def push_seed(key: bytes) -> None: ...
def pop_seed() -> None: ...
def generator_is_seeded() -> bool: ...
def random_words(count: int, *, threads: int = 0, progress: Progress = None) -> NDArray[np.uint64]: ...
def permutation(count: int, *, progress: Progress = None) -> NDArray[np.int64]: ...
def poisson_sample(
    count: int,
    numerator: int,
    denominator: int,
    *,
    exponential: bool,
    threads: int = 0,
    progress: Progress = None,
) -> NDArray[np.bool_]: ...
def add_discrete_laplace(
    values: NDArray[np.int64],
    scales: Sequence[tuple[int, int]],
    *,
    groups: NDArray[np.int32] | None = None,
    threads: int = 0,
    progress: Progress = None,
) -> NDArray[np.int64]: ...
def select(scores: NDArray[np.int64], numerator: int, denominator: int, *, permute: bool) -> int: ...
def quantise(
    U: ArrayLike, bits: int, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.int64]: ...
def cluster_sums(
    U: ArrayLike, labels: ArrayLike, clusters: int, bits: int, *, progress: Progress = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def scripted_below(words: Sequence[int], bound: int) -> int: ...
def scripted_rational_coin(words: Sequence[int], numerator: int, denominator: int) -> bool: ...
def scripted_exponential_coin(words: Sequence[int], numerator: int, denominator: int) -> bool: ...
def scripted_below_exponential(words: Sequence[int], numerator: int, denominator: int) -> bool: ...
def scripted_discrete_laplace(words: Sequence[int], numerator: int, denominator: int) -> int: ...
def exponential_bounds(numerator: int, denominator: int) -> tuple[int, int]: ...

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
def safepub_release(
    codes: NDArray[np.int32],
    tables: Sequence[NDArray[np.int32]],
    scheme: Sequence[int],
    *,
    k: int,
    class_attribute: int,
    epsilon_anon: tuple[int, int],
    threads: int = 0,
    progress: Progress = None,
) -> NDArray[np.int64]: ...

# evaluate
def compare_sorted(a: ArrayLike, b: ArrayLike, *, tolerance: float = 0.0) -> tuple[float, float]: ...
def row_classes(X: ArrayLike) -> tuple[int, int, int]: ...
def linkage(
    original: ArrayLike, own: ArrayLike, released: ArrayLike, scale: ArrayLike, *, threads: int = 0
) -> NDArray[np.float64]: ...
def range_counts(
    X: ArrayLike, columns: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, threads: int = 0
) -> NDArray[np.int64]: ...

# lloyd
def pcl(
    X: ArrayLike,
    sizes: list[int],
    *,
    at_least: bool = False,
    partition: ArrayLike | None = None,
    centroids: list[NDArray[np.float64]] = ...,
    weights: ArrayLike | None = None,
    max_iter: int = 100,
    speed: float = 1.7,
    seed: int = 0,
    threads: int = 0,
    progress: Progress = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
def kmeans_plus_plus(
    X: ArrayLike, cells: int, *, seed: int = 0, threads: int = 0, progress: Progress = None
) -> NDArray[np.float64]: ...
def assign_cells(
    X: ArrayLike, centroids: ArrayLike, costs: ArrayLike, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.int32]: ...
