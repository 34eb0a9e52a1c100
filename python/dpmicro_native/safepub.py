"""SafePub: truthful tables under (ε, δ)-differential privacy by sampling, generalisation and suppression.

Source: Bild, Kuhn, Prasser, "SafePub: A Truthful Data Anonymization Algorithm With Strong Privacy
Guarantees", PoPETs 2018(1), with three corrections (see :class:`SafePub`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from . import _core
from .errors import BudgetError, InputError
from .hierarchy import Hierarchy
from .mask import Budget, Number, exact

if TYPE_CHECKING:
    from ._core import Progress

# Parameters are computed with 60 digits. Every comparison leaves a margin of 1e-40, far above the
# rounding errors (below 1e-50, see _Tail) and always on the safe side.
_DIGITS = 60
_MARGIN = Decimal("1e-40")
#: Above this ε a record is in the sample with probability 1 - 2e-9, and k is beyond any table.
MAX_EPSILON = 20


@contextmanager
def _digits() -> Iterator[None]:
    with localcontext(Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)):
        yield


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _float_up(number: Decimal) -> float:
    """Smallest double whose decimal is at least the number."""
    value = float(number)
    while Decimal(repr(value)) < number:
        value = math.nextafter(value, math.inf)
    return value


class _Tail:
    """Upper tails of the binomial distributions that bound δ for a sampling rate β and an ε.

    Theorem 3 takes the maximum of P[Bin(n, β) > γ n] over n >= n_m(k) = ceil(k/γ) - 1. Between two
    values of n where γ n passes an integer the tail starts at the same j and grows with n, so the
    maximum is attained at some n = n_m(j), j >= k, where the tail starts at j:

        d(k) = max over j >= k of T(j),     T(j) = P[Bin(n_m(j), β) >= j].

    Consequently the smallest k with d(k) <= δ is one more than the largest j with T(j) > δ. By
    Chernoff's bound T(j) <= exp(-n_m(j) KL(γ, β)), which ends both searches.

    Errors: T(j) is a product of an exact binomial coefficient and two correctly computed powers,
    times a sum of positive terms with ratio below 1/2; fewer than a thousand roundings, of 1e-60 each
    (powers: 1e-60 times the bits of the exponent), plus a rest of the sum below 1e-50.
    """

    def __init__(self, beta: Decimal, epsilon: Decimal) -> None:
        self.beta = beta
        self.rest = 1 - beta
        self.gamma = 1 - (-epsilon).exp() * self.rest  # (e^ε - 1 + β)/e^ε
        self.log_beta, self.log_rest = float(beta.ln()), float(self.rest.ln())
        divergence = self.gamma * (self.gamma / beta).ln()
        divergence += (1 - self.gamma) * ((1 - self.gamma) / self.rest).ln()
        self.divergence = float(divergence)

    def trials(self, j: int) -> int:
        """n_m(j) = ceil(j/γ) - 1; the larger of two values when j/γ is too close to an integer to tell."""
        quotient = Decimal(j) / self.gamma
        return math.ceil(quotient * (1 + _MARGIN)) - 1

    def log_bound(self, j: int) -> float:
        """A little more than ln T(j), cheaply: T(j) <= f(j)/(1 - ratio of the first two terms)."""
        n = self.trials(j)
        log_choose = math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1)
        log_term = log_choose + j * self.log_beta + (n - j) * self.log_rest
        ratio = (n - j) / (j + 1) * math.exp(self.log_beta - self.log_rest)
        slack = 1e-6 + 1e-13 * n * math.log(n + 2)  # the rounding of lgamma grows with its result
        return log_term - math.log1p(-ratio) + slack

    def upper(self, j: int) -> Decimal:
        """T(j), never below its true value and at most 2e-40 of it above."""
        n = self.trials(j)
        odds = self.beta / self.rest
        term = Decimal(math.comb(n, j)) * self.beta**j * self.rest ** (n - j)
        total = term
        for i in range(j, n):
            term *= (n - i) * odds / (i + 1)
            total += term
            if term < total * Decimal("1e-50"):
                break
        return total * (1 + _MARGIN)

    def last(self, log_delta: float) -> int:
        """Some j beyond which T never exceeds δ, by Chernoff's bound."""
        n = math.ceil(-log_delta / self.divergence * (1 + 1e-9)) + 1
        return math.ceil(float(self.gamma) * (n + 1)) + 1


def _maximal_beta(epsilon: Fraction) -> Decimal:
    return 1 - (-_decimal(epsilon)).exp()


def _check_epsilon(epsilon: Fraction) -> None:
    if epsilon <= 0:
        raise BudgetError("epsilon must be positive")
    if epsilon > MAX_EPSILON:
        raise BudgetError(
            f"epsilon must not exceed {MAX_EPSILON}; SafePub keeps nearly all records long before"
        )


def safepub_delta(k: int, beta: float, epsilon: Number) -> float:
    """Return the smallest δ for which the anonymisation operator is (ε, δ)-differentially private.

    The operator samples every record with probability β, generalises, and suppresses combinations
    that occur less than k times; then δ = d(k, β, ε) (theorem 3, equation 2). The result is rounded
    upwards. A β within 2^-52 of 1 - e^-ε, the largest one that ε allows, stands for that number.

    >>> beta, k = safepub_parameters(1.0, 1e-6)
    >>> f"{safepub_delta(k, beta, 1.0):.3e}, {safepub_delta(k - 1, beta, 1.0):.3e}"
    '8.995e-07, 1.184e-06'
    """
    if k < 1:
        raise InputError("k must be at least 1")
    if not 0 < beta < 1:
        raise InputError("the sampling rate beta must lie between 0 and 1")
    exact_epsilon = exact(epsilon)
    _check_epsilon(exact_epsilon)
    with _digits():
        rate, maximal = _decimal(exact(beta)), _maximal_beta(exact_epsilon)
        if abs(rate - maximal) <= Decimal(2) ** -52:
            rate = maximal
        if rate > maximal:
            raise InputError("theorem 3 needs epsilon >= -ln(1 - beta); choose a smaller beta")
        tail = _Tail(rate, _decimal(exact_epsilon))
        worst = tail.upper(k)
        log_worst = float(worst.ln())
        j = k
        while (j := j + 1) <= tail.last(log_worst):
            if tail.log_bound(j) > log_worst and (candidate := tail.upper(j)) > worst:
                worst, log_worst = candidate, float(candidate.ln())
        return _float_up(worst)


def safepub_parameters(epsilon: Number, delta: Number) -> tuple[float, int]:
    """Return the sampling rate β = 1 - e^-ε and the smallest k with d(k, β, ε) <= δ.

    Numbers mean the decimals they are written as, and k is the exact minimum for them; where 40
    digits could not tell, the larger k is taken.

    >>> safepub_parameters(1.0, 1e-5)
    (0.6321205588285577, 61)
    """
    exact_epsilon, exact_delta = exact(epsilon), exact(delta)
    _check_epsilon(exact_epsilon)
    if not 0 < exact_delta < 1:
        raise BudgetError("delta must lie between 0 and 1")
    with _digits():
        beta = _maximal_beta(exact_epsilon)
        tail = _Tail(beta, _decimal(exact_epsilon))
        limit = _decimal(exact_delta)
        log_delta = float(limit.ln())
        j = tail.last(log_delta)
        while j > 0 and (tail.log_bound(j) < log_delta or tail.upper(j) <= limit):
            j -= 1
        return float(beta), j + 1


def safepub_curve(k: int, beta: float, epsilons: Iterable[float]) -> list[tuple[float, float]]:
    """Return the smoothness curve: the same k and β give (ε′, d(k, β, ε′)) for all ε′ at once (theorem 11).

    >>> [(e, f"{d:.0e}") for e, d in safepub_curve(61, 0.6321205588285577, [1.0, 2.0])]
    [(1.0, '8e-06'), (2.0, '2e-09')]
    """
    return [(epsilon, safepub_delta(k, beta, epsilon)) for epsilon in epsilons]


#: How a class near k counts in a score; see :func:`scores`.
Survival = Literal["hard", "ramp"]

#: The score functions of section 5.
SCORES = ("granularity", "intensity", "discernibility", "entropy", "groups", "classification")

# The core's fractions have numerators and denominators below this.
_RATIONAL_LIMIT = 1 << 62


def _rational(number: Fraction) -> tuple[int, int]:
    """The number if it fits the core's fractions, else one slightly below."""
    limit = _RATIONAL_LIMIT - 1
    if max(number.numerator, number.denominator) <= limit:
        return number.numerator, number.denominator
    if number > 1:
        denominator = max(1, int(limit / number))
        return min(limit, int(number * denominator)), denominator
    numerator = int(number * limit)
    return (numerator, math.ceil(numerator / number)) if numerator else (0, 1)


def sensitivity(score: str, k: int, attributes: int, *, survival: Survival = "ramp") -> Fraction:
    """By how much one record more or less can move a score.

    ``survival="hard"`` is the paper's score, which suppresses classes below k at once (theorems 6 to 9,
    section 5.4); "ramp" is the one that the corrected search uses, with a sensitivity free of k.

    >>> sensitivity("granularity", k=61, attributes=9), sensitivity("granularity", 61, 9, survival="hard")
    (Fraction(9, 1), Fraction(540, 1))
    """
    steps, unit, _ = _core.score_sensitivity(score, k, attributes, hard=survival == "hard")
    return Fraction(steps, unit)


def scores(
    codes: NDArray[np.int32],
    hierarchies: Sequence[Hierarchy],
    schemes: Sequence[Sequence[int]],
    *,
    score: str,
    k: int,
    class_column: int | None = None,
    survival: Survival = "ramp",
) -> list[Fraction]:
    """Score generalisation schemes on a sample of leaf codes (n x attributes), all records counted.

    The scores are exact functions of the data: for the curator's eyes and for tests. With
    ``survival="hard"`` they are the paper's (section 5). With "ramp", a class of s records counts as
    min(s, max(0, 2s - ⌈3k/2⌉)) kept records, the others of it as suppressed: half of them at s = k.

    >>> sex = Hierarchy.from_rows([("f", "*"), ("m", "*")])
    >>> people = np.array([[0], [0], [1]], dtype=np.int32)
    >>> scores(people, [sex], [[0], [1]], score="granularity", k=2, survival="hard")
    [Fraction(-2, 1), Fraction(-3, 1)]
    """
    hard = survival == "hard"
    unit = _core.score_sensitivity(score, k, len(hierarchies), hard=hard)[1]
    raw = _core.safepub_scores(
        np.ascontiguousarray(codes, dtype=np.int32),
        [hierarchy.tables for hierarchy in hierarchies],
        [list(scheme) for scheme in schemes],
        score=score,
        k=k,
        class_attribute=-1 if class_column is None else class_column,
        hard=hard,
    )
    return [Fraction(number, unit) for number in raw]


def amplified(epsilon: Fraction, epsilon_anon: Fraction) -> Fraction:
    """Largest ε₁ (rounded down) that may be spent on a sample so that the data lose only ``epsilon``.

    An ε₁-differentially private computation on a Poisson sample of rate β is
    ln(1 + β(e^ε₁ - 1))-differentially private on the data (Li, Qardaji & Su 2012, theorem 1; Balle,
    Barthe & Gaboardi 2018, theorem 8). All selections of a search read one sample: they are composed
    first, and the sum is amplified once. Here β = 1 - e^-ε_anon.

    >>> round(float(amplified(Fraction(1, 10), Fraction(9, 10))), 4)
    0.1632
    """
    with _digits():
        gain = (_decimal(epsilon).exp() - 1) / _maximal_beta(epsilon_anon)
        spent = (1 + gain).ln() * (1 - _MARGIN)
        return Fraction(spent)


@dataclass(frozen=True)
class SafePub:
    """SafePub with its gaps closed: parameters of the method, and how its budget is spent.

    1. *Search* (``epsilon_search``, a tenth of ε unless given). On a Poisson sample of rate
       β = 1 - e^-ε_anon, ``steps`` private selections walk down the lattice of generalisation schemes,
       and one more, with ``final_share`` of the budget, picks among all schemes scored on the way (which
       they are follows from the selections). They are composed on the sample and amplified once
       (:func:`amplified`). Scores count classes near k in part, so that one record cannot move k of
       them at once (:func:`scores`, "ramp").
    2. *Release* (ε_anon = ε - ε_search, and δ). A fresh sample of rate β is generalised with the scheme
       found, and combinations that occur less than k times are left out (theorem 3). The search's
       outcome is a public parameter by then, so the two compose to (ε, δ).

    The paper takes the visited scheme with the best *true* score, which nobody pays for, uses one
    sample for both parts, which its composition theorem does not cover, and selects with floating
    point. ``as_published=True`` repeats the first two, with the paper's scores and the exponential
    mechanism, for comparison: see :attr:`caveats`.

    >>> method = SafePub(epsilon=1, delta=1e-5)
    >>> method.k, round(method.beta, 4), method.budget
    (58, 0.5934, Budget('1', {'sample': '9/10', 'search': '1/10'}))
    """

    epsilon: Number
    delta: Number
    epsilon_search: Number | None = None
    steps: int = 300
    score: str = "granularity"
    #: Name of the column that the classification score predicts; it is never generalised.
    class_column: str | None = None
    final_share: Number = Fraction(1, 2)
    as_published: bool = False

    def check(self) -> None:
        """Refuse parameters that cannot work, before data is read."""
        sample = self.budget["sample"]
        _check_epsilon(sample)
        if max(sample.numerator, sample.denominator) >= _RATIONAL_LIMIT:
            raise BudgetError("epsilon and epsilon_search have too many digits; 18 are enough")
        if not 0 < exact(self.delta) < 1:
            raise BudgetError("delta must lie between 0 and 1; below one over the number of records is usual")
        if self.steps < 1:
            raise InputError("steps must be at least 1; the paper uses 300")
        if not 0 < exact(self.final_share) < 1:
            raise BudgetError("final_share must lie between 0 and 1")
        if not isinstance(self.as_published, bool):
            raise InputError("as_published must be true or false")
        if self.score not in SCORES:
            raise InputError(f"the score must be one of {', '.join(SCORES)}")
        if (self.score == "classification") != (self.class_column is not None):
            raise InputError("the classification score needs a class_column, and only that score takes one")

    @cached_property
    def budget(self) -> Budget:
        """Return ε and its shares: the sample's, which the release spends, and the search's."""
        epsilon = exact(self.epsilon)
        search = epsilon / 10 if self.epsilon_search is None else exact(self.epsilon_search)
        return Budget(epsilon, {"sample": epsilon - search, "search": search})

    @cached_property
    def _parameters(self) -> tuple[float, int]:
        self.check()
        return safepub_parameters(self.budget["sample"], exact(self.delta))

    @property
    def beta(self) -> float:
        """Sampling rate of both samples."""
        return self._parameters[0]

    @property
    def k(self) -> int:
        """Combinations that occur less often in the sample are suppressed."""
        return self._parameters[1]

    def curve(self, extra: Sequence[float] = (0.0, 0.25, 0.5, 1.0, 2.0)) -> list[tuple[float, float]]:
        """Smoothness (theorem 11): the release is (ε′, δ′)-private at once for every ε′ = ε + extra.

        >>> [(e, f"{d:.0e}") for e, d in SafePub(epsilon=1, delta=1e-5).curve([0, 1])]
        [(1.0, '9e-06'), (2.0, '2e-10')]
        """
        sample, search = self.budget["sample"], self.budget["search"]
        points = [sample + exact(more) for more in extra]
        return [(float(point + search), safepub_delta(self.k, self.beta, point)) for point in points]

    @cached_property
    def spending(self) -> tuple[Fraction, Fraction]:
        """Return ε, on the sample, of one step of the search and of the final choice."""
        search = self.budget["search"]
        if self.as_published:
            return search / self.steps, Fraction(0)
        total = amplified(search, self.budget["sample"])
        final = total * exact(self.final_share)
        return (total - final) / self.steps, final

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on, as sentences for a certificate."""
        return (
            "Every individual has one record; neighbouring tables differ by one record added or removed.",
            "The hierarchies, the score and all parameters were chosen without looking at the table.",
            "Rows are released in random order; unsampled and suppressed rows and their number are not.",
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """What does not hold, as sentences for a certificate; empty for the corrected method."""
        if not self.as_published:
            return ()
        return (
            "As published: the generalisation is the one with the best true score among those visited. That "
            "choice reads the data without noise, so it is not differentially private for any epsilon.",
            "As published: search and release share one sample, so their budgets do not compose as stated.",
        )


@dataclass(frozen=True)
class SafePubResult:
    """What :func:`search_and_release` found."""

    #: The generalisation level of each attribute: part of the private output.
    levels: tuple[int, ...]
    #: Released records in random order, as row numbers of the input. The numbers are for the curator;
    #: the generalised records are the private output.
    rows: NDArray[np.int64]
    _search: tuple[list[int], list[list[int]], list[int], int] = field(repr=False, compare=False)

    @cached_property
    def visited(self) -> tuple[tuple[int, ...], ...]:
        """The pivots of the search in order. They follow from private choices, but are not needed."""
        pivots, schemes, _, _ = self._search
        return tuple(tuple(schemes[pivot]) for pivot in pivots)

    @cached_property
    def scored(self) -> Mapping[tuple[int, ...], Fraction]:
        """Every scheme that was scored, with its exact score: never to be released."""
        _, schemes, numbers, unit = self._search
        return {tuple(s): Fraction(number, unit) for s, number in zip(schemes, numbers, strict=True)}


def search_and_release(
    codes: NDArray[np.int32],
    hierarchies: Sequence[Hierarchy],
    method: SafePub,
    *,
    class_column: int | None = None,
    threads: int = 0,
    progress: Progress = None,
) -> SafePubResult:
    """Run the whole mechanism on leaf codes (n x attributes, one hierarchy each).

    ``class_column`` is the number of the column that ``method.class_column`` names. The randomness is
    the system's; threads never change a result.

    >>> sex = Hierarchy.from_rows([("f", "*"), ("m", "*")])
    >>> people = np.zeros((1000, 1), dtype=np.int32)
    >>> result = search_and_release(people, [sex], SafePub(epsilon=2, delta=1e-4, epsilon_search=1, steps=1))
    >>> result.levels in {(0,), (1,)}
    True
    """
    method.check()
    if (class_column is None) != (method.class_column is None):
        raise InputError("say which column of the codes is the class column, and only for classification")
    steepness, unit, monotone = _core.score_sensitivity(
        method.score, method.k, len(hierarchies), hard=method.as_published
    )
    # Where one more record can only raise scores, their differences move by one sensitivity, not two.
    steepness *= 1 if monotone and not method.as_published else 2
    step, final = method.spending
    rows, levels, pivots, schemes, numbers = _core.safepub(
        np.ascontiguousarray(codes, dtype=np.int32),
        [hierarchy.tables for hierarchy in hierarchies],
        score=method.score,
        k=method.k,
        class_attribute=-1 if class_column is None else class_column,
        steps=method.steps,
        step_factor=_rational(step / steepness),
        final_factor=_rational(final / steepness),
        epsilon_anon=_rational(method.budget["sample"]),
        as_published=method.as_published,
        threads=threads,
        progress=progress,
    )
    return SafePubResult(tuple(levels), rows, (pivots, schemes, numbers, unit))


def release_scheme(
    codes: NDArray[np.int32],
    hierarchies: Sequence[Hierarchy],
    levels: Sequence[int],
    method: SafePub,
    *,
    class_column: int | None = None,
    threads: int = 0,
    progress: Progress = None,
) -> NDArray[np.int64]:
    """The rows that are released for a scheme chosen before: a fresh sample without its rare combinations.

    The last part of :func:`search_and_release`: (ε_anon, δ)-differentially private by itself.

    >>> sex = Hierarchy.from_rows([("f", "*"), ("m", "*")])
    >>> people = np.zeros((1000, 1), dtype=np.int32)
    >>> len(release_scheme(people, [sex], [0], SafePub(epsilon=2, delta=1e-4))) > 500
    True
    """
    method.check()
    return _core.safepub_release(
        np.ascontiguousarray(codes, dtype=np.int32),
        [hierarchy.tables for hierarchy in hierarchies],
        list(levels),
        k=method.k,
        class_attribute=-1 if class_column is None else class_column,
        epsilon_anon=_rational(method.budget["sample"]),
        threads=threads,
        progress=progress,
    )
