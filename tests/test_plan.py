from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpmicro_native import InputError, Numeric, Schema, method, partition
from dpmicro_native.plan import plan
from dpmicro_native.release import mask_clusters

SCHEMA = Schema({"age": Numeric(0, 120), "pay": Numeric(-50, 50)})
SEVERAL = Schema(SCHEMA.columns, individual="person", max_records=3)
RNG = np.random.default_rng(7)

METHODS: list[tuple[str, dict[str, Any]]] = [
    ("LAPLACE", {}),
    ("MDAV_DP", {"k": 7}),
    ("MDAV_DP", {"k": 7, "norm": "raw"}),
    ("MDAV_DP", {}),
    ("MDAV_IR_DP_1", {"k": 9}),
    ("MDAV_IR_DP_2", {"k": 9}),
    ("IR_DP", {"k": 11}),
    ("IR_DP", {}),
    ("INS_DP", {"k": 20}),
]


def worst_tables(n: int) -> list[np.ndarray]:
    """Tables in the unit cube, those with the largest errors among them."""
    halves = np.column_stack([np.arange(n) % 2, np.arange(n) // 2 % 2]).astype(float)
    middle = np.full((n, 2), 0.5)
    middle[: n // 2] = 0.0
    return [
        RNG.random((n, 2)),
        RNG.beta(0.2, 3, (n, 2)),
        halves,
        np.linspace(0, 1, 2 * n).reshape(n, 2),
        middle,
    ]


def errors(U: np.ndarray, schema: Schema, name: str, **parameters: Any) -> tuple[np.ndarray, np.ndarray]:
    """Squared error of clustering per attribute, and the expected one of the noise, in raw units."""
    made = method(name, epsilon="1/2", **parameters)
    masked = mask_clusters(U, schema, made, 0, lambda station, share: None)
    squares = np.array([float(schema.bounds(name).width) ** 2 for name in schema.numeric])
    clustering = np.zeros(2)
    for group, labels in masked.labels.items():
        for attribute in group:
            j = schema.numeric.index(attribute)
            clustering[j] = partition.sse(U[:, [j]], labels)
    noise = np.array([masked.noise_variance[attribute] for attribute in schema.numeric])
    return clustering * squares, noise * squares


@pytest.mark.parametrize("schema", [SCHEMA, SEVERAL])
@pytest.mark.parametrize(("name", "parameters"), METHODS)
def test_the_noise_of_public_clusters_is_what_the_release_has(
    schema: Schema, name: str, parameters: dict[str, Any]
) -> None:
    for n in (40, 100, 203):
        planned = plan(schema, method(name, epsilon="1/2", **parameters), n)
        for U in worst_tables(n):
            clustering, noise = errors(U, schema, name, **parameters)
            for attribute, sse, variance in zip(planned.attributes, clustering, noise, strict=True):
                assert attribute.noise_sse == pytest.approx(variance, rel=1e-12)
                if attribute.worst_case_sse is not None:
                    assert sse + variance <= attribute.worst_case_sse * (1 + 1e-12)


@pytest.mark.parametrize("schema", [SCHEMA, SEVERAL])
@pytest.mark.parametrize("name", ["OPT_DP_1", "OPT_DP_2"])
@pytest.mark.parametrize("min_size", [1, 30])
def test_the_bound_of_optimal_clusters_holds_and_is_not_idle(
    schema: Schema, name: str, min_size: int
) -> None:
    for n in (40, 100, 3000):
        planned = plan(schema, method(name, epsilon="1/2", min_size=min_size), n)
        assert all(
            attribute.noise_sse is None and attribute.clusters is None for attribute in planned.attributes
        )
        bound = np.array([attribute.worst_case_sse for attribute in planned.attributes], dtype=float)
        reached = [sum(errors(U, schema, name, min_size=min_size)) / bound for U in worst_tables(n)]
        assert (np.array(reached) <= 1 + 1e-9).all()
        assert np.max(reached) > 0.05


def test_the_bound_of_optimal_clusters_is_the_best_of_all_equal_runs() -> None:
    for n in (1, 2, 17, 100, 999):
        for epsilon in ("1/100", 1, 100):
            made = plan(Schema({"x": Numeric(0, 1)}), method("OPT_DP_1", epsilon=epsilon), n)
            noise_cost = float(2 / Fraction(epsilon) ** 2)
            every = []
            for clusters in range(1, n + 1):
                sizes = [len(run) for run in np.array_split(np.arange(n), clusters)]
                spread = max(sizes) / 4 if max(sizes) > 1 else 0.0
                every.append(spread + sum(noise_cost / size for size in sizes))
            assert made["x"].worst_case_sse == pytest.approx(min(every), rel=0.02)


def test_shares_scales_and_text() -> None:
    made = plan(SCHEMA, method("MDAV_IR_DP_2", epsilon=1, k=10), 1000)
    age = made["age"]
    assert age.epsilon == Fraction(120, 220)
    assert age.noise_scale == pytest.approx(120 / (120 / 220))
    assert age.noise_scale_of_mean(10) == pytest.approx(22)
    assert (age.cluster_size, age.clusters) == (10, 100)
    assert made.to_dict()["attributes"][0]["epsilon"] == "6/11"
    several = plan(SEVERAL, method("MDAV_IR_DP_2", epsilon=1, k=10), 1000)
    assert several["age"].noise_scale == pytest.approx(3 * age.noise_scale)


def test_methods_without_noise_have_none() -> None:
    made = plan(SCHEMA, method("IR", k=10), 100)
    assert made["age"].epsilon is None
    assert made["age"].noise_sse == 0.0
    assert made["age"].worst_case_sse == pytest.approx(10 / 4 * 120**2)


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(InputError, match="k = 10 is larger"):
        plan(SCHEMA, method("IR", k=10), 9)
    with pytest.raises(InputError, match="CM-3 releases more than means"):
        plan(SCHEMA, method("CM-3", epsilon=1, k=5), 100)
    for n in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="number of records"):
            plan(SCHEMA, method("IR", k=1), n)  # type: ignore[arg-type]
