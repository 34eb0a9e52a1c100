"""Budgets add up; mechanisms pay for rounding, stay on their grid, and have the noise they promise."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpmicro_native import _core, mask
from dpmicro_native.errors import BudgetError, InputError
from dpmicro_native.mask import Budget, exact
from reference import noise as reference

ALPHA = 1e-6
positive = st.one_of(
    st.fractions(min_value=Fraction(1, 10**6), max_value=10**6),
    st.floats(min_value=1e-6, max_value=1e6),
    st.integers(1, 10**6),
)


# Budget


def test_exact_reads_numbers_as_they_were_written() -> None:
    assert exact(0.1) == exact("0.1") == exact(Decimal("0.1")) == exact(np.float64(0.1)) == Fraction(1, 10)
    assert exact(1e-7) == Fraction(1, 10**7)
    assert exact("2/6") == Fraction(1, 3)
    assert exact(np.int32(7)) == 7
    for bad in (math.nan, math.inf, "x", "1/0", None, True, np.bool_(True), Decimal("NaN"), [1]):
        with pytest.raises(InputError):
            exact(bad)  # type: ignore[arg-type]


def test_shares_must_add_up_to_the_last_digit() -> None:
    assert Budget(0.3, {"a": 0.1, "b": 0.2})["b"] == Fraction(1, 5)  # floats would give 0.30000000000000004
    Budget(1, {"a": "1/3", "b": "2/3"})
    for shares in ({"a": 0.1, "b": 0.1999999999999999}, {"a": Fraction(1, 3), "b": 0.2}, {"a": 1}):
        with pytest.raises(BudgetError, match="add up"):
            Budget(0.3, shares)
    with pytest.raises(BudgetError, match="at least one"):
        Budget(1, {})


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "much", None, True])
def test_what_is_not_positive_and_finite_is_refused(bad: object) -> None:
    with pytest.raises(BudgetError, match="epsilon"):
        Budget(bad, {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="'a'"):
        Budget(1, {"a": bad, "b": 1})  # type: ignore[dict-item]
    with pytest.raises(BudgetError, match="epsilon"):
        Budget.even(bad, ["a"])  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="'a'"):
        Budget.by_weights(1, {"a": bad, "b": 1})  # type: ignore[dict-item]


@given(epsilon=positive, weights=st.dictionaries(st.text(max_size=5), positive, min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_every_split_adds_up_exactly(epsilon: mask.Number, weights: dict[str, mask.Number]) -> None:
    for budget in (Budget.by_weights(epsilon, weights), Budget.even(epsilon, weights)):
        assert sum(budget.shares.values()) == budget.epsilon == exact(epsilon)
        assert list(budget.shares) == list(weights)
        name = next(iter(weights))
        nested = budget.split(name, {"mean": 0.75, "covariance": 0.15, "coskewness": 0.10})
        assert sum(nested.shares.values()) == budget.epsilon
        assert nested[f"{name}/mean"] == budget[name] * Fraction(3, 4)
    first, last = next(iter(weights)), next(reversed(weights))
    ratio = Budget.by_weights(epsilon, weights)
    assert ratio[first] * exact(weights[last]) == ratio[last] * exact(weights[first])


def test_a_budget_is_frozen_and_travels() -> None:
    budget = Budget.even(1, ["age", "income", "height"])
    with pytest.raises(FrozenInstanceError):
        budget.epsilon = Fraction(2)  # type: ignore[misc]
    with pytest.raises(TypeError):
        budget.shares["age"] = Fraction(1)  # type: ignore[index]
    assert pickle.loads(pickle.dumps(budget)) == copy.deepcopy(budget) == budget
    assert hash(budget) == hash(Budget(1, {"height": "1/3", "income": "1/3", "age": "1/3"}))
    assert budget != Budget.even(2, ["age", "income", "height"])
    text = json.dumps(budget.to_json())
    assert json.loads(text) == {"epsilon": "1", "shares": dict.fromkeys(["age", "income", "height"], "1/3")}
    assert Budget(**json.loads(text)) == budget
    assert repr(budget) == "Budget('1', {'age': '1/3', 'income': '1/3', 'height': '1/3'})"
    assert eval(repr(budget)) == budget


def test_names_are_unique_and_known() -> None:
    with pytest.raises(BudgetError, match="same name"):
        Budget.even(1, ["a", "a"])
    with pytest.raises(BudgetError, match="same name"):
        Budget.even(1, ["a", "a/b"]).split("a", {"b": 1})
    with pytest.raises(BudgetError, match="no share 'c'; it has a, b"):
        Budget.even(1, ["a", "b"])["c"]


# Sums in integers


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("n", "d", "clusters", "bits"), [(1, 1, 1, 1), (500, 3, 7, 30), (9000, 2, 900, 40)])
def test_cluster_sums_match_the_reference(n: int, d: int, clusters: int, bits: int, order: str) -> None:
    random = np.random.default_rng(n)
    U = random.random((n, d))
    U[random.random((n, d)) < 0.1] = 0.0
    U[random.random((n, d)) < 0.1] = 1.0
    U[random.random((n, d)) < 0.1] = 1.5 / 2**bits  # a half is rounded up
    labels = random.integers(0, clusters, n).astype(np.int32)
    labels[-1] = clusters - 1
    sizes, sums = mask.cluster_sums(np.asarray(U, order=order), labels, bits=bits)
    expected = reference.cluster_sums(U, labels, bits)
    assert (sizes.tolist(), sums.tolist()) == expected
    codes = _core.quantise(np.asarray(U, order=order), bits)
    assert codes.min() >= 0
    assert codes.max() <= 2**bits
    assert codes.sum(axis=0).tolist() == np.array(expected[1], dtype=object).sum(axis=0).tolist()


def test_cluster_sums_refuse_what_could_overflow_or_leave_the_cube() -> None:
    U, labels = np.full((4, 1), 0.5), np.zeros(4, np.int32)
    for bits in (0, 41, -1):
        with pytest.raises(InputError, match="bits"):
            mask.cluster_sums(U, labels, bits=bits)
    with pytest.raises(InputError, match="too many records"):
        mask.cluster_sums(np.zeros((2**22, 1)), np.zeros(2**22, np.int32), bits=40)
    for outside in (-1e-9, 1 + 1e-9):
        U[2] = outside
        with pytest.raises(InputError, match="unit cube"):
            mask.cluster_sums(U, labels)
        with pytest.raises(InputError, match="unit cube"):
            _core.quantise(U, 30)
    for bad in ([0, 0, -1, 0], [0, 0, 9, 0], [0, 0, 0]):
        with pytest.raises(InputError):
            mask.cluster_sums(np.full((4, 1), 0.5), np.array(bad, np.int32))


def test_noisy_sums_have_the_scale_of_their_column() -> None:
    sums = np.tile(np.array([[100, -(10**12), 5]]), (300_000, 1))
    noisy = mask.noisy_sums(sums, sensitivity=[1, 2**30, 3], epsilon=[1, Fraction(1, 3), 0.1])
    assert noisy.dtype == np.int64
    for j, scale in enumerate((1, 3 * 2**30, 30)):
        noise = np.abs(noisy[:, j] - sums[0, j])
        q = math.exp(-1 / scale)  # |noise| has mean 2q/(1 - q^2) and second moment 2q/(1 - q)^2
        mean, square = 2 * q / (1 - q * q), 2 * q / (1 - q) ** 2
        z = (noise.mean() - mean) / math.sqrt((square - mean**2) / len(noise))
        assert abs(z) < 4.9
        assert abs(noise.mean() - 1.05 * mean) / math.sqrt((square - mean**2) / len(noise)) > 4.9
    assert abs(np.corrcoef((noisy - sums).T) - np.eye(3)).max() * math.sqrt(300_000) < 5.5


def test_probabilities_of_neighbours_keep_to_epsilon() -> None:
    """Two sums that differ by the sensitivity: no outcome is more than e^epsilon times likelier for one of
    them, beyond sampling error; and the test would notice if epsilon were five per cent larger."""
    n, sensitivity = 10**6, 3

    def largest_excess(epsilon: float) -> float:
        a = mask.noisy_sums(np.zeros((n, 1), np.int64), sensitivity, epsilon).ravel()
        b = mask.noisy_sums(np.full((n, 1), sensitivity), sensitivity, epsilon).ravel()
        worst = -math.inf
        for outcome in range(-9, 13):
            p, q = int((a == outcome).sum()), int((b == outcome).sum())
            # Standard error of log p - log q.
            worst = max(worst, (abs(math.log(p / q)) - 1) / math.sqrt(1 / p + 1 / q))
        # All outcomes below 0 together, where the ratio is e^epsilon as well, for power.
        p, q = int((a <= 0).sum()), int((b <= 0).sum())
        return max(worst, (math.log(p / q) - 1) / math.sqrt(1 / p + 1 / q))

    bound = stats.norm.isf(ALPHA / 46)  # 23 outcomes, two sides
    assert largest_excess(1) < bound
    assert largest_excess(1.05) > bound


def test_scales_are_exact_or_rounded_up() -> None:
    assert mask._representable(Fraction(10, 3)) == Fraction(10, 3)
    for scale in (
        Fraction(2**80 + 1, 2**70 + 3),
        Fraction(3**50, 3**49 + 1),
        Fraction(1, 3**60),
        Fraction(3**60, 2**90 + 1),
    ):
        rounded = mask._representable(scale)
        assert scale <= rounded <= scale * (1 + Fraction(1, 2**24))
        assert rounded.numerator < 2**62
        assert rounded.denominator < 2**126
    # A budget split by awkward widths still works.
    budget = Budget.by_weights("0.7", {"a": 12345.678901234567, "b": 1.0000000000000002, "c": 3.1})
    noisy = mask.noisy_sums(np.zeros((10, 3), np.int64), 2**30, list(budget.shares.values()))
    assert noisy.shape == (10, 3)


@pytest.mark.parametrize(
    ("sums", "sensitivity", "epsilon"),
    [
        ([[1.5]], 1, 1),
        ([1, 2], 1, 1),
        ([[1, 2]], [1, 2, 3], 1),
        ([[1, 2]], 1, [1]),
        ([[1]], 0, 1),
        ([[1]], 1, 0),
        ([[1]], 1, math.nan),
        ([[1]], 2**60, 1),
    ],
)
def test_noisy_sums_refuse_bad_input(sums: object, sensitivity: object, epsilon: object) -> None:
    with pytest.raises(InputError):
        mask.noisy_sums(sums, sensitivity, epsilon)  # type: ignore[arg-type]


# Values on a grid


@given(
    pairs=st.lists(
        st.tuples(st.floats(-1, 1), st.floats(-1, 1)).filter(lambda pair: pair[0] != pair[1]),
        min_size=1,
        max_size=5,
    ),
    epsilon=st.sampled_from([Fraction(1, 1000), Fraction(1), Fraction(5), Fraction(10**9)]),
)
@settings(max_examples=300, deadline=None)
def test_rounding_to_the_grid_is_paid_for(pairs: list[tuple[float, float]], epsilon: Fraction) -> None:
    """The sensitivity in steps covers the distance of the rounded lists, the scale covers it over epsilon."""
    sensitivity = sum((abs(Fraction(a) - Fraction(b)) for a, b in pairs), Fraction(0))
    exponent, steps, scale = mask._grid(sensitivity, epsilon, len(pairs), Fraction(1))
    codes = [[int(np.rint(np.ldexp(x, -exponent))) for x in pair] for pair in pairs]
    assert sum(abs(a - b) for a, b in codes) <= steps
    assert scale * epsilon >= steps
    assert max(abs(code) for pair in codes for code in pair) <= 2**60
    grid = Fraction(2) ** exponent
    if exponent > -60:  # else magnitude decides
        assert grid / 2 < sensitivity / epsilon / 2**40 <= grid
        # What rounding costs is far below what anybody would notice.
        extra = 1 + (len(pairs) * grid + grid * epsilon) / sensitivity
        assert scale * grid <= sensitivity / epsilon * extra


def test_rounding_that_is_not_paid_for_would_break_the_claim() -> None:
    """Two values that differ by the sensitivity are further apart once they are rounded."""
    sensitivity = Fraction(1) + Fraction(3, 10) / 2**40
    exponent, steps, _ = mask._grid(sensitivity, Fraction(1), 1, Fraction(1))
    grid = Fraction(2) ** exponent
    a = float(grid * Fraction(4, 10))
    b = float(Fraction(a) + sensitivity)
    distance = np.rint(np.ldexp(b, -exponent)) - np.rint(np.ldexp(a, -exponent))
    assert distance * grid > sensitivity
    assert distance == steps


def test_noisy_values_lie_on_the_grid_and_have_their_scale() -> None:
    n = 200_000
    values = np.tile([0.3, -0.7], (n, 1))
    noisy = mask.noisy_values(values, [1, "1/8"], [0.5, 1], changed=1, magnitude=1)
    for j, (scale, exponent) in enumerate(((2.0, 1 - 40), (0.125, -3 - 40))):
        steps = np.ldexp(noisy[:, j], -exponent)
        assert (steps == np.rint(steps)).all()
        assert (np.ldexp(noisy[:, j], -exponent - 3) % 1 != 0).mean() > 0.5  # and not on a coarser one
        noise = noisy[:, j] - values[0, j]
        for factor, true in ((1.0, True), (1.05, False), (0.95, False)):
            law = stats.laplace.cdf(np.sort(noise), scale=scale * factor)
            distance = np.abs(law - np.arange(n) / n).max()
            assert (stats.kstwobign.sf(distance * math.sqrt(n)) > ALPHA) == true


def test_the_sensitivity_falls_with_the_size_of_the_cluster() -> None:
    n = 200_000
    sizes = np.tile([1, 10, 500], n // 3 + 1)[:n]
    noisy = mask.noisy_values(np.zeros((n, 2)), [1, 3], 1, changed=1, magnitude=1, sizes=sizes)
    for size in (1, 10, 500):
        rows = noisy[sizes == size]
        mean = np.abs(rows).mean(axis=0) * size / np.array([1, 3])  # |Laplace| is exponential with mean 1
        assert (np.abs(mean - 1) * math.sqrt(len(rows)) < 4.9).all()
        exponent = math.ceil(math.log2(1 / size)) - 40
        assert (np.ldexp(rows[:, 0], -exponent) % 1 == 0).all()


def test_values_beyond_the_magnitude_are_clamped_and_large_ones_fit() -> None:
    noisy = mask.noisy_values([5.0, -5.0, 0.5], 1, 10**9, changed=1, magnitude=2)
    np.testing.assert_allclose(noisy, [2, -2, 0.5], atol=1e-6)
    # A magnitude of 10^15 times the scale: a coarser grid, still int64, and noise for the coarser grid.
    noisy = mask.noisy_values(np.full(10_000, 1e12), "0.001", 1, changed=1, magnitude=10**12)
    assert np.abs(noisy - 1e12).max() < 1
    assert len(np.unique(noisy)) > 10


def test_noisy_values_keep_the_shape_and_refuse_bad_input() -> None:
    ok = {"changed": 1, "magnitude": 1}
    assert mask.noisy_values([0.5], 1, 1, **ok).shape == (1,)
    assert mask.noisy_values(np.zeros((3, 2)), 1, 1, **ok).shape == (3, 2)
    values = np.zeros((2, 3))
    mask.noisy_values(values, 1, 1, **ok)
    assert not values.any()  # the input is left alone
    for arguments in (
        ([[math.nan]], 1, 1, ok),
        ([[math.inf]], 1, 1, ok),
        ([], 1, 1, ok),
        (["a"], 1, 1, ok),
        ([0.5], 0, 1, ok),
        ([0.5], 1, -1, ok),
        ([0.5], [1, 2], 1, ok),
        ([0.5], 1, 1, ok | {"changed": 0}),
        ([0.5], 1, 1, ok | {"changed": [1, 1]}),
        ([0.5], 1, 1, ok | {"magnitude": 0}),
        ([0.5], 1, 1, ok | {"sizes": [0]}),
        ([0.5], 1, 1, ok | {"sizes": [1, 1]}),
        ([0.5], 1, 1, ok | {"sizes": [1.5]}),
        ([0.5], 1, 1e-9, ok | {"changed": 2**40}),
    ):
        *positional, keywords = arguments
        with pytest.raises(InputError):
            mask.noisy_values(*positional, **keywords)
