"""SafePub: truthful tables under (ε, δ)-differential privacy by sampling, generalisation and suppression.

Source: Bild, Kuhn, Prasser, "SafePub: A Truthful Data Anonymization Algorithm With Strong Privacy
Guarantees", PoPETs 2018(1), with three corrections (see :class:`SafePub`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction

from .errors import BudgetError, InputError

# Parameters are computed with 60 digits. Every comparison leaves a margin of 1e-40, far above the
# rounding errors (below 1e-50, see _Tail) and always on the safe side.
_DIGITS = 60
_MARGIN = Decimal("1e-40")
#: Above this ε a record is in the sample with probability 1 - 2e-9, and k is beyond any table.
MAX_EPSILON = 20


@contextmanager
def _digits() -> Iterator[None]:
    with localcontext(Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN, Emin=-10**9, Emax=10**9)):
        yield


def exact(number: float | Fraction | Decimal | str) -> Fraction:
    """Read a number as the decimal it is written as: 0.1 is a tenth, not the double next to it."""
    try:
        return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(number)
    except (TypeError, ValueError, OverflowError):
        raise InputError("privacy parameters must be finite numbers") from None


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
        raise BudgetError(f"epsilon must not exceed {MAX_EPSILON}; SafePub keeps nearly all records long before")


def safepub_delta(k: int, beta: float, epsilon: float | Fraction) -> float:
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


def safepub_parameters(epsilon: float | Fraction, delta: float | Fraction) -> tuple[float, int]:
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
