"""Budgets that add up exactly, and noise that is drawn exactly.

Callers of the mechanisms (``noisy_values``, ``noisy_sums``) give epsilon and sensitivity, never a scale.
All randomness comes from the operating system's generator and cannot be seeded from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from .errors import BudgetError, InputError

if TYPE_CHECKING:
    from ._core import Progress  # exists in the stubs only

__all__ = [
    "Budget",
    "cluster_sums",
    "discrete_laplace",
    "exact",
    "exponential_mechanism",
    "noisy_sums",
    "noisy_values",
    "permutation",
    "permute_and_flip",
    "poisson_sample",
    "poisson_sample_exponential",
]

Number: TypeAlias = int | float | Fraction | Decimal | str
Integers: TypeAlias = NDArray[np.int64]

#: The core computes with numerators and denominators below this.
_LIMIT = 1 << 62


def exact(number: Number) -> Fraction:
    """Read a number as the fraction its writer meant: the float 0.1 is 1/10.

    A float stands for the shortest decimal that prints it, so that ``0.1 + 0.2`` written as shares of
    ``0.3`` adds up. Text such as "1/3" or "0.1" is read as written.

    >>> exact(0.1) + exact("1/5")
    Fraction(3, 10)
    """
    if isinstance(number, (bool, np.bool_)):
        raise InputError("a number is needed, not a truth value")
    if isinstance(number, (float, np.floating)):
        if not math.isfinite(number):
            raise InputError("a finite number is needed, not NaN or infinity")
        return Fraction(repr(float(number)))
    if isinstance(number, np.integer):
        return Fraction(int(number))
    if isinstance(number, (str, Decimal)) and _is_excessive(str(number)):
        raise InputError("the number has too many digits; use one between 1e-300 and 1e300")
    try:
        fraction = Fraction(number)
        float(fraction)  # which a message or a certificate will show
        return fraction
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise InputError("a finite number is needed: int, float, Fraction, Decimal or text") from None


def _is_excessive(text: str) -> bool:
    """Whether writing the number out would take forever: 1e999999999 has a billion digits."""
    exponent = text.lower().partition("e")[2].strip().lstrip("+-")
    return len(text) > 400 or (exponent.isdecimal() and int(exponent) > 300)


def _positive(number: Number, what: str, error: type[InputError] = InputError) -> Fraction:
    try:
        value = exact(number)
    except InputError:
        raise error(f"{what} must be a finite number") from None
    if value <= 0:
        raise error(f"{what} must be positive")
    return value


def _epsilon(number: Number) -> Fraction:
    return _positive(number, "epsilon", BudgetError)


@dataclass(frozen=True)
class Budget:
    """A privacy budget: epsilon, and the named shares of it that add up to it exactly.

    ``shares`` are amounts of epsilon, not percentages; ``budget["age"]`` is the epsilon of that share. Floats
    are read as the decimals they were written as (see ``exact``).

    >>> budget = Budget(1, {"age": "1/3", "income": "2/3"})
    >>> budget["income"]
    Fraction(2, 3)
    >>> Budget(1, {"age": 0.3, "income": 0.6})
    Traceback (most recent call last):
        ...
    dpmicro_native.errors.BudgetError: the shares add up to 9/10, not to epsilon = 1; change one of them
    """

    epsilon: Fraction
    shares: Mapping[str, Fraction]

    def __init__(self, epsilon: Number, shares: Mapping[str, Number]) -> None:
        total = _epsilon(epsilon)
        amounts = {
            str(name): _positive(share, f"the share {name!r}", BudgetError) for name, share in shares.items()
        }
        if not amounts:
            raise BudgetError("a budget needs at least one share; name what epsilon is spent on")
        if (spent := sum(amounts.values(), Fraction(0))) != total:
            raise BudgetError(f"the shares add up to {spent}, not to epsilon = {total}; change one of them")
        object.__setattr__(self, "epsilon", total)
        object.__setattr__(self, "shares", MappingProxyType(amounts))

    @classmethod
    def by_weights(cls, epsilon: Number, weights: Mapping[str, Number]) -> Budget:
        """Split in proportion to positive weights, such as the widths of the attributes' bounds.

        >>> Budget.by_weights(1, {"age": 120, "income": 0.5}).to_json()
        {'epsilon': '1', 'shares': {'age': '240/241', 'income': '1/241'}}
        """
        total = _epsilon(epsilon)
        parts = {
            str(name): _positive(weight, f"the weight of {name!r}", BudgetError)
            for name, weight in weights.items()
        }
        whole = sum(parts.values(), Fraction(0))
        return cls(total, {name: total * part / whole for name, part in parts.items()})

    @classmethod
    def even(cls, epsilon: Number, names: Iterable[str]) -> Budget:
        """Split into equal shares.

        >>> Budget.even(0.1, ["age", "income", "height"])["age"]
        Fraction(1, 30)
        """
        listed = list(names)
        if len(set(listed)) != len(listed):
            raise BudgetError("two shares have the same name; every share needs its own")
        return cls.by_weights(epsilon, dict.fromkeys(listed, 1))

    def split(self, name: str, weights: Mapping[str, Number]) -> Budget:
        """Split one share further; its parts are called ``name/part``.

        >>> Budget.even(1, ["age", "income"]).split("age", {"mean": 3, "variance": 1}).to_json()["shares"]
        {'age/mean': '3/8', 'age/variance': '1/8', 'income': '1/2'}
        """
        parts = Budget.by_weights(self[name], weights)
        shares: dict[str, Number] = {}
        for other, share in self.shares.items():
            new = {f"{name}/{part}": amount for part, amount in parts.shares.items()}
            shares.update(new if other == name else {other: share})
        if len(shares) != len(self.shares) - 1 + len(parts.shares):
            raise BudgetError("two shares have the same name; every share needs its own")
        return Budget(self.epsilon, shares)

    def __getitem__(self, name: str) -> Fraction:
        """The epsilon of a share."""
        try:
            return self.shares[name]
        except KeyError:
            raise BudgetError(f"the budget has no share {name!r}; it has {', '.join(self.shares)}") from None

    def __repr__(self) -> str:
        return f"Budget({str(self.epsilon)!r}, { {name: str(share) for name, share in self.shares.items()} })"

    def __hash__(self) -> int:
        return hash((self.epsilon, frozenset(self.shares.items())))

    def __reduce__(self) -> tuple[type[Budget], tuple[Fraction, dict[str, Fraction]]]:
        return Budget, (self.epsilon, dict(self.shares))

    def to_json(self) -> dict[str, str | dict[str, str]]:
        """Fractions as text, such as "1/3"; ``exact`` reads them back."""
        return {
            "epsilon": str(self.epsilon),
            "shares": {name: str(share) for name, share in self.shares.items()},
        }


# Coins and noise


def discrete_laplace(
    scale: Number, size: int | tuple[int, ...], *, threads: int = 0, progress: Progress = None
) -> Integers:
    """Integers y with probability proportional to exp(-|y| / scale), drawn exactly.

    For studying the noise; to protect values use ``noisy_values`` or ``noisy_sums``. A float scale is taken
    as the binary fraction it is. Scales above 2^56 are refused; below that, a draw that left the range of
    int64 (probability below exp(-127)) would be set to the end of that range.

    >>> discrete_laplace(Fraction(5, 2), 1000).shape
    (1000,)
    """
    if isinstance(scale, (float, np.floating)) and math.isfinite(scale):
        scale = Fraction(float(scale))
    ratio = exact(scale)
    if ratio <= 0:
        raise InputError("the scale of the noise must be positive")
    shape = (size,) if isinstance(size, (int, np.integer)) else tuple(size)
    if any(length < 0 for length in shape):
        raise InputError("the size cannot be negative")
    nothing = np.zeros((math.prod(shape), 1), dtype=np.int64)
    noise = _core.add_discrete_laplace(
        nothing, [ratio.as_integer_ratio()], threads=threads, progress=progress
    )
    return noise.reshape(shape)


def permutation(n: int, *, progress: Progress = None) -> Integers:
    """A uniformly random order of 0 .. n-1; every order is equally likely, exactly.

    >>> sorted(permutation(4).tolist())
    [0, 1, 2, 3]
    """
    return _core.permutation(n, progress=progress)


def poisson_sample(
    n: int, probability: Number, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.bool_]:
    """Keep each of n records with the given probability, independently and exactly.

    >>> int(poisson_sample(1000, 1).sum())
    1000
    """
    p = exact(probability)
    if not 0 <= p <= 1:
        raise InputError("a probability must lie between 0 and 1")
    return _sample(n, p, False, threads, progress)


def poisson_sample_exponential(
    n: int, x: Number, *, threads: int = 0, progress: Progress = None
) -> NDArray[np.bool_]:
    """Keep each of n records with probability 1 - exp(-x), independently and exactly.

    That is SafePub's beta for epsilon = x. It is irrational, so ``poisson_sample`` could only approximate it.

    >>> int(poisson_sample_exponential(1000, 0).sum())
    0
    """
    rate = exact(x)
    if rate < 0:
        raise InputError("x must be 0 or larger, so that 1 - exp(-x) is a probability")
    return _sample(n, rate, True, threads, progress)


def _sample(
    n: int, ratio: Fraction, exponential: bool, threads: int, progress: Progress
) -> NDArray[np.bool_]:
    if max(ratio.as_integer_ratio()) >= _LIMIT:
        raise InputError("the number has too many digits; write it as a fraction of numbers below 2^62")
    numerator, denominator = ratio.as_integer_ratio()
    return _core.poisson_sample(
        n, numerator, denominator, exponential=exponential, threads=threads, progress=progress
    )


# Private selection


def permute_and_flip(scores: ArrayLike | Sequence[Number], epsilon: Number, sensitivity: Number) -> int:
    """Choose an index privately, higher scores being likelier: permute and flip (McKenna & Sheldon 2020).

    The choice is epsilon-differentially private when replacing (or adding, removing) one record moves no
    score by more than ``sensitivity``. Scores are exact: integers, Fractions, or floats taken as the binary
    fractions they are; probabilities are exact as well. Expected scores are never below those of
    ``exponential_mechanism`` at the same epsilon.

    >>> permute_and_flip([1, 5, 2], epsilon=1000, sensitivity=1)
    1
    """
    return _select(scores, epsilon, sensitivity, permute=True)


def exponential_mechanism(scores: ArrayLike | Sequence[Number], epsilon: Number, sensitivity: Number) -> int:
    """Choose an index with probability proportional to exp(epsilon score / (2 sensitivity)), exactly.

    For comparison; ``permute_and_flip`` is never worse.

    >>> exponential_mechanism([1, 5, 2], epsilon=1000, sensitivity=1)
    1
    """
    return _select(scores, epsilon, sensitivity, permute=False)


def _select(
    scores: ArrayLike | Sequence[Number], epsilon: Number, sensitivity: Number, *, permute: bool
) -> int:
    factor = _epsilon(epsilon) / (2 * _positive(sensitivity, "the sensitivity"))
    integers, unit = _common_unit(scores)
    factor *= unit
    if isinstance(integers, np.ndarray) and max(factor.as_integer_ratio()) < _LIMIT:
        return _core.select(integers, *factor.as_integer_ratio(), permute=permute)
    return _select_with_large_integers([int(score) for score in integers], factor, permute=permute)


def _common_unit(scores: ArrayLike | Sequence[Number]) -> tuple[Integers | list[int], Fraction]:
    """Scores, up to a constant, as whole multiples of one fraction; an array if they fit 64 bits."""
    array = np.asarray(scores)
    if array.ndim != 1 or array.size == 0:
        raise InputError("a list of at least one score is needed")
    if array.dtype.kind not in "iufO":
        raise InputError("scores must be integers, Fractions or floats")
    if np.can_cast(array.dtype, np.int64):
        return np.ascontiguousarray(array, dtype=np.int64), Fraction(1)
    try:
        fractions = [Fraction(score) for score in array.tolist()]
    except (TypeError, ValueError, OverflowError):
        raise InputError("scores must be finite integers, Fractions or floats") from None
    unit = Fraction(1, math.lcm(*(score.denominator for score in fractions)))
    best = max(fractions)
    gaps = [int((score - best) / unit) for score in fractions]
    return (np.array(gaps, dtype=np.int64) if min(gaps) >= -(1 << 63) else gaps), unit


def _select_with_large_integers(scores: list[int], factor: Fraction, *, permute: bool) -> int:
    """The same choice with Python's integers, for numbers that the core's 64 bits do not hold."""
    best = max(scores)
    candidates = list(range(len(scores)))
    while True:
        position = _random_below(len(candidates))
        candidate = candidates[position]
        if _exponential_coin(factor * (best - scores[candidate])):
            return candidate
        if permute:
            candidates[position] = candidates[-1]
            candidates.pop()


def _random_below(bound: int) -> int:
    bits = (bound - 1).bit_length()
    words = max(1, -(-bits // 64))
    while True:
        drawn = int.from_bytes(_core.random_words(words, threads=1).tobytes(), "little")
        if (number := drawn >> (64 * words - bits)) < bound:
            return number


def _exponential_coin(x: Fraction) -> bool:
    """True with probability exp(-x): Canonne, Kamath & Steinke 2020, Algorithm 1."""
    while x > 1:
        if not _exponential_coin(Fraction(1)):
            return False
        x -= 1
    k = 1
    while _random_below(x.denominator * k) < x.numerator:
        k += 1
    return k % 2 == 1


# Mechanisms: epsilon and sensitivity in, noisy values out


def cluster_sums(
    U: ArrayLike, labels: ArrayLike, *, bits: int = 30, progress: Progress = None
) -> tuple[Integers, Integers]:
    """Sizes of the clusters and exact integer sums (clusters x attributes) of their records.

    Entries of ``U`` (in the unit cube) are put on a grid of 2^bits steps first. Replacing one record moves an
    attribute's sum by at most 2^bits, exactly: give ``noisy_sums`` that number as the sensitivity, and
    divide by ``size * 2**bits`` afterwards.

    >>> sizes, sums = cluster_sums([[0.5], [1.0], [0.25]], [0, 0, 1], bits=2)
    >>> sizes.tolist(), sums.tolist()
    ([2, 1], [[6], [1]])
    """
    array = np.asarray(labels)
    clusters = int(array.max()) + 1 if array.size else 0
    return _core.cluster_sums(U, labels, clusters, bits, progress=progress)


def noisy_sums(
    sums: ArrayLike,
    sensitivity: Number | Sequence[Number],
    epsilon: Number | Sequence[Number],
    *,
    threads: int = 0,
    progress: Progress = None,
) -> Integers:
    """Integers (rows x attributes) with discrete Laplace noise of scale sensitivity/epsilon.

    ``sensitivity`` is the most that one column's entries can change in total when one individual is
    replaced; ``epsilon`` is that column's share. Both are one number or one per column. Each column is then
    epsilon-differentially private, all of them together for the sum of the shares.

    The scale is exact, or rounded up by less than one part in 2^59 where the fraction is too long.

    >>> noisy_sums([[10, 20], [30, 40]], sensitivity=1, epsilon=[1000, 2000]).tolist()
    [[10, 20], [30, 40]]
    """
    array = np.asarray(sums)
    if array.dtype.kind not in "iu" or array.ndim != 2:
        raise InputError("sums must be a 2-D array of whole numbers, clusters x attributes")
    m = array.shape[1]
    scales = [
        _representable(s / e)
        for s, e in zip(
            _per_column(sensitivity, m, "the sensitivity"),
            _per_column(epsilon, m, "epsilon", BudgetError),
            strict=True,
        )
    ]
    return _core.add_discrete_laplace(
        np.ascontiguousarray(array, dtype=np.int64),
        [scale.as_integer_ratio() for scale in scales],
        threads=threads,
        progress=progress,
    )


def noisy_values(
    values: ArrayLike,
    sensitivity: Number | Sequence[Number],
    epsilon: Number | Sequence[Number],
    *,
    changed: int | Sequence[int],
    magnitude: Number,
    sizes: ArrayLike | None = None,
    threads: int = 0,
    progress: Progress = None,
) -> NDArray[np.float64]:
    """Real numbers with noise on a power-of-two grid: the Laplace mechanism without its leak.

    ``values`` is a list or a table (rows x columns). Entries are clamped to [-magnitude, magnitude], which is
    public, rounded to a grid, and get discrete Laplace noise; results lie on the grid. ``sensitivity``,
    ``epsilon`` and ``changed`` are one number or one per column: the L1 sensitivity of the list of entries
    that share the budget ``epsilon``, and how many entries of that list one replacement may change.
    Rounding can move each of these by one grid step more, and that is paid for: the noise is scaled to
    sensitivity + changed * grid.

    With ``sizes`` (one per row), row i has the sensitivity ``sensitivity / sizes[i]``: statistics of
    clusters, where one replacement changes one row only.

    The grid is the next power of two of (sensitivity/epsilon) / 2^40 (coarser only if ``magnitude`` needs
    it to fit 64 bits), and the scale is rounded up to whole grid steps; both depend on public numbers only.

    >>> noisy_values([0.25, 0.5], sensitivity=1, epsilon=1e12, changed=1, magnitude=1).round(6)
    array([0.25, 0.5 ])
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or array.size == 0:
        raise InputError("values must be a list or a table of at least one number")
    table = array.astype(np.float64).reshape(len(array), -1)
    if not np.isfinite(table).all():
        raise InputError("values has NaN or infinite entries; fill or drop them first")
    n, m = table.shape
    largest = _positive(magnitude, "the magnitude")
    if isinstance(changed, (int, np.integer)):
        touched = [int(changed)] * m
    elif len(changed) == m:
        touched = [int(count) for count in changed]
    else:
        raise InputError("changed must be one number or one per column")
    if min(touched) < 1:
        raise InputError("changed must be at least 1: one replacement changes something")
    groups, divisors = _groups(sizes, n)
    sensitivities = _per_column(sensitivity, m, "the sensitivity")
    epsilons = _per_column(epsilon, m, "epsilon", BudgetError)

    exponents = np.empty((len(divisors), m), dtype=np.int32)  # ldexp takes no int64 on Windows
    scales = []
    for i, divisor in enumerate(divisors):
        for j in range(m):
            exponents[i, j], _, scale = _grid(sensitivities[j] / divisor, epsilons[j], touched[j], largest)
            scales.append((scale, 1))

    exponent = exponents[0] if groups is None else exponents[groups]
    np.clip(table, -float(largest), float(largest), out=table)
    codes = np.rint(np.ldexp(table, -exponent)).astype(np.int64)
    noisy = _core.add_discrete_laplace(codes, scales, groups=groups, threads=threads, progress=progress)
    return np.ldexp(noisy.astype(np.float64), exponent).reshape(array.shape)


def _grid(
    sensitivity: Fraction, epsilon: Fraction, changed: int, magnitude: Fraction
) -> tuple[int, int, int]:
    """The grid 2^t, the sensitivity in grid steps once values are rounded to it, the scale in grid steps."""
    exponent = max(_log2_ceiling(sensitivity / epsilon) - 40, _log2_ceiling(magnitude) - 60)
    # Rounding moves each of two neighbouring values by at most half a step. Their distance is then a whole
    # number of steps, so its bound may be rounded down.
    steps = math.floor(sensitivity / Fraction(2) ** exponent) + changed
    return exponent, steps, math.ceil(steps / epsilon)


def _groups(sizes: ArrayLike | None, n: int) -> tuple[NDArray[np.int32] | None, list[int]]:
    """Rows of equal size share a scale: the group of each row, and each group's size."""
    if sizes is None:
        return None, [1]
    array = np.asarray(sizes)
    if array.shape != (n,) or array.dtype.kind not in "iu" or array.min() < 1:
        raise InputError("sizes must be a list with one whole number from 1 for each row")
    distinct, groups = np.unique(array, return_inverse=True)
    return groups.reshape(n).astype(np.int32), distinct.tolist()


def _per_column(
    numbers: Number | Sequence[Number], m: int, what: str, error: type[InputError] = InputError
) -> list[Fraction]:
    """One positive fraction per column, from one number or from one per column."""
    if isinstance(numbers, (str, int, float, Fraction, Decimal, np.number)):
        return [_positive(numbers, what, error)] * m
    listed = [_positive(number, what, error) for number in numbers]
    if len(listed) != m:
        raise error(f"{what} must be one number or one per column")
    return listed


def _log2_ceiling(number: Fraction) -> int:
    """The smallest t with number <= 2^t."""
    t = number.numerator.bit_length() - number.denominator.bit_length()
    return t + 1 if number > Fraction(2) ** t else t


def _representable(scale: Fraction) -> Fraction:
    """The scale itself if the core can hold it, else a slightly larger one: more noise is safe."""
    if scale.numerator < _LIMIT and scale.denominator < _LIMIT:
        return scale
    places = min(60 - _log2_ceiling(scale), 120)
    unit = Fraction(2) ** -places
    return math.ceil(scale / unit) * unit
