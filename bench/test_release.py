"""A million records through the pipeline, in memory: wall time of `anonymize`."""

from __future__ import annotations

import numpy as np
import pytest

from dpmicro_native import Numeric, Schema, anonymize, method

NAMES = ("a", "b", "c", "d")
SCHEMA = Schema({name: Numeric(0, 1) for name in NAMES})


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return np.random.default_rng(0).beta(2, 5, (1_000_000, 4))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("OPT_DP_1", {"epsilon": 1}),
        ("IR_DP", {"epsilon": 1}),
        ("MDAV_DP", {"epsilon": 1, "k": 100}),
        ("LAPLACE", {"epsilon": 1}),
        ("CM-3", {"epsilon": 1, "k": 1000}),
        ("CM-2", {"epsilon": 1, "k": 1000}),
    ],
)
def test_a_million_records(benchmark, table, name, parameters) -> None:  # type: ignore[no-untyped-def]
    made = method(name, **parameters)
    benchmark.pedantic(anonymize, args=(table, SCHEMA, made), rounds=3, warmup_rounds=1)
