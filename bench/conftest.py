"""One table of ratios at the end of a bench run.

A bench case measures its own function with pytest-benchmark and hands the row, with its baselines, to
the ``ratios`` fixture. A baseline is a call to be timed once, or seconds measured already::

    def test_mdav(benchmark, ratios):
        benchmark.pedantic(mdav, (X, 10), rounds=3)
        ratios("mdav 1e5 x 4, k=10", benchmark, limit=0.3, numpy=lambda: numpy_mdav(X, 10))
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

_ROWS: list[tuple[str, float, float | None, dict[str, float]]] = []


def _seconds(baseline: float | Callable[[], object]) -> float:
    if not callable(baseline):
        return baseline
    started = time.perf_counter()
    baseline()
    return time.perf_counter() - started


@pytest.fixture
def ratios():
    """Return record(case, benchmark, limit=None, **baselines), which adds a row to the table."""

    def record(case, benchmark, limit=None, **baselines):
        if benchmark.stats is None:  # --benchmark-disable: nothing was measured
            return
        times = {name: _seconds(baseline) for name, baseline in baselines.items()}
        _ROWS.append((case, benchmark.stats.stats.min, limit, times))

    return record


def pytest_terminal_summary(terminalreporter):
    if not _ROWS:
        return
    terminalreporter.section("ratios: baseline / ours")
    for case, ours, limit, baselines in _ROWS:
        asked = "" if limit is None else f" (asked: {limit:g} s)"
        against = "   ".join(f"{name} {t:.3g} s = {t / ours:.3g}x" for name, t in baselines.items())
        terminalreporter.write_line(f"{case:<44} {ours:9.4f} s{asked:<18}  {against}")
