"""Noise beside numpy's (fast, not private) and OpenDP's (exact, slow), and the reference algorithm in Python.

Run with ``pytest bench/test_noise.py``; the table at the end holds the best time of each,
per 10^6 draws or records.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpmicro_native import mask

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from reference import noise as reference

MILLION = 10**6
SCALE = 2**40


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, float]]:
    times: dict[str, float] = {}
    yield times
    ours = times.get("discrete_laplace, 1 thread")
    print("\n\nseconds for 10^6       ratio to ours  what")
    for name, seconds in times.items():
        print(f"{seconds:15.4f} {seconds / ours if ours else float('nan'):15.3f}  {name}")


@pytest.fixture
def timed(benchmark, table, request):  # type: ignore[no-untyped-def]
    def run(name: str, function, *, share: float = 1.0, rounds: int = 3) -> None:  # type: ignore[no-untyped-def]
        benchmark.pedantic(function, rounds=rounds, iterations=1, warmup_rounds=1 if share == 1 else 0)
        table[name] = benchmark.stats.stats.min / share

    return run


def test_discrete_laplace(timed) -> None:  # type: ignore[no-untyped-def]
    timed("discrete_laplace, 1 thread", lambda: mask.discrete_laplace(SCALE, MILLION, threads=1), rounds=5)


def test_discrete_laplace_threads(timed) -> None:  # type: ignore[no-untyped-def]
    timed("discrete_laplace, all threads", lambda: mask.discrete_laplace(SCALE, MILLION), rounds=5)


def test_discrete_laplace_small_scale(timed) -> None:  # type: ignore[no-untyped-def]
    timed("discrete_laplace, scale 5/2, 1 thread", lambda: mask.discrete_laplace(2.5, MILLION, threads=1))


def test_noisy_values(timed) -> None:  # type: ignore[no-untyped-def]
    values = np.full(MILLION, 0.5)
    timed(
        "noisy_values, 1 thread",
        lambda: mask.noisy_values(values, 1, 1, changed=1, magnitude=1, threads=1),
    )


def test_numpy(timed) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng()
    timed("numpy laplace (not private)", lambda: generator.laplace(scale=SCALE, size=MILLION), rounds=5)


def test_reference(timed) -> None:  # type: ignore[no-untyped-def]
    count = 5000
    timed(
        f"reference in Python (from {count} draws)",
        lambda: [reference.discrete_laplace(1, SCALE) for _ in range(count)],
        share=count / MILLION,
        rounds=1,
    )


@pytest.mark.parametrize("kind", ["integers", "floats"])
def test_opendp(timed, kind: str) -> None:  # type: ignore[no-untyped-def]
    prelude = pytest.importorskip("opendp.prelude")
    prelude.enable_features("contrib")
    number = int if kind == "integers" else float
    domain = prelude.vector_domain(prelude.atom_domain(T=number, **({} if number is int else {"nan": False})))
    measurement = prelude.m.make_laplace(domain, prelude.l1_distance(T=number), scale=float(SCALE))
    count = 100_000
    values = [number(0)] * count
    timed(
        f"OpenDP, {kind} (from {count} draws)", lambda: measurement(values), share=count / MILLION, rounds=1
    )


def test_cluster_sums(timed) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(1)
    U = generator.random((MILLION, 4))
    labels = (generator.permutation(MILLION) // 10).astype(np.int32)
    timed("cluster_sums, 4 attributes, k = 10", lambda: mask.cluster_sums(U, labels))


def test_cluster_sums_numpy(timed) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(1)
    U = generator.random((MILLION, 4))
    labels = generator.permutation(MILLION) // 10
    timed(
        "the same in floating point by numpy.bincount",
        lambda: [np.bincount(labels, U[:, j]) for j in range(4)],
    )


def test_poisson_sample(timed) -> None:  # type: ignore[no-untyped-def]
    timed("poisson_sample_exponential", lambda: mask.poisson_sample_exponential(MILLION, 1, threads=1))


def test_permutation(timed) -> None:  # type: ignore[no-untyped-def]
    timed("permutation", lambda: mask.permutation(MILLION))


def test_permute_and_flip(timed) -> None:  # type: ignore[no-untyped-def]
    scores = np.random.default_rng(1).integers(0, 1000, MILLION)
    timed("permute_and_flip, one choice among 10^6", lambda: mask.permute_and_flip(scores, 1, 1))
