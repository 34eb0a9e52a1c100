"""One table of ratios at the end of a bench run.

A bench case measures its own function with pytest-benchmark, its baselines with :func:`seconds`, and
hands the row to the ``ratios`` fixture::

    def test_mdav(benchmark, ratios):
        benchmark(mdav, X, 10)
        ratios("mdav 1e5 x 4, k=10", benchmark, limit=0.3, numpy=seconds(numpy_mdav, X, 10))
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

_ROWS: list[tuple[str, float, float | None, dict[str, float]]] = []


def seconds(function: Callable[..., object], *arguments: object, **options: object) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - started


@pytest.fixture
def ratios():
    """Return record(case, benchmark, limit=None, **baselines): a row of the table, in seconds."""

    def record(case, benchmark, limit=None, **baselines):
        _ROWS.append((case, benchmark.stats.stats.min, limit, baselines))

    return record


def pytest_terminal_summary(terminalreporter):
    if not _ROWS:
        return
    terminalreporter.section("ratios: baseline / ours")
    for case, ours, limit, baselines in _ROWS:
        asked = "" if limit is None else f" (asked: {limit:g} s)"
        against = "   ".join(f"{name} {t:.3g} s = {t / ours:.3g}x" for name, t in baselines.items())
        terminalreporter.write_line(f"{case:<44} {ours:9.4f} s{asked:<18}  {against}")
