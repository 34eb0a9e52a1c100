"""What is asked of a cluster: its moments, and beside each how far one record can move it.

Everything here is in the unit cube; neighbours replace one record of a cluster and share the partition.
Sensitivities are those of the cross-moment paper (CM, Propositions 5 to 10), corrected where it is wrong
(``docs/errata.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .errors import BudgetError, InputError
from .mask import Number, exact, noisy_values

if TYPE_CHECKING:
    from ._core import Progress  # exists in the stubs only

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """The first cross moments of every cluster; ``None`` for what the order does not have.

    ``covariance`` is clusters x d x d and ``skewness`` (coskewness) clusters x d x d x d; both are
    clusters x d where only the marginal entries (variances, φ_iii) were asked for.
    """

    sizes: NDArray[np.int64]
    mean: Array
    covariance: Array | None = None
    skewness: Array | None = None


class Spectra(NamedTuple):
    """Means with the eigenvalues and eigenvectors of the moments instead of their entries.

    ``values`` is clusters x d, ``vectors`` clusters x d x d with one eigenvector per row. Coskewness is
    d symmetric matrices Φ^i, so its arrays are clusters x d x d and clusters x d x d x d.
    """

    sizes: NDArray[np.int64]
    mean: Array
    values: Array
    vectors: Array
    skewness_values: Array | None = None
    skewness_vectors: Array | None = None


def cluster_moments(
    X: ArrayLike,
    labels: ArrayLike,
    order: int,
    *,
    marginal: Collection[str] = (),
    threads: int = 0,
    progress: Progress = None,
) -> Moments:
    """Mean and first ``order`` central cross moments of every cluster (CM, equations 1 and 2).

    Order 1 adds the unbiased covariance (division by k - 1), order 2 Fisher's unbiased coskewness
    (factor k / ((k - 1)(k - 2))). ``marginal`` may name ``"covariance"`` and ``"skewness"``: then only
    variances, or only φ_iii, are computed, which with many clusters and attributes saves memory. A moment
    that a cluster is too small for is 0.

    >>> cluster_moments([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]], [0, 0, 1], 1).covariance[0]
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    if not set(marginal) <= {"covariance", "skewness"}:
        raise InputError('marginal may hold "covariance" and "skewness" only')
    return Moments(
        *_core.cluster_moments(
            X,
            labels,
            order,
            "covariance" in marginal,
            "skewness" in marginal,
            threads=threads,
            progress=progress,
        )
    )


# Sensitivities of one statistic of a cluster of k records


def mean_sensitivity(k: int, d: int) -> Fraction:
    """L1 sensitivity of the mean vector (CM, Proposition 5)."""
    return Fraction(d, k)


def covariance_sensitivity(k: int) -> Fraction:
    """Sensitivity of one entry q_ij (CM, Proposition 6); a cluster of one has covariance 0 always."""
    return Fraction(1, k) if k >= 2 else Fraction(0)


def skewness_sensitivity(k: int) -> Fraction:
    """Sensitivity of one entry φ_ijl (CM, Proposition 8, corrected for k = 3).

    >>> skewness_sensitivity(3), skewness_sensitivity(4)
    (Fraction(2, 3), Fraction(1, 4))
    """
    if k == 3:
        return Fraction(2, 3)
    return Fraction(1, k) if k >= 4 else Fraction(0)


def eigenvalue_sensitivity(entry: Fraction, d: int) -> Fraction:
    """Sensitivity of one eigenvalue of a d x d matrix whose entries move by at most ``entry`` each.

    An eigenvalue moves by at most the 2-norm of the perturbation, here d * entry (CM, section 5.2).
    """
    return d * entry


def eigenvalues_sensitivity(entry: Fraction, d: int) -> Fraction:
    """L1 sensitivity of the list of all eigenvalues: √d · d · entry, √d rounded up (CM, Prop. 9)."""
    return _root_up(d) * d * entry


def eigenvector_sensitivity(entry: ArrayLike, gap: ArrayLike, d: int) -> Array:
    """Local L1 sensitivity of a unit eigenvector, up to its sign, given its eigenvalue's gap.

    With t = 2 d entry / gap < 1 the angle is at most arcsin(t) / 2, so the distance to the nearer of
    the two signs is at most 2 sin(arcsin(t) / 4) in the 2-norm; otherwise it is at most √2. The paper's
    d entry / gap (CM, Proposition 9) is the limit of this for small t and does not hold for large t: see
    ``docs/errata.md`` for the counterexample and the proof. Rounded up.

    >>> eigenvector_sensitivity(0.001, [0.004, 0.4], 2).round(6)
    array([2.      , 0.007071])
    """
    with np.errstate(divide="ignore"):
        t = 2 * d * np.asarray(entry, np.float64) / np.asarray(gap, np.float64)
    small = (t >= 0) & (t < 1)  # a gap of -0, between equal eigenvalues, gives t = -infinity
    euclidean = np.where(small, 2 * np.sin(np.arcsin(np.where(small, t, 0)) / 4), math.sqrt(2))
    if d == 1:  # one unit vector, up to its sign
        return np.zeros_like(euclidean)
    return np.asarray(math.sqrt(d) * euclidean * (1 + 2**-40))


def _root_up(d: int) -> Fraction:
    """√d, or the next multiple of 2^-40 above it."""
    root = math.isqrt(d)
    return Fraction(root) if root * root == d else Fraction(math.isqrt(d << 80) + 1, 1 << 40)


def _rounding(k: int) -> Fraction:
    """By how much rounding can move a computed entry between neighbours, on top of its sensitivity.

    Sums run over blocks of 1024 records, then over blocks, of terms of at most 1: the error of an
    entry is below 8 (1024 + k/1024) 2^-53, and there are two neighbours.
    """
    return Fraction(1, 2**39) * (1 + Fraction(k, 2**20))


def _for_sizes(sizes: NDArray[np.int64], sensitivity: Callable[[int], Fraction]) -> Array:
    """The sensitivity for every cluster's size, rounded up to a float."""
    unique, inverse = np.unique(sizes, return_inverse=True)
    exact = [sensitivity(int(k)) for k in unique]
    rounded = [float(s) if Fraction(float(s)) >= s else math.nextafter(float(s), math.inf) for s in exact]
    return np.asarray(rounded, np.float64)[inverse]


# Algorithms 1 and 2: which statistics, and at which price


class Query(NamedTuple):
    """Numbers asked of every cluster, with what one record can do to them.

    ``values`` is clusters x queries x entries: each cluster answers several vector queries. Noise of
    scale ``sensitivity[c, q] / (share * epsilon)`` on every entry of query q spends ``share`` of epsilon.
    """

    name: str
    values: Array
    sensitivity: Array
    share: Fraction


def noisy_answers(query: Query, epsilon: Number, *, threads: int = 0, progress: Progress = None) -> Array:
    """The values of a query with noise; spends the query's share of epsilon on each of its vectors."""
    _, queries, entries = query.values.shape
    rows = query.values.reshape(-1, entries)
    answers = np.empty_like(rows)
    distinct, groups = np.unique(query.sensitivity, return_inverse=True)
    order = np.argsort(groups, axis=None, kind="stable")
    ends = np.cumsum(np.bincount(groups.ravel(), minlength=len(distinct)))
    for sensitivity, members in zip(distinct, np.split(order, ends[:-1]), strict=True):
        answers[members] = noisy_values(
            rows[members],
            Fraction(float(sensitivity)),
            query.share * exact(epsilon),
            changed=entries,
            magnitude=max(entries, queries),  # moments and eigenvalues in the unit cube are at most d
            threads=threads,
            progress=progress,
        )
    return answers.reshape(query.values.shape)


#: Weights over (mean, covariance, coskewness) of Algorithm 2; CM, section 5.1, by (order, strategy).
STRATEGIES: dict[tuple[int, int], tuple[Fraction, ...]] = {
    (1, 1): (Fraction(1, 2), Fraction(1, 2)),
    (1, 2): (Fraction(3, 4), Fraction(1, 4)),
    (2, 1): (Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)),
    (2, 2): (Fraction(3, 4), Fraction(3, 20), Fraction(1, 10)),
}


class _Statistic(NamedTuple):
    """One array of answers: its name, the moment it belongs to, and its size per cluster."""

    name: str
    moment: int
    queries: int
    entries: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class MomentQueries:
    """Which statistics of a cluster are asked for, and how the budget is divided among them.

    - ``family``: ``"coefficient"`` asks for the moments' entries, under global sensitivities;
      ``"eigen"`` for eigenvalues and eigenvectors, under *local* sensitivities: individual DP only.
    - ``terms``: ``"pure"`` asks for all distinct covariances, ``"variances"`` for the variances. Of the
      coskewness the coefficient family asks for the marginal φ_iii only: the sampler reads no other.
    - ``weights``: shares of the mean and of each moment, adding up to 1 (Algorithm 2, separate); within
      a moment, entries (eigenvalues, eigenvectors) get equal parts. ``None``: Algorithm 1, joint.

    >>> MomentQueries(1, terms="variances").budget(4)
    {'mean+variances': Fraction(1, 1)}
    >>> MomentQueries(1, weights=(0.75, 0.25)).budget(4)
    {'mean': Fraction(3, 4), 'covariance': Fraction(1, 4)}
    """

    order: int
    family: Literal["coefficient", "eigen"] = "coefficient"
    terms: Literal["pure", "variances"] = "pure"
    weights: tuple[Number, ...] | None = None

    def __post_init__(self) -> None:
        if self.order not in (0, 1, 2):
            raise InputError("order must be 0 (mean), 1 (and covariance) or 2 (and coskewness)")
        if self.family not in ("coefficient", "eigen"):
            raise InputError('family must be "coefficient" or "eigen"')
        if self.terms not in ("pure", "variances"):
            raise InputError('terms must be "pure" or "variances"')
        if self.family == "eigen" and (self.order == 0 or self.terms != "pure"):
            raise InputError("the eigen family needs order 1 or 2 and pure terms")
        if self.weights is not None:
            weights = tuple(exact(weight) for weight in self.weights)
            if len(weights) != self.order + 1 or min(weights) <= 0 or sum(weights) != 1:
                raise BudgetError(
                    f"weights must be {self.order + 1} positive numbers, for the mean and {self.order}"
                    " moments, that add up to 1"
                )
            object.__setattr__(self, "weights", weights)

    def moments(
        self, U: ArrayLike, labels: ArrayLike, *, threads: int = 0, progress: Progress = None
    ) -> Moments:
        """The exact moments of every cluster that the queries read."""
        marginal = {"skewness"} if self.family == "coefficient" else set()
        if self.terms == "variances":
            marginal.add("covariance")
        return cluster_moments(U, labels, self.order, marginal=marginal, threads=threads, progress=progress)

    def queries(self, moments: Moments, *, threads: int = 0) -> list[Query]:
        """Values and sensitivities for the moments of :meth:`moments`, to be masked query by query.

        Eigenvectors come with a random sign each: of two neighbours' vectors the nearer signs can then
        be compared, since both signs are equally likely for both.
        """
        sizes, (clusters, d) = moments.sizes, moments.mean.shape
        arrays = [moments.mean]
        bounds = [_for_sizes(sizes, lambda k: mean_sensitivity(k, d) + d * _rounding(k))[:, None]]
        if moments.covariance is not None:
            self._append(arrays, bounds, moments.covariance, sizes, covariance_sensitivity, threads)
        if moments.skewness is not None:
            self._append(arrays, bounds, moments.skewness, sizes, skewness_sensitivity, threads)
        statistics = self._statistics(d)
        if self.weights is None:  # Algorithm 1: one vector of everything, whose sensitivities add up
            total = np.sum(
                [self._joint(s, bound, d) for s, bound in zip(statistics, bounds, strict=True)], axis=0
            )
            values = np.concatenate([a.reshape(clusters, 1, -1) for a in arrays], axis=2)
            return [Query(next(iter(self.budget(d))), values, total[:, None], Fraction(1))]
        return [
            Query(
                s.name,
                array.reshape(clusters, s.queries, s.entries),
                np.broadcast_to(bound, (clusters, s.queries)),
                self._share(s, d),
            )
            for s, array, bound in zip(statistics, arrays, bounds, strict=True)
        ]

    def assemble(self, sizes: NDArray[np.int64], d: int, answers: Sequence[Array]) -> Moments | Spectra:
        """The noisy answers to :meth:`queries`, in their order, as moments or spectra again."""
        clusters = len(sizes)
        flat = np.concatenate([np.reshape(answer, (clusters, -1)) for answer in answers], axis=1)
        shapes = [s.shape for s in self._statistics(d)]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        if flat.shape[1] != ends[-1]:
            raise InputError("the answers do not have the shapes of the queries")
        mean, *parts = (
            part.reshape(clusters, *shape)
            for part, shape in zip(np.split(flat, ends[:-1], axis=1), shapes, strict=True)
        )
        if self.family == "eigen":
            return Spectra(sizes, mean, *parts)
        if parts and self.terms == "pure":
            parts[0] = _symmetric(parts[0], d)
        return Moments(sizes, mean, *parts)

    def budget(self, d: int) -> dict[str, Fraction]:
        """Named shares of epsilon; they add up to 1. Public: depends on nothing but d."""
        statistics = self._statistics(d)
        if self.weights is None:
            return {"+".join(s.name for s in statistics): Fraction(1)}
        return {s.name: self._share(s, d) * s.queries for s in statistics}

    def signed(self, d: int) -> NDArray[np.bool_]:
        """Which of a cluster's numbers, in the order of :meth:`queries`, belong to vectors of random sign."""
        parts = [(s.queries * s.entries, s.name.endswith("eigenvectors")) for s in self._statistics(d)]
        return np.concatenate([np.full(*part) for part in parts])

    def _statistics(self, d: int) -> list[_Statistic]:
        """What is asked for, in order."""
        statistics = [_Statistic("mean", 0, 1, d, (d,))]
        if self.family == "eigen":
            statistics += [
                _Statistic("covariance eigenvalues", 1, d, 1, (d,)),
                _Statistic("covariance eigenvectors", 1, d, d, (d, d)),
                _Statistic("coskewness eigenvalues", 2, d * d, 1, (d, d)),
                _Statistic("coskewness eigenvectors", 2, d * d, d, (d, d, d)),
            ]
        else:
            pairs = d * (d + 1) // 2
            statistics += [
                _Statistic("covariance", 1, pairs, 1, (pairs,))
                if self.terms == "pure"
                else _Statistic("variances", 1, d, 1, (d,)),
                _Statistic("marginal skewness", 2, d, 1, (d,)),
            ]
        return [s for s in statistics if s.moment <= self.order]

    def _share(self, statistic: _Statistic, d: int) -> Fraction:
        """Of one query under Algorithm 2: the moment's weight, evenly over the moment's queries."""
        assert self.weights is not None
        queries = sum(s.queries for s in self._statistics(d) if s.moment == statistic.moment)
        return exact(self.weights[statistic.moment]) / queries

    def _append(
        self,
        arrays: list[Array],
        bounds: list[Array],
        tensor: Array,
        sizes: NDArray[np.int64],
        entry_sensitivity: Callable[[int], Fraction],
        threads: int,
    ) -> None:
        """Append a moment's statistics and the sensitivity of each of their queries."""
        entry = _for_sizes(sizes, lambda k: entry_sensitivity(k) + _rounding(k))[:, None]
        clusters, d = tensor.shape[:2]
        if self.family == "coefficient":
            i, j = np.triu_indices(d)
            arrays.append(tensor if tensor.ndim == 2 else tensor[:, i, j])
            bounds.append(entry)
            return
        values, vectors, gaps = _core.symmetric_eigen(tensor.reshape(-1, d, d), threads=threads)
        signs = 1.0 - 2.0 * (_core.random_words(gaps.size, threads=threads) & np.uint64(1))
        arrays += [values, vectors * signs.reshape(*gaps.shape, 1)]
        single = _for_sizes(sizes, lambda k: eigenvalue_sensitivity(entry_sensitivity(k) + _rounding(k), d))
        local = eigenvector_sensitivity(entry, gaps.reshape(clusters, -1), d)
        local = np.maximum(local, 2.0**-39)  # rounding, also where nothing else can move (d = 1)
        bounds += [single[:, None], _round_up(local, bits=8)]  # few different ones: they share a grid

    def _joint(self, statistic: _Statistic, bound: Array, d: int) -> Array:
        """L1 sensitivity of all queries of a statistic together, per cluster."""
        if statistic.name.endswith("eigenvalues"):
            # A list of d eigenvalues moves by √d times the bound of one, not d times (Proposition 9).
            lists = statistic.queries // d
            return np.asarray(bound[:, 0] * (lists * float(_root_up(d))))
        return np.asarray(np.broadcast_to(bound, (len(bound), statistic.queries)).sum(axis=1))


def _symmetric(entries: Array, d: int) -> Array:
    """Symmetric matrices from their upper triangles, row by row."""
    matrices = np.empty((len(entries), d, d))
    i, j = np.triu_indices(d)
    matrices[:, i, j] = entries
    matrices[:, j, i] = entries
    return matrices


def _round_up(numbers: Array, *, bits: int) -> Array:
    """Positive numbers rounded up to so many significant bits."""
    mantissa, exponent = np.frexp(numbers)
    return np.asarray(np.ldexp(np.ceil(np.ldexp(mantissa, bits)), exponent - bits))
