"""The audit finds what is broken, leaves what is right alone, and shows what a partition hides."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpmicro_native import (
    Categorical,
    Hierarchy,
    InputError,
    Numeric,
    Schema,
    audit_mechanisms,
    method,
    release,
    safepub,
    testing,
)
from dpmicro_native.audit import Audit, audit
from dpmicro_native.audit_statistics import (
    choose_event,
    event_bound,
    incomplete_beta,
    lower_probability,
    upper_probability,
)

PEOPLE = np.random.default_rng(3).random((40, 2))
SCHEMA = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)})
ONE = Schema({"a": Numeric(0, 1)})
RUNS = 60_000
METHODS: dict[str, dict[str, Any]] = {
    "LAPLACE": {},
    "IR_DP": {"k": 5},
    "INS_DP": {"k": 20},
    "MDAV_DP": {"k": 5},
    "MDAV_IR_DP_1": {"k": 5},
    "MDAV_IR_DP_2": {"k": 5},
    "OPT_DP_1": {},
    "OPT_DP_2": {},
}


def crossroads(m: int = 5) -> np.ndarray:
    """Four heaps at the ends of a cross, and one record in a corner that draws two of them to itself."""
    ends = np.repeat([[0, 0.5], [1, 0.5], [0.5, 0], [0.5, 1]], m, axis=0)
    return np.vstack([ends, [[0.0, 0.0]]])


def run(name: str, table: Any, schema: Schema, *, runs: int = RUNS, **how: Any) -> Audit:
    with testing.seeded(1):  # a bound fails with probability 5 %, by design: no new dice in every run
        return audit(table, schema, method(name, **({"epsilon": 1} | how)), runs=runs)


def halve(monkeypatch: pytest.MonkeyPatch) -> None:
    right = release.noisy_sums

    def half_the_noise(sums: Any, sensitivity: Any, epsilon: Any, **how: Any) -> Any:
        return right(sums, sensitivity, [2 * share for share in epsilon], **how)

    monkeypatch.setattr(release, "noisy_sums", half_the_noise)


@pytest.mark.parametrize("name", METHODS)
def test_right_mechanisms_are_not_flagged(name: str) -> None:
    result = run(name, PEOPLE, SCHEMA, **METHODS[name])
    assert not result.contradicted
    assert result.given_partition.epsilon <= 1
    if name != "INS_DP":  # its noise is made for more than a fixed partition
        assert result.given_partition.epsilon > 0.9  # the bound is sharp, so not flagging means something


@pytest.mark.parametrize("name", METHODS)
def test_half_the_noise_is_flagged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    halve(monkeypatch)
    table = PEOPLE
    if (
        name == "INS_DP"
    ):  # a record that goes from (0, 0) to (0, 1) pushes one at (0.9, 0) to the other cluster
        table = np.repeat([[0.0, 0.0], [0.9, 0.0]], 20, axis=0)
        table[-1, 1] = 0.1  # no column may be constant
    result = run(name, table, SCHEMA, **METHODS[name])
    assert result.contradicted, result
    assert "CONTRADICTED" in result.verdict


@pytest.mark.parametrize("name", ["LAPLACE", "IR_DP"])
def test_unconditional_claims_are_judged_with_the_partition_recomputed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two heaps: moving one record from corner to corner moves the sums by nearly the whole width.
    table = np.repeat([[0.0], [1.0]], 10, axis=0)
    result = run(name, table, ONE, **METHODS[name])
    assert result.scope == "unconditional"
    assert not result.contradicted
    assert 0.9 < result.recomputed.epsilon <= 1
    halve(monkeypatch)
    assert run(name, table, ONE, **METHODS[name]).contradicted


def test_individuals_with_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"a": Numeric(0, 1)}, individual="who", max_records=3)
    table = np.column_stack([PEOPLE[:39, 0], np.arange(39) % 13])
    result = run("IR_DP", table, schema, k=5)
    assert not result.contradicted
    assert result.given_partition.epsilon > 0.9
    assert len(result.given_partition.rows) == 3
    halve(monkeypatch)
    assert run("IR_DP", table, schema, k=5).contradicted


def test_the_guarantee_of_mdav_dp_is_conditional_on_the_partition() -> None:
    result = run("MDAV_DP", crossroads(), SCHEMA, k=10)
    assert result.scope == "given-partition"
    assert result.given_partition.epsilon <= 1
    assert result.recomputed.epsilon > 4  # the claim is 1: one record moves twenty others
    assert not result.contradicted
    assert "rests on the partition" in result.verdict
    assert json.loads(result.to_json())["contradicted"] is False


def test_sizes_that_depend_on_the_data_tell_tables_apart() -> None:
    result = run("OPT_DP_1", PEOPLE, SCHEMA)
    assert result.recomputed.probabilities in ((1.0, 0.0), (0.0, 1.0))
    assert not result.contradicted


# Moments


COEFFICIENT = [f"CM-{number}" for number in (*range(2, 14), *range(21, 27))]
# How much of the right noise is little enough to be flagged: the bounds on eigenvalues and vectors are loose, and
# the joint sensitivity of CM-14 and CM-17 adds them all up.
EIGEN = {"CM-14": 6, "CM-15": 3, "CM-16": 2, "CM-17": 12, "CM-18": 3, "CM-19": 2}


def divide_noise(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    right = release.noisy_answers
    monkeypatch.setattr(
        release, "noisy_answers", lambda query, epsilon, **how: right(query, by * epsilon, **how)
    )


@pytest.mark.parametrize("name", COEFFICIENT)
def test_moments_with_the_right_noise_are_not_flagged(name: str) -> None:
    result = run(name, PEOPLE, SCHEMA, k=5, runs=20_000)
    assert not result.contradicted
    # Sharp enough that half the noise would be flagged; up to 7 numbers share what there is to see.
    assert 0.5 < result.given_partition.epsilon <= 1


# One of each order, terms, algorithm and partition.
@pytest.mark.parametrize("name", [f"CM-{number}" for number in (2, 3, 4, 7, 8, 9, 11, 12, 21, 23, 24, 26)])
def test_moments_with_half_the_noise_are_flagged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    divide_noise(monkeypatch, 2)
    assert run(name, PEOPLE, SCHEMA, k=5, runs=20_000).contradicted


@pytest.mark.parametrize("k", [1, 2, 3])
def test_moments_of_small_clusters(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run("CM-9", PEOPLE[:9], SCHEMA, k=k, runs=20_000).contradicted
    divide_noise(monkeypatch, 2)
    assert run("CM-9", PEOPLE[:9], SCHEMA, k=k, runs=20_000).contradicted


def test_a_sensitivity_that_is_too_small_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpmicro_native import aggregate

    monkeypatch.setattr(aggregate, "covariance_sensitivity", lambda k: aggregate.Fraction(1, 4 * k))
    assert run("CM-4", PEOPLE, SCHEMA, k=5, runs=20_000).contradicted


def test_moments_of_individuals_with_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}, individual="who", max_records=3)
    table = np.column_stack([PEOPLE[:39], np.arange(39) % 13])
    result = run("CM-3", table, schema, k=5, runs=20_000)
    assert not result.contradicted
    assert len(result.given_partition.rows) == 3
    divide_noise(monkeypatch, 2)  # three clusters share what there is to see, so it takes more runs
    assert run("CM-3", table, schema, k=5, runs=100_000).contradicted


def test_the_guarantee_of_moments_is_conditional_on_the_partition() -> None:
    result = run("CM-6", crossroads(20), SCHEMA, k=40, runs=20_000)
    assert result.given_partition.epsilon <= 1 < result.recomputed.epsilon
    assert not result.contradicted
    assert "rests on the partition:" in result.verdict


def turning(n: int = 400) -> np.ndarray:
    """One cluster whose two eigenvalues come close when its last record moves."""
    return np.vstack([np.c_[np.linspace(0, 0.35, n - 1), np.arange(n - 1) % 2 * 1e-3], [[1.0, 0.0]]])


@pytest.mark.parametrize("name", EIGEN)
def test_individual_privacy_holds_under_the_noise_of_this_table(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(name, turning(), SCHEMA, k=400, runs=10_000)
    assert result.guarantee == "idp"
    assert not result.contradicted
    assert result.given_partition.held == "given the partition and the scales"
    divide_noise(monkeypatch, EIGEN[name])
    assert run(name, turning(), SCHEMA, k=400, runs=10_000).contradicted


@pytest.mark.parametrize("epsilon", [1, 0.01])
def test_individual_privacy_says_nothing_of_tables_with_noise_of_their_own(epsilon: float) -> None:
    # There is one cluster, so no partition can change: the scale of the noise alone tells the tables apart.
    result = run("CM-15", turning(), SCHEMA, k=400, runs=10_000, epsilon=epsilon)
    assert not result.contradicted
    assert result.given_partition.epsilon <= epsilon
    assert result.recomputed.epsilon > 4
    assert "rests on the partition and the scale of the noise" in result.verdict


# SafePub


SEX = Hierarchy.from_rows([("f", "*"), ("m", "*")])
AGE = Hierarchy.from_rows([(str(age), "young" if age < 3 else "old", "*") for age in range(6)])
TRUTHFUL = Schema({"sex": Categorical(SEX), "age": Categorical(AGE)})
# A delta that is far too large, so that what it excuses is seen often.
SAFEPUB: dict[str, Any] = {"epsilon": 2, "delta": 0.1, "epsilon_search": 0.5, "steps": 5, "runs": 60_000}


def few_of_each() -> Any:
    import pandas as pd

    sizes = dict(
        zip(
            [(s, str(a)) for s in "fm" for a in range(6)],
            [2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30],
            strict=True,
        )
    )
    return pd.DataFrame([who for who, size in sizes.items() for _ in range(size)], columns=["sex", "age"])


@pytest.fixture
def short_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_mechanisms, "_PILOT", 4000)


def test_safepub_is_not_flagged(short_pilot: None) -> None:
    result = run("SAFEPUB", few_of_each(), TRUTHFUL, **SAFEPUB)
    assert (result.scope, result.epsilon, result.delta) == ("unconditional", 2, 0.1)
    assert (result.given_partition.claim, result.recomputed.claim) == (1.5, 2.0)
    assert not result.contradicted
    assert 0.4 < result.given_partition.epsilon <= 1.5  # it is told apart, within the claim
    assert (result.given_partition.runs, result.recomputed.runs) == (60_000, 3000)
    assert "delta = 0.1" in result.verdict


@pytest.mark.parametrize("broken", ["k", "beta"])
def test_broken_safepub_is_flagged(broken: str, short_pilot: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(right: Any) -> Any:
        def run_broken(*arguments: Any, k: int, epsilon_anon: tuple[int, int], **how: Any) -> Any:
            if broken == "k":
                k //= 2
            else:
                epsilon_anon = (2 * epsilon_anon[0], epsilon_anon[1])
            return right(*arguments, k=k, epsilon_anon=epsilon_anon, **how)

        return run_broken

    for name in ("safepub", "safepub_release"):
        monkeypatch.setattr(safepub._core, name, breaking(getattr(safepub._core, name)))
    result = run("SAFEPUB", few_of_each(), TRUTHFUL, **SAFEPUB)
    assert result.given_partition.contradicts
    assert result.recomputed.contradicts


def test_safepub_with_a_class_column(short_pilot: None) -> None:
    how = SAFEPUB | {"runs": 5000, "score": "classification", "class_column": "sex"}
    assert not run("SAFEPUB", few_of_each(), TRUTHFUL, **how).contradicted


def test_safepub_on_one_record(short_pilot: None) -> None:
    assert not run("SAFEPUB", few_of_each()[:1], TRUTHFUL, **SAFEPUB | {"runs": 1000}).contradicted


def test_runs_side_by_side_are_runs(short_pilot: None) -> None:
    """Many runs in one call release as many records of a class as the binomial distribution says."""
    how = safepub.SafePub(2, 0.1, 0.5)
    codes = np.zeros((15, 2), dtype=np.int32)
    fixed = audit_mechanisms.FixedScheme(codes, (SEX, AGE), how, None)
    with testing.seeded(1):
        counts = fixed._pair((0, 1), 0).first(20_000, lambda share: None)
    expected = stats.binom.pmf(np.arange(16), 15, how.beta)
    expected = np.r_[expected[: how.k].sum(), expected[how.k :]]
    seen = np.r_[(counts == 0).sum(), np.bincount(counts.astype(int), minlength=16)[how.k :]]
    assert stats.chisquare(seen, expected * 20_000).pvalue > 1e-6
    assert stats.chisquare(seen, np.roll(expected, 1) * 20_000).pvalue < 1e-6


def test_safepub_as_published_claims_nothing() -> None:
    with pytest.raises(InputError, match="no claim of differential privacy"):
        run("SAFEPUB", few_of_each(), TRUTHFUL, **SAFEPUB | {"as_published": True})


# The statistics


def test_false_alarms_are_rarer_than_promised() -> None:
    alarms = sum(audit_of_two_laplace_lists(seed, scale=1.0, confidence=0.8) > 1 for seed in range(100))
    assert alarms <= stats.binom.isf(1e-6, 100, 0.2)
    assert all(audit_of_two_laplace_lists(seed, scale=0.5, confidence=0.8) > 1 for seed in range(10))


def audit_of_two_laplace_lists(seed: int, scale: float, confidence: float) -> float:
    rng = np.random.default_rng(seed)
    first, second = rng.laplace(0, scale, 4000), rng.laplace(1, scale, 4000)
    a, b = (np.abs(x - 1) - np.abs(x) for x in (first, second))
    event = choose_event(a[:2000], b[:2000], confidence)
    return event_bound(event, a[2000:], b[2000:], confidence)[0]


def test_delta_excuses_what_it_should() -> None:
    rng = np.random.default_rng(1)
    second = rng.random(20_000)
    first = np.where(
        rng.random(20_000) < 0.1, 2.0, rng.random(20_000)
    )  # 2 never comes up on the second table
    event = choose_event(first[:10_000], second[:10_000], 0.95, 0.0)
    assert event_bound(event, first[10_000:], second[10_000:], 0.95)[0] > 5
    event = choose_event(first[:10_000], second[:10_000], 0.95, 0.11)
    assert event_bound(event, first[10_000:], second[10_000:], 0.95, 0.11)[0] < 0.05


@given(st.integers(1, 10**6), st.data(), st.floats(1e-9, 0.5))
def test_clopper_pearson_against_scipy(runs: int, data: st.DataObject, error: float) -> None:
    hits = data.draw(st.integers(0, runs))
    lower, upper = lower_probability(hits, runs, error), upper_probability(hits, runs, error)
    expected = stats.beta.ppf(error, hits, runs - hits + 1) if hits else 0.0
    assert lower == pytest.approx(expected, rel=1e-7, abs=1e-300)
    expected = stats.beta.isf(error, hits + 1, runs - hits) if hits < runs else 1.0
    assert upper == pytest.approx(expected, rel=1e-7)
    assert 0 <= lower <= hits / runs <= upper <= 1


@given(st.floats(0.5, 1e5), st.floats(0.5, 1e5), st.floats(0, 1))
def test_incomplete_beta_against_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("how", "reason"),
    [({"runs": 10}, "runs"), ({"runs": True}, "runs"), ({"confidence": 1.0}, "confidence")],
)
def test_bad_settings_are_refused(how: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        audit(PEOPLE, SCHEMA, method("LAPLACE", epsilon=1), **how)


def test_methods_without_noise_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be audited"):
        audit(PEOPLE, SCHEMA, method("MDAV", k=3))


def test_one_record_is_enough() -> None:
    assert not run("LAPLACE", np.array([[0.5, 0.5]]), SCHEMA).contradicted


def test_progress_goes_up_to_one() -> None:
    seen: list[float] = []
    audit(PEOPLE, SCHEMA, method("MDAV_DP", epsilon=1, k=5), runs=1000, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1
