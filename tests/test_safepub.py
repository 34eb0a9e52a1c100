from __future__ import annotations

import csv
import itertools
import math
import os
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpmicro_native.errors import BudgetError, InputError
from dpmicro_native.hierarchy import Hierarchy
from dpmicro_native.safepub import (
    SCORES,
    SafePub,
    amplified,
    safepub_curve,
    safepub_delta,
    safepub_parameters,
    scores,
    search_and_release,
    sensitivity,
)
from dpmicro_native.testing import seeded
from reference import safepub as reference

ROOT = Path(__file__).resolve().parents[1]
ADULT = Path(os.environ.get("DPMICRO_DATA") or ROOT.parent / "shared" / "data") / "safepub" / "adult"


@pytest.fixture(scope="module")
def adult():
    if not ADULT.exists():
        pytest.skip(f"no data at {ADULT}; set DPMICRO_DATA")
    with (ADULT / "data.csv").open(newline="") as file:
        header, *rows = csv.reader(file, delimiter=";")
    hierarchies = [Hierarchy.from_csv(ADULT / f"hierarchy_{name}.csv") for name in header]
    columns = [
        h.codes(list(c), column=n)
        for h, c, n in zip(hierarchies, zip(*rows, strict=True), header, strict=True)
    ]
    return np.column_stack(columns), hierarchies


# Parameters ------------------------------------------------------------------------------------------


def decimal_beta(epsilon: float) -> tuple[Decimal, Decimal]:
    exact = Decimal(repr(epsilon))
    return 1 - (-exact).exp(), exact


@pytest.mark.parametrize("delta", [1e-2, 1e-3, 1e-4, 1e-5, 3e-6, 1e-6, 1e-7, 1e-10])
@pytest.mark.parametrize(
    "epsilon", [0.05, 0.1, 0.3, 0.5, math.log(2), 0.7, 0.8, 0.9, 1.0, math.log(3), 1.2, 1.3, 1.5, 2.0]
)
def test_k_is_the_exact_minimum(epsilon, delta):
    beta, k = safepub_parameters(epsilon, delta)
    with localcontext() as context:
        context.prec = 50
        exact_beta, exact_epsilon = decimal_beta(epsilon)
        assert abs(Decimal(beta) - exact_beta) < Decimal("1.2e-16")
        assert reference.delta(k, exact_beta, exact_epsilon) <= Decimal(repr(delta))
        assert reference.delta(k - 1, exact_beta, exact_epsilon) > Decimal(repr(delta))


def test_golden_values():
    deltas = [1e-4, 1e-5, 1e-6, 1e-7, 1e-10, 1e-20]
    assert [safepub_parameters(1.0, delta)[1] for delta in deltas] == [47, 61, 74, 91, 131, 277]
    # Large delta: a single record survives.
    assert safepub_parameters(0.5, 0.9)[1] == 1


def test_log_3_is_told_from_the_double_next_to_it():
    # The double is above ln 3, so gamma is above 8/9, and 9 records do not reach 8 > 9 gamma. The
    # decimal below ln 3 turns that round.
    above, below = (
        [safepub_parameters(epsilon, 10**-e)[1] for e in range(2, 20)]
        for epsilon in (math.log(3), Fraction("1.0986122886681096"))
    )
    assert above != below
    assert all(a <= b for a, b in zip(above, below, strict=True))


@pytest.mark.parametrize("k", [1, 2, 5, 17, 60])
@pytest.mark.parametrize("epsilon", [0.75, 1.0, 2.0])
def test_delta_is_exact_and_rounded_up(k, epsilon):
    # With beta = 1/2 the tails are integers over 2^n.
    with localcontext() as context:
        context.prec = 50
        gamma = 1 - (-Decimal(repr(epsilon))).exp() / 2
        first = math.ceil(k / gamma) - 1
        exact = max(
            Fraction(sum(math.comb(n, j) for j in range(math.floor(gamma * n) + 1, n + 1)), 2**n)
            for n in range(first, first + 200)
        )
    found = safepub_delta(k, 0.5, epsilon)
    assert exact <= Fraction(repr(found))
    assert found <= float(exact) * (1 + 2**-51)


def test_delta_and_parameters_are_inverse():
    for epsilon, k in itertools.product((0.2, math.log(2), 1.0, math.log(3), 1.7), (2, 3, 8, 9, 24, 60)):
        for beta in (-math.expm1(-epsilon), 1 - math.exp(-epsilon), safepub_parameters(epsilon, 0.1)[0]):
            delta = safepub_delta(k, beta, epsilon)
            if safepub_delta(k - 1, beta, epsilon) > delta:
                assert safepub_parameters(epsilon, delta)[1] == k


def test_curve_falls_and_matches_the_paper():
    beta, k = safepub_parameters(1.0, 1e-5)
    curve = safepub_curve(k, beta, [1.0, 1.5, 2.0, 3.0])
    assert all(a[1] > b[1] for a, b in itertools.pairwise(curve))
    assert 5e-10 < curve[2][1] < 2e-9  # table 1: 1e-9 with the paper's k, which is one higher


@pytest.mark.parametrize(
    "call",
    [
        lambda: safepub_parameters(0, 1e-5),
        lambda: safepub_parameters(-1.0, 1e-5),
        lambda: safepub_parameters(21, 1e-5),
        lambda: safepub_parameters(1.0, 0),
        lambda: safepub_parameters(1.0, 1),
        lambda: safepub_parameters(float("nan"), 1e-5),
        lambda: safepub_parameters(1.0, float("inf")),
        lambda: safepub_delta(0, 0.5, 1.0),
        lambda: safepub_delta(5, 0.0, 1.0),
        lambda: safepub_delta(5, 1.0, 1.0),
        lambda: safepub_delta(5, 0.64, 1.0),
    ],
)
def test_impossible_parameters_are_refused(call):
    with pytest.raises(InputError):
        call()


# Scores ----------------------------------------------------------------------------------------------


def random_hierarchy(rng, leaves):
    """Nested levels that merge neighbours at random, ending in one root."""
    column = list(range(leaves))
    levels = [[f"leaf{v}" for v in column]]
    while len(set(column)) > 1:
        groups = sorted(set(column))
        keep = max(1, int(rng.integers(1, len(groups))))
        column = [int(groups.index(v) * keep // len(groups)) for v in column]
        levels.append([f"level{len(levels)} value{v}" for v in column])
    if leaves == 1 and rng.random() < 0.5:
        levels.append(["*"])
    return Hierarchy.from_rows(zip(*levels, strict=True))


def random_problem(rng, records):
    attributes = int(rng.integers(2, 4))
    hierarchies = [random_hierarchy(rng, int(rng.integers(1, 6))) for _ in range(attributes)]
    # Skewed, so that some classes are large.
    codes = np.column_stack([np.minimum(rng.geometric(0.6, records) - 1, h.leaves - 1) for h in hierarchies])
    return codes.astype(np.int32), hierarchies


def schemes_of(hierarchies, class_column):
    return reference.lattice([h.levels for h in hierarchies], class_column)


@pytest.mark.parametrize("survival", ["hard", "ramp"])
@pytest.mark.parametrize("score", SCORES)
def test_scores_equal_the_definitions(score, survival):
    rng = np.random.default_rng(SCORES.index(score))
    for trial in range(40):
        codes, hierarchies = random_problem(rng, int(rng.integers(0, 40)))
        k = 1 + trial % 6
        class_column = int(rng.integers(len(hierarchies))) if score == "classification" else None
        schemes = schemes_of(hierarchies, class_column)
        found = scores(
            codes, hierarchies, schemes, score=score, k=k, class_column=class_column, survival=survival
        )
        table = [tuple(h.rows[c][0] for h, c in zip(hierarchies, row, strict=True)) for row in codes]
        rows = [{row[0]: row for row in h.rows} for h in hierarchies]
        hard = survival == "hard"
        credit = reference.hard(k) if hard else reference.ramp(k)
        end = None if hard else math.ceil(1.5 * k)
        # What a cell or a sum may lose on the grid; integer scores lose nothing.
        slack = {"groups": 0, "classification": 0, "discernibility": 1, "entropy": 1}.get(score, codes.size)
        for scheme, value in zip(schemes, found, strict=True):
            exact = reference.score(score, table, rows, scheme, credit, class_column, end)
            assert abs(value - exact) <= Fraction(slack, 1 << 16)


@pytest.mark.parametrize("survival", ["hard", "ramp"])
@pytest.mark.parametrize("score", SCORES)
def test_no_neighbour_moves_a_score_by_more_than_its_sensitivity(score, survival):
    rng = np.random.default_rng(100 + SCORES.index(score))
    largest = Fraction(0)
    for trial in range(60):
        codes, hierarchies = random_problem(rng, int(rng.integers(1, 14)))
        k = 1 + trial % 5
        if trial % 2:  # many equal records, so that classes lie near k
            codes = codes[rng.integers(0, min(3, len(codes)), size=len(codes))]
        class_column = int(rng.integers(len(hierarchies))) if score == "classification" else None
        schemes = schemes_of(hierarchies, class_column)

        def all_scores(table, h=hierarchies, s=schemes, k=k, c=class_column):
            return np.array(scores(table, h, s, score=score, k=k, class_column=c, survival=survival))

        bound = sensitivity(score, k, len(hierarchies), survival=survival)
        here = all_scores(codes)
        for removed in np.unique(codes, axis=0, return_index=True)[1]:
            change = here - all_scores(np.delete(codes, removed, axis=0))
            assert max(abs(change)) <= bound
            largest = max(largest, max(abs(change)) / bound)
            if score in ("groups", "classification"):  # the search counts on it
                assert min(change) >= 0
    # The bounds are no mere formality; those of the paper for phi are loose.
    assert largest >= (Fraction(1, 4) if score in ("discernibility", "entropy") else 1)


@pytest.mark.parametrize("k", [2, 10, 58])
@pytest.mark.parametrize("score", SCORES)
def test_sensitivity_where_a_class_crosses_k(score, k):
    # The worst case of appendix B: k - 1 equal records and one more, beside others or not.
    hierarchies = [Hierarchy.from_rows([(f"v{i}", "*") for i in range(64)])] * 2
    class_column = 1 if score == "classification" else None
    schemes = schemes_of(hierarchies, class_column)
    ratios = {"hard": Fraction(0), "ramp": Fraction(0)}
    for survival, size, others in itertools.product(
        ratios, (k, (3 * k + 3) // 4, (3 * k) // 2), (0, 3 * k, 50 * k)
    ):
        codes = np.array([[0, 0]] * size + [[1, 1]] * others, dtype=np.int32)
        common = {"score": score, "k": k, "class_column": class_column, "survival": survival}
        pairs = zip(
            scores(codes, hierarchies, schemes, **common),
            scores(codes[1:], hierarchies, schemes, **common),
            strict=True,
        )
        bound = sensitivity(score, k, 2, survival=survival)
        ratios[survival] = max(ratios[survival], *(abs(a - b) / bound for a, b in pairs))
    assert max(ratios.values()) <= 1
    assert min(ratios.values()) >= Fraction(1, 4)


def test_unknown_scores_and_schemes_are_refused():
    sex = Hierarchy.from_rows([("f", "*"), ("m", "*")])
    codes = np.zeros((3, 1), dtype=np.int32)
    for scheme, score, k, class_column in (
        ([0], "beauty", 2, None),
        ([2], "groups", 2, None),
        ([0, 0], "groups", 2, None),
        ([0], "groups", 0, None),
        ([0], "groups", 2, 0),
        ([0], "classification", 2, None),
        ([0], "classification", 2, 1),
    ):
        with pytest.raises(InputError):
            scores(codes, [sex], [scheme], score=score, k=k, class_column=class_column)
    for bad in (
        np.full((3, 1), 2, dtype=np.int32),
        np.full((3, 1), -1, dtype=np.int32),
        np.zeros((3, 2), dtype=np.int32),
    ):
        with pytest.raises(InputError):
            scores(bad, [sex], [[0]], score="groups", k=1)


def test_more_combinations_than_a_key_holds():
    # 13 attributes of 100,000 leaves: 10^65 possible combinations.
    big = Hierarchy.mask("digits")
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 100_000, size=(50, 13), dtype=np.int32)
    codes = np.vstack([codes, codes, codes[:25]])
    result = scores(codes, [big] * 13, [[0] * 13, [5] * 13], score="groups", k=3, survival="hard")
    assert result == [25, 0]


# Search and release ----------------------------------------------------------------------------------


def test_the_search_scores_schemes_as_if_each_were_scored_alone():
    rng = np.random.default_rng(5)
    for score, as_published in itertools.product(SCORES, (False, True)):
        codes, hierarchies = random_problem(rng, 200)
        class_column = 0 if score == "classification" else None
        # With epsilon = 18 a record is left out with probability 1.5e-8.
        method = SafePub(
            19, 0.5, epsilon_search=1, steps=1000, score=score,
            class_column="c" if score == "classification" else None, as_published=as_published,
        )  # fmt: skip
        with seeded(1):
            result = search_and_release(codes, hierarchies, method, class_column=class_column)
        schemes = list(result.scored)
        assert sorted(schemes) == schemes_of(hierarchies, class_column)  # 1000 steps exhaust the lattice
        assert set(result.visited) == set(schemes)
        expected = scores(
            codes, hierarchies, schemes, score=score, k=method.k, class_column=class_column,
            survival="hard" if as_published else "ramp",
        )  # fmt: skip
        assert list(result.scored.values()) == expected
        if as_published:
            assert result.scored[result.levels] == max(expected)


def test_every_released_combination_occurs_k_times_and_rows_are_distinct(adult):
    codes, hierarchies = adult
    for score in SCORES:
        class_column = 8 if score == "classification" else None
        method = SafePub(
            1.0, 1e-5, steps=40, score=score, class_column="salary-class" if class_column else None
        )
        with seeded(SCORES.index(score)):
            result = search_and_release(codes, hierarchies, method, class_column=class_column)
        assert len(set(result.rows.tolist())) == len(result.rows) > 0
        released = np.column_stack(
            [
                h.tables[level][codes[result.rows, i]]
                for i, (h, level) in enumerate(zip(hierarchies, result.levels, strict=True))
            ]
        )
        counts = np.unique(released, axis=0, return_counts=True)[1]
        assert counts.min() >= method.k
        assert len(result.rows) < 0.7 * len(codes)
        # Shuffled: the order says nothing about the input's.
        assert abs(np.corrcoef(result.rows, np.arange(len(result.rows)))[0, 1]) < 0.05
        if class_column:
            assert result.levels[class_column] == 0


def test_release_keeps_every_sampled_record_of_a_class_of_k():
    # Without a search worth the name: one attribute, all records alike, levels 0 or 1.
    sex = Hierarchy.from_rows([("f", "*"), ("m", "*")])
    codes = np.zeros((5000, 1), dtype=np.int32)
    sizes = []
    for seed in range(60):
        with seeded(seed):
            result = search_and_release(codes, [sex], SafePub(1, 1e-4, epsilon_search=0.5, steps=1))
        assert result.levels in {(0,), (1,)}
        if result.levels == (0,):
            sizes.append(len(result.rows))
        else:
            assert len(result.rows) == 0  # suppressed by generalisation
    rate = -math.expm1(-0.5)
    assert abs(np.mean(sizes) - 5000 * rate) < 6 * math.sqrt(5000 * rate * (1 - rate) / len(sizes))


def test_threads_do_not_change_a_result(adult):
    codes, hierarchies = adult
    method = SafePub(1.0, 1e-5, steps=60, score="entropy")
    results = []
    for threads in (1, 2, 3):
        with seeded(9):
            results.append(search_and_release(codes, hierarchies, method, threads=threads))
    assert results[0].levels == results[1].levels == results[2].levels
    assert results[0].scored == results[1].scored == results[2].scored
    assert np.array_equal(results[0].rows, results[1].rows)
    assert np.array_equal(results[0].rows, results[2].rows)


@pytest.mark.parametrize("records", [0, 1, 2])
def test_hardly_any_records(records):
    sex = Hierarchy.from_rows([("f", "*"), ("m", "*")])
    for score in SCORES:
        class_column = 0 if score == "classification" else None
        method = SafePub(1, 1e-5, score=score, class_column="sex" if score == "classification" else None)
        result = search_and_release(
            np.zeros((records, 2), dtype=np.int32), [sex, sex], method, class_column=class_column
        )
        assert len(result.rows) == 0


def test_a_callback_stops_the_search(adult):
    codes, hierarchies = adult

    def stop(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_and_release(
            np.tile(codes, (10, 1)), hierarchies, SafePub(1.0, 1e-5, steps=100_000), progress=stop
        )


# Privacy ---------------------------------------------------------------------------------------------


def test_the_search_spends_its_share_and_no_more():
    for epsilon, search in itertools.product((0.5, 1.0, 3.0), ("1e-6", "1/10", "1/4")):
        method = SafePub(epsilon, 1e-5, epsilon_search=search, steps=7, final_share="1/3")
        step, final = method.spending
        total = 7 * step + final
        assert final == total / 3
        with localcontext() as context:
            context.prec = 60
            beta = (
                1 - (-Decimal(method.budget["sample"].numerator) / method.budget["sample"].denominator).exp()
            )
            on_sample = Decimal(total.numerator) / total.denominator
            on_data = (1 + beta * (on_sample.exp() - 1)).ln()
            share = Decimal(method.budget["search"].numerator) / method.budget["search"].denominator
            assert 0 <= share - on_data < share * Decimal("1e-38")
        assert amplified(method.budget["search"], method.budget["sample"]) == total
    published = SafePub(1, 1e-5, steps=300, as_published=True)
    assert published.spending == (Fraction(1, 3000), 0)
    assert published.caveats
    assert not SafePub(1, 1e-5).caveats


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 0}, {"epsilon": 25}, {"epsilon_search": 1}, {"epsilon_search": 0}, {"epsilon_search": -1},
        {"delta": 0}, {"delta": 1}, {"steps": 0}, {"score": "beauty"}, {"score": "classification"},
        {"class_column": "sex"}, {"final_share": 0}, {"final_share": 1},
        {"epsilon": Fraction(10**20, 10**20 + 1)},
    ],
)  # fmt: skip
def test_impossible_methods_are_refused(parameters):
    with pytest.raises(InputError) as error:
        SafePub(**{"epsilon": 1, "delta": 1e-5, **parameters}).check()
    if "epsilon" in parameters or "delta" in parameters:
        assert isinstance(error.value, BudgetError)


def test_a_class_column_is_named_twice_or_not_at_all():
    sex = Hierarchy.from_rows([("f", "*"), ("m", "*")])
    with pytest.raises(InputError, match="class column"):
        search_and_release(np.zeros((3, 1), dtype=np.int32), [sex], SafePub(1, 1e-5), class_column=0)


def outcomes(codes, hierarchies, method, runs, seed):
    """What an attacker sees: the levels, and how often each generalised record occurs."""
    seen = Counter()
    for run in range(runs):
        with seeded(seed * 10**6 + run):
            result = search_and_release(codes, hierarchies, method, threads=1)
        records = Counter(
            tuple(
                int(h.tables[level][c])
                for h, level, c in zip(hierarchies, result.levels, codes[row], strict=True)
            )
            for row in result.rows
        )
        seen[result.levels, tuple(sorted(records.items()))] += 1
    return seen


def excess(first, second, epsilon):
    """Lower confidence bound (6 standard errors) of the largest P1(S) - e^epsilon P2(S).

    The set S is chosen on one half of the runs and judged on the other, so that choosing it does not
    count as evidence.
    """
    (choose1, judge1), (choose2, judge2) = first, second
    runs = sum(judge1.values())
    chosen = {o for o in choose1 if choose1[o] > math.exp(epsilon) * choose2[o]}
    p1, p2 = (sum(judge[o] for o in chosen) / runs for judge in (judge1, judge2))
    error = math.sqrt(p1 * (1 - p1) / runs) + math.exp(epsilon) * math.sqrt(p2 * (1 - p2) / runs)
    return p1 - math.exp(epsilon) * p2 - 6 * error


def test_the_whole_mechanism_on_neighbours():
    hierarchies = [Hierarchy.from_rows([("a", "ab", "*"), ("b", "ab", "*"), ("c", "c", "*")])]
    more = np.array([[0]] * 4 + [[1]] * 2 + [[2]] * 3, dtype=np.int32)
    method = SafePub(1.2, 0.2, epsilon_search=0.5, steps=2, score="groups")
    assert method.k == 3
    runs = 4000
    halves = [
        [outcomes(table, hierarchies, method, runs, seed + 2 * i) for seed in (1, 2)]
        for i, table in enumerate((more, more[1:]))
    ]
    assert excess(halves[0], halves[1], 1.2) <= 0.2
    assert excess(halves[1], halves[0], 1.2) <= 0.2
    # The test has power: it refutes a claim of a tenth of that.
    assert max(excess(halves[0], halves[1], 0.12), excess(halves[1], halves[0], 0.12)) > 0.02


def test_only_the_published_choice_tells_tables_apart_without_budget():
    # All records alike ask for the leaves; all different ones for a higher level.
    hierarchy = Hierarchy.mask("digits", length=2)
    alike = np.zeros((400, 1), dtype=np.int32)
    different = np.repeat(np.arange(100, dtype=np.int32), 4)[:, None]
    runs = 300

    def levels(table, as_published):
        method = SafePub(1, 1e-3, epsilon_search=1e-6, steps=5, as_published=as_published)
        seen = Counter()
        for run in range(runs):
            with seeded(run + (1 if table is alike else 2) * 10**5):
                seen[search_and_release(table, [hierarchy], method).levels] += 1
        return seen

    published = levels(alike, True), levels(different, True)
    assert not set(published[0]) & set(published[1])
    corrected = levels(alike, False), levels(different, False)
    distance = (
        sum(abs(corrected[0][o] - corrected[1][o]) for o in set(corrected[0]) | set(corrected[1])) / 2 / runs
    )
    assert distance < 0.2  # 3 outcomes, 300 runs: 0.2 is more than 5 standard errors from 0
