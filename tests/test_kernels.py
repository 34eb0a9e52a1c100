"""The border between Python and the core, shown on two real kernels."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpmicro_native
from dpmicro_native import _core
from dpmicro_native.errors import InputError


def table(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**32))
def test_sse_equals_numpy(n: int, d: int, clusters: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(n, d)), rng.integers(0, min(n, clusters), n).astype(np.int32)
    expected = sum(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in set(labels.tolist()))
    assert _core.sse(X, labels) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_sse_keeps_accuracy_far_from_zero() -> None:
    X, labels = table(1000, 2), np.arange(1000, dtype=np.int32) // 10
    shifted = np.round(X, 3) + 1e9
    assert _core.sse(shifted, labels) == pytest.approx(_core.sse(shifted - 1e9, labels), rel=1e-9)


@pytest.mark.parametrize("n", [1, 7, 1024, 100_001])
@pytest.mark.parametrize("d", [1, 3, 13])
def test_squared_distances_are_bit_identical_for_every_layout_and_thread_count(n: int, d: int) -> None:
    X = table(n, d)
    expected = np.zeros(n)
    for j in range(d):  # the documented order of summation
        expected += (X[:, j] - X[0, j]) ** 2
    for layout in (X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
        for threads in (1, 2, 4):
            assert np.array_equal(_core.squared_distances(layout, X[0], threads=threads), expected)


def test_threads_do_not_change_the_sse() -> None:
    X, labels = table(200_000, 3), np.random.default_rng(1).integers(0, 500, 200_000).astype(np.int32)
    assert len({_core.sse(X, labels, threads=threads) for threads in (1, 2, 4, 7)}) == 1


@pytest.mark.parametrize(
    ("X", "labels", "message"),
    [
        (np.zeros((0, 2)), np.zeros(0, np.int32), "empty"),
        (np.zeros((3, 0)), np.zeros(3, np.int32), "empty"),
        (np.zeros(3), np.zeros(3, np.int32), "2-D"),
        (np.array([[1.0], [np.nan]]), np.zeros(2, np.int32), "column 0 has NaN or infinite"),
        (np.array([[1.0, np.inf]]), np.zeros(1, np.int32), "column 1 has NaN or infinite"),
        (np.array([["a"]]), np.zeros(1, np.int32), "numbers are needed"),
        (np.array([[True]]), np.zeros(1, np.int32), "numbers are needed"),
        (np.zeros((2, 1)), np.zeros(3, np.int32), "one label per record"),
        (np.zeros((2, 1)), np.zeros(2), "whole numbers"),
        (np.zeros((2, 1)), np.array([0, -1], np.int32), "0 or larger"),
        (np.zeros((2, 1)), np.array([0, 2], np.int32), "more clusters than"),
    ],
)
def test_bad_input_is_an_input_error_with_a_reason(X: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _core.sse(X, labels)


def test_negative_threads_are_refused() -> None:
    with pytest.raises(InputError, match="threads"):
        _core.sse(table(3, 1), np.zeros(3, np.int32), threads=-1)


def test_an_exception_in_a_worker_thread_reaches_the_caller() -> None:
    # 62 chunks on 8 threads: the chunk with the bad label is rarely the caller's own.
    X = table(1_000_000, 1)
    for position in (10, 500_000, 999_999):
        labels = np.zeros(1_000_000, np.int32)
        labels[position] = -5
        for _ in range(5):
            with pytest.raises(InputError, match="0 or larger"):
                _core.sse(X, labels, threads=8)
    assert threading.active_count() == 1


def test_the_gil_is_released_while_computing() -> None:
    X, labels = np.ones((2_000_000, 8)), np.zeros(2_000_000, np.int32)
    span: list[float] = []

    def compute() -> None:
        span.append(time.perf_counter())
        _core.sse(X, labels, threads=1)
        span.append(time.perf_counter())

    thread = threading.Thread(target=compute)
    ticks = []
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
    start, end = span
    middle = [tick for tick in ticks if start + 0.25 * (end - start) < tick < end - 0.25 * (end - start)]
    assert len(middle) > 100  # with the GIL held there would be none


def test_progress_is_reported_and_its_exception_stops_the_call() -> None:
    X, labels = np.ones((4_000_000, 4)), np.zeros(4_000_000, np.int32)
    shares: list[float] = []
    _core.sse(X, labels, threads=1, progress=shares.append)
    assert shares
    assert all(0 <= share <= 1 for share in shares)

    def refuse(share: float) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        _core.sse(X, labels, threads=1, progress=refuse)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a POSIX timer")
def test_a_signal_stops_a_kernel_in_the_middle() -> None:
    X, labels = np.ones((2_000_000, 16)), np.zeros(2_000_000, np.int32)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for threads in (1, 2):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            try:
                # Signals are looked at inside the call; a call that ended first would return a number.
                result = _core.sse(X, labels, threads=threads)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                result = None
            assert result is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send SIGINT to one process")
def test_ctrl_c_stops_a_long_call_within_a_second() -> None:
    program = (
        "import numpy as np, sys, dpmicro_native as dp\n"
        "X = np.random.default_rng(0).normal(size=(400_000, 13))\n"
        "print('ready', flush=True)\n"
        "dp.mdav(X, 3)\n"  # minutes of work
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        sent = time.perf_counter()
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    # Stopping within a second is the requirement; a loaded machine gets some slack.
    assert time.perf_counter() - sent < 3
    assert "KeyboardInterrupt" in errors


def test_import_is_light() -> None:
    program = "import sys, dpmicro_native; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "numpy" in loaded
    for heavy in ("pyarrow", "click", "rich", "plotly", "scipy", "pandas", "polars"):
        assert f"'{heavy}'" not in loaded


def test_only_the_bindings_know_python() -> None:
    core = Path(__file__).parents[1] / "cpp"
    for source in core.glob("*.[ch]pp"):
        assert "pybind11" not in source.read_text(), source.name
        assert "Python.h" not in source.read_text(), source.name
    assert "Eigen" not in (core / "kernels.cpp").read_text().replace("no Eigen here", "")


def test_the_architecture_document_names_every_module() -> None:
    top = Path(__file__).parents[1]
    text = (top / "docs" / "architecture.md").read_text("utf-8")
    modules = [path.name for path in (top / "python" / "dpmicro_native").glob("*.py")]
    headers = [path.name for path in (top / "cpp").glob("*.hpp")]
    named = re.findall(r"`(\w+)\.(py|hpp|\*)`", text)
    for module in modules:
        assert module == "__init__.py" or (module.removesuffix(".py"), "py") in named, module
    for header in headers:
        stem = header.removesuffix(".hpp")
        assert (stem, "hpp") in named or (stem, "*") in named, header
    for stem, suffix in named:  # and none that is gone
        folder, ending = ("python/dpmicro_native", "py") if suffix == "py" else ("cpp", "hpp")
        known = (top / folder / f"{stem}.{ending}").exists()
        assert known or (top / folder / "reproduce" / f"{stem}.py").exists(), stem


def test_version() -> None:
    assert dpmicro_native.__version__ == _core.__version__ != ""
