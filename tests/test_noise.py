"""Coins, discrete Laplace noise and private selection have exactly the probabilities they should have."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from dpmicro_native import _core, mask
from dpmicro_native.errors import BudgetError, GeneratorError, InputError
from reference import noise as reference

ALPHA = 1e-6
TOP = 2**64
LIMIT = 2**62


def exponential(numerator: int, denominator: int, bits: int) -> int:
    """floor(2^bits exp(-numerator/denominator)), numerator <= denominator, from a much longer series."""
    if numerator == 0:
        return 1 << bits
    guard = 512
    term = total = 1 << (bits + guard)
    k = 0
    while term:
        k += 1
        term = term * numerator // (denominator * k)
        total += -term if k % 2 else term
    assert (total + (1 << 40)) >> guard == (total - (1 << 40)) >> guard  # no carry in doubt
    return total >> guard


@st.composite
def proper_fractions(draw: st.DrawFn) -> tuple[int, int]:
    denominator = draw(st.one_of(st.integers(1, 1000), st.integers(1, LIMIT - 1)))
    return draw(st.integers(0, denominator - 1)), denominator


# The coins


@given(proper_fractions())
@example((LIMIT - 2, LIMIT - 1))
@example((1, LIMIT - 1))
@example((0, 1))
@settings(max_examples=500, deadline=None)
def test_the_bounds_of_the_fast_coin_hold(fraction: tuple[int, int]) -> None:
    numerator, denominator = fraction
    lower, upper = _core.exponential_bounds(numerator, denominator)
    truth = exponential(numerator, denominator, 63)
    assert lower <= truth < upper
    # The error that the header derives, a sixteenth of the distance kept.
    assert abs((lower + upper) // 2 - truth) <= 64


@given(proper_fractions(), st.integers(1, 5))
@example((LIMIT - 2, LIMIT - 1), 4)
@settings(max_examples=200, deadline=None)
def test_the_exponential_coin_compares_a_real_number_with_exp(fraction: tuple[int, int], length: int) -> None:
    """The coin is true exactly if the number with the given binary digits is below exp(-x): shown next to
    exp(-x), where the first length - 1 words agree with its digits and the last one decides."""
    numerator, denominator = fraction
    if numerator == 0:
        assert _core.scripted_exponential_coin([], 0, denominator)  # exp(0) = 1 needs no randomness
        return
    number = exponential(numerator, denominator, 64 * length)
    digits = [number >> (64 * i) & (TOP - 1) for i in reversed(range(length))]
    for coin in (_core.scripted_exponential_coin, _core.scripted_below_exponential):
        for last, truth in (
            (0, True),
            (digits[-1] - 1000, True),
            (digits[-1] + 1000, False),
            (TOP - 1, False),
        ):
            if 0 <= last < TOP and (last < digits[-1] or last > digits[-1]):
                # Words after the last are there in case its distance is within the series' error.
                assert coin([*digits[:-1], last, 0, 0], numerator, denominator) == truth
        with pytest.raises(GeneratorError):  # all digits equal: undecided, asks for more
            coin(digits, numerator, denominator)


def test_the_exponential_coin_above_one_is_a_product_of_coins() -> None:
    inverse_e = exponential(1, 1, 64)
    assert inverse_e == math.floor(Fraction(TOP) / Fraction("2.71828182845904523536028747135266249775724709"))
    success, failure = [inverse_e - 1], [inverse_e + 1]
    coin = _core.scripted_exponential_coin
    assert coin(
        [*success, *success, *failure], 2, 1
    )  # exactly two coins are needed, a third is not read as one
    assert not coin([*success, *failure], 2, 1)
    assert not coin(failure, 10**30, 1)
    # 5/2: two coins of exp(-1), drawn as a geometric number, and one of exp(-1/2)
    half = exponential(1, 2, 64)
    assert coin([*success, *success, *failure, half - 2000], 5, 2)
    assert not coin([*success, *success, *failure, half + 2000], 5, 2)
    # A tie with 1/e goes to the next word.
    tie = exponential(1, 1, 128) & (TOP - 1)
    assert coin([inverse_e, tie - 1000, *failure, 0], 1, 1)
    assert not coin([inverse_e, tie + 1000], 1, 1)


@given(proper_fractions())
@settings(max_examples=200, deadline=None)
def test_the_rational_coin_compares_a_real_number_with_p(fraction: tuple[int, int]) -> None:
    numerator, denominator = fraction
    coin = _core.scripted_rational_coin
    number = numerator * TOP**3 // denominator
    digits = [number >> (64 * i) & (TOP - 1) for i in reversed(range(3))]
    for i in range(3):
        if digits[i] > 0:
            assert coin([*digits[:i], digits[i] - 1], numerator, denominator)
        if numerator * TOP**i % denominator or i == 0:  # else p had no digits left before
            assert digits[i] == TOP - 1 or not coin([*digits[:i], digits[i] + 1], numerator, denominator)
    assert coin([], 1, 1)
    assert not coin([0], 0, denominator)
    assert not coin([TOP // 2], 1, 2)  # 1/2 is not below 1/2
    with pytest.raises(InputError, match="between 0 and 1"):
        coin([0], 3, 2)


# The sampler


def enumerate_discrete_laplace(numerator: int, denominator: int) -> dict[int, float]:
    """The sampler's exact distribution: every outcome of its independent draws, fed in as words, with its
    probability. Only the coins' probabilities (shown above) are taken for granted."""
    weights: Counter[int] = Counter()
    for both in range(2 * numerator):
        word = (2 * both + 1) * TOP // (4 * numerator)  # the middle of the words that give this value
        u = both >> 1
        for v in range(45):
            words = [word, *([0] if u else []), *[0] * v, TOP - 1]
            probability = math.exp(-u / numerator) * math.exp(-v) * (1 - math.exp(-1)) / (2 * numerator)
            try:
                weights[_core.scripted_discrete_laplace(words, numerator, denominator)] += probability
            except GeneratorError:
                assert both & 1  # minus zero: drawn again
                assert v * numerator + u < denominator
        if u:  # a failed coin: drawn again
            with pytest.raises(GeneratorError):
                _core.scripted_discrete_laplace([word, TOP - 1], numerator, denominator)
    total = math.fsum(weights.values())
    return {y: weight / total for y, weight in weights.items()}


@pytest.mark.parametrize("scale", [(1, 1), (2, 1), (7, 1), (5, 2), (2, 5), (7, 3), (1, 3), (12, 5)])
def test_the_sampler_has_the_discrete_laplace_distribution(scale: tuple[int, int]) -> None:
    distribution = enumerate_discrete_laplace(*scale)
    b = scale[0] / scale[1]
    reach = max(1, round(25 * b))
    for y in range(-reach, reach + 1):
        assert distribution[y] == pytest.approx(reference.discrete_laplace_probability(y, b), rel=1e-12)
    # Neighbours one step apart: the ratio is exp(1/b), so epsilon = sensitivity/scale holds with equality.
    for y in range(-reach, reach):
        assert abs(math.log(distribution[y] / distribution[y + 1])) <= 1 / b + 1e-12


def chi_square(draws: np.ndarray, scale: float) -> float:
    """p-value of the draws under a discrete Laplace distribution; cells hold at least 1000 expected draws."""
    q = math.exp(-1 / scale)
    reach = math.floor(scale * math.log(len(draws) * (1 - q) / (1 + q) / 1000))
    inner = [reference.discrete_laplace_probability(y, scale) for y in range(-reach, reach + 1)]
    tail = (1 - math.fsum(inner)) / 2
    expected = np.array([tail, *inner, tail]) * len(draws)
    observed = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(5, 2), Fraction(40), Fraction(2**60 + 1, 2**57 + 1)])
def test_draws_accept_the_true_scale_and_reject_five_per_cent_off(scale: Fraction) -> None:
    draws = mask.discrete_laplace(scale, 10**6)
    assert chi_square(draws, float(scale)) > ALPHA
    assert chi_square(draws, float(scale) * 1.05) < ALPHA
    assert chi_square(draws, float(scale) * 0.95) < ALPHA


@pytest.mark.parametrize("bits", [30, 40, 55])
def test_large_scales_follow_the_laplace_distribution(bits: int) -> None:
    """Kolmogorov-Smirnov; the steps of the grid are far below what 10^6 draws can see."""
    draws = mask.discrete_laplace(2**bits, 10**6) / 2.0**bits
    ranks = np.arange(10**6) / 1e6
    ordered = np.sort(draws)
    for scale, true in ((1.0, True), (1.05, False), (0.95, False)):
        law = stats.laplace.cdf(ordered, scale=scale)
        distance = max((law - ranks).max(), (ranks + 1e-6 - law).max())
        assert (stats.kstwobign.sf(distance * 1e3) > ALPHA) == true
    # No structure in the low digits, no dependence on the draw before.
    low = np.bincount((draws * 2.0**bits).astype(np.int64) & 15, minlength=16)
    if bits < 52:
        assert stats.chisquare(low).pvalue > ALPHA
    assert abs(np.mean(np.sign(draws[1:]) * np.sign(draws[:-1]))) * 1e3 < 4.9
    assert abs(np.corrcoef(np.abs(draws[1:]), np.abs(draws[:-1]))[0, 1]) * 1e3 < 4.9


def test_the_reference_algorithm_agrees() -> None:
    draws = np.array([reference.discrete_laplace(2, 5) for _ in range(20_000)])
    assert chi_square(draws, 2.5) > ALPHA
    assert chi_square(draws, 2.5 * 1.2) < ALPHA


def test_scales_far_below_one_give_almost_no_noise() -> None:
    draws = mask.discrete_laplace(0.1, 10**6)  # P(not 0) = 2 exp(-10)/(1 + exp(-10))
    p = 2 * math.exp(-10) / (1 + math.exp(-10))
    assert stats.binomtest(int((draws != 0).sum()), 10**6, p).pvalue > ALPHA
    assert not mask.discrete_laplace(1e-6, 1000).any()
    assert not mask.discrete_laplace(2.0**-70, 1000).any()


def test_noise_saturates_at_the_ends_of_int64() -> None:
    ends = np.array([[2**63 - 1], [-(2**63)]] * 1000)
    noisy = _core.add_discrete_laplace(ends, [(1000, 1)])
    assert (noisy[::2] > 2**63 - 10**5).all()  # clamped, not wrapped around
    assert (noisy[1::2] < -(2**63) + 10**5).all()
    assert (noisy[::2] == 2**63 - 1).sum() > 300


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (0, "positive"),
        (-1, "positive"),
        (Fraction(-1, 3), "positive"),
        (math.nan, "finite"),
        (math.inf, "finite"),
        (2.0**57, "coarser"),
        (2**100, "2\\^62"),
        (Fraction(1, 2**127), "2\\^126"),
        (Fraction(1, 2**200), "2\\^128"),
        ("nonsense", "number"),
        (None, "number"),
        (True, "truth"),
    ],
)
def test_bad_scales_are_refused(scale: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mask.discrete_laplace(scale, 10)  # type: ignore[arg-type]


def test_sizes() -> None:
    assert mask.discrete_laplace(3, 0).shape == (0,)
    assert mask.discrete_laplace(3, (4, 5)).shape == (4, 5)
    assert mask.discrete_laplace(3, 7).dtype == np.int64
    assert _core.add_discrete_laplace(np.zeros((3, 0), np.int64), []).shape == (3, 0)
    with pytest.raises(InputError, match="negative"):
        mask.discrete_laplace(3, -1)
    with pytest.raises(InputError, match="group"):
        _core.add_discrete_laplace(np.zeros((3, 1), np.int64), [(1, 1)], groups=np.array([0, 1, 0], np.int32))
    with pytest.raises(InputError, match="group"):
        _core.add_discrete_laplace(np.zeros((3, 1), np.int64), [(1, 1)], groups=np.zeros(2, np.int32))


# Samples


def test_poisson_samples_have_their_probability() -> None:
    for kept, p in (
        (mask.poisson_sample(10**6, "1/3"), 1 / 3),
        (mask.poisson_sample(10**6, 0.05), 0.05),
        (mask.poisson_sample_exponential(10**6, 1), 1 - math.exp(-1)),
        (mask.poisson_sample_exponential(10**6, 0.9), 1 - math.exp(-0.9)),
        (mask.poisson_sample_exponential(10**6, 2.5), 1 - math.exp(-2.5)),
    ):
        assert stats.binomtest(int(kept.sum()), 10**6, p).pvalue > ALPHA
        assert stats.binomtest(int(kept.sum()), 10**6, p * 0.95).pvalue < ALPHA
        assert stats.binomtest(int((kept[1:] & kept[:-1]).sum()), 10**6 - 1, p * p).pvalue > ALPHA / 10
    assert not mask.poisson_sample(1000, 0).any()
    assert mask.poisson_sample(0, 0.5).shape == (0,)
    for bad in (-0.1, 1.1, math.nan, Fraction(1, 3**50)):
        with pytest.raises(InputError):
            mask.poisson_sample(10, bad)
    with pytest.raises(InputError, match="0 or larger"):
        mask.poisson_sample_exponential(10, -1)


# Private selection

CHOICES = {
    mask.permute_and_flip: reference.permute_and_flip_probabilities,
    mask.exponential_mechanism: reference.exponential_mechanism_probabilities,
}


def test_the_closed_form_of_permute_and_flip_is_the_algorithm() -> None:
    """Enumerate every order and every outcome of the coins."""
    scores, factor = [3, 1, 0, 2], 0.4
    p = [math.exp(-factor * (3 - score)) for score in scores]
    chosen = [0.0] * 4
    for order in permutations(range(4)):
        remaining = 1 / 24
        for candidate in order:
            chosen[candidate] += remaining * p[candidate]
            remaining *= 1 - p[candidate]
    np.testing.assert_allclose(reference.permute_and_flip_probabilities(scores, factor), chosen, rtol=1e-12)


def test_permute_and_flip_never_expects_less_than_the_exponential_mechanism() -> None:
    random = np.random.default_rng(4)
    strictly = 0
    for _ in range(1000):
        scores = random.integers(-20, 20, random.integers(1, 12))
        factor = float(random.uniform(0.01, 2))
        flip = reference.permute_and_flip_probabilities(scores, factor) @ scores
        weigh = reference.exponential_mechanism_probabilities(scores, factor) @ scores
        assert flip >= weigh - 1e-9
        strictly += flip > weigh + 1e-6
    assert strictly > 700  # and it does matter


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize(
    ("scores", "epsilon", "sensitivity", "draws"),
    [
        ([4, 0, 2, 4, -3], 1, 1, 30_000),
        (np.array([0, 1, 2, 3], np.int32), 0.5, "1/3", 30_000),
        ([Fraction(1, 3), 0.5, 0], 2, 0.5, 30_000),
        ([-(2**62), 2**62], Fraction(1, 2**62), 1, 30_000),  # the gap needs 64 bits
        ([0.1, 1.0, 1e-20], 1, 1, 3_000),  # needs Python's large integers
        ([0, 1], Fraction(3**50, 3**50 + 1), 1, 3_000),  # so does this
        (np.array([2**64 - 1, 2**64 - 3], np.uint64), 1, 1, 30_000),
    ],
)
def test_choices_have_their_exact_probabilities(choose, scores, epsilon, sensitivity, draws) -> None:  # type: ignore[no-untyped-def]
    counts = np.bincount([choose(scores, epsilon, sensitivity) for _ in range(draws)], minlength=len(scores))
    factor = float(mask.exact(epsilon) / mask.exact(sensitivity) / 2)
    listed = [Fraction(score) for score in (scores.tolist() if isinstance(scores, np.ndarray) else scores)]
    plain = [float(score - max(listed)) for score in listed]
    assert stats.chisquare(counts, CHOICES[choose](plain, factor) * draws).pvalue > ALPHA
    if draws > 10_000:
        # Power: twice the factor (a forgotten 2) is rejected, and so is the other mechanism on more than two.
        assert stats.chisquare(counts, CHOICES[choose](plain, 2 * factor) * draws).pvalue < ALPHA
        other = next(law for other, law in CHOICES.items() if other is not choose)
        assert stats.chisquare(counts, other(plain, factor) * draws).pvalue < ALPHA


def test_private_choices_of_neighbours_differ_by_at_most_epsilon() -> None:
    """Exact: every score vector on a small lattice against every neighbour of it."""
    epsilon = 0.7
    for scores in product(range(3), repeat=3):
        for moves in product((-1, 0, 1), repeat=3):
            neighbour = [score + move for score, move in zip(scores, moves, strict=True)]
            for law in CHOICES.values():
                ratio = law(scores, epsilon / 2) / law(neighbour, epsilon / 2)
                assert np.abs(np.log(ratio)).max() <= epsilon + 1e-9


@pytest.mark.parametrize("choose", CHOICES)
def test_edges_of_selection(choose) -> None:  # type: ignore[no-untyped-def]
    assert choose([7], 1, 1) == 0
    assert isinstance(choose([1, 2], 1, 1), int)
    assert choose([10**6, 0], 10**6, 1) == 0
    assert choose([1e300, 0.0], 1, 1) == 0
    for bad in ([], [[1, 2]], ["a"], [math.nan, 1.0], [math.inf, 0.0], [True, False], [None]):
        with pytest.raises(InputError):
            choose(bad, 1, 1)
    for epsilon in (0, -1, math.nan, math.inf):
        with pytest.raises(BudgetError):
            choose([1, 2], epsilon, 1)
    with pytest.raises(InputError, match="sensitivity"):
        choose([1, 2], 1, 0)
