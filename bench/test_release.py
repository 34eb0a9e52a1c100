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
    ("name", "parameters", "limit"),
    [
        ("OPT_DP_1", {"epsilon": 1}, 2.5),
        ("IR_DP", {"epsilon": 1}, 1.5),
        ("MDAV_DP", {"epsilon": 1, "k": 100}, 4),
        ("LAPLACE", {"epsilon": 1}, None),
        ("CM-3", {"epsilon": 1, "k": 1000}, None),
        ("CM-2", {"epsilon": 1, "k": 1000}, None),
        ("PCL", {"k": 1000}, 60),
    ],
)
def test_a_million_records(benchmark, ratios, table, name, parameters, limit):
    made = method(name, **parameters)
    benchmark.pedantic(anonymize, args=(table, SCHEMA, made), rounds=1 if name == "PCL" else 3)
    ratios(f"anonymize 1e6 x 4, {name}", benchmark, limit=limit)
