"""Methods side by side on one table, so that a curator can choose. It reads the data: never publish it."""

from __future__ import annotations

import inspect
import math
import os
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from html import escape
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._core import __version__
from .errors import InputError
from .evaluate import Evaluation
from .files import FileOptions
from .methods import Method, Microaggregation, catalogue, method
from .partition import Labels, Partition, Singletons
from .release import anonymize
from .report import Figure, chart, css, curator_only, html_table, page, rounded
from .schema import Schema
from .table import read_table

if TYPE_CHECKING:
    import pyarrow as pa

    from ._core import Progress as Share  # the stubs alone define it

#: What is compared: the column's name, the words for it, and where it stands in an evaluation.
FIGURES: dict[str, tuple[str, Callable[[Evaluation], float | None]]] = {
    "information_loss": ("information loss, %", lambda e: e.information_loss),
    "sse": ("SSE, raw units", lambda e: e.sse),
    "kolmogorov_smirnov": (
        "Kolmogorov–Smirnov, mean over attributes",
        lambda e: _mean([a.kolmogorov_smirnov for a in e.attributes.values()]),
    ),
    "correlation_error": ("correlation error", lambda e: e.correlation_error),
    "range_error": (
        "range-count error, share of records",
        lambda e: None if e.ranges_1d is None else e.ranges_1d.error,
    ),
    "linked": ("records linked, share", lambda e: None if e.linkage is None else e.linkage.share),
}


@dataclass(frozen=True)
class Setting:
    """One method with its parameters; ``None`` where it takes none."""

    method: str
    k: int | None
    epsilon: float | None

    @property
    def words(self) -> str:
        """The setting as a reader would write it."""
        parts = [self.method]
        parts += [f"k = {self.k}"] if self.k is not None else []
        parts += [f"epsilon = {self.epsilon:g}"] if self.epsilon is not None else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Run:
    """One release of a setting, and what it lost."""

    setting: Setting
    repeat: int
    figures: dict[str, float | None]


@dataclass(frozen=True)
class Comparison:
    """Every run of a comparison. For the curator's eyes only."""

    runs: tuple[Run, ...]
    records: int
    refused: dict[Setting, str] = field(default_factory=dict)  # settings that cannot work, and why

    def table(self) -> pa.Table:
        """One row per run: method, k, epsilon, repeat and the figures."""
        import pyarrow as pa

        rows = [vars(run.setting) | {"repeat": run.repeat} | run.figures for run in self.runs]
        kinds = {"method": pa.string(), "k": pa.int64(), "repeat": pa.int64()}
        names = ["method", "k", "epsilon", "repeat", *FIGURES]
        return pa.table(
            {name: pa.array([row[name] for row in rows], kinds.get(name, pa.float64())) for name in names}
        )

    def summary(self) -> list[dict[str, Any]]:
        """Per setting: how many runs, and of each figure the mean and the standard deviation over them."""
        found: dict[Setting, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.setting, []).append(run)
        rows = []
        for setting, runs in found.items():
            row: dict[str, Any] = vars(setting) | {"runs": len(runs)}
            for name in FIGURES:
                values = [value for run in runs if (value := run.figures[name]) is not None]
                row[name] = _mean(values)
                row[f"{name}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
            rows.append(row)
        return rows

    def to_html(self) -> str:
        """The table and the plots as one page that opens offline."""
        figures: dict[str, Figure] = {}
        summary = self.summary()
        axes = [axis for axis in ("epsilon", "k") if len({row[axis] for row in summary} - {None}) > 1]
        parts = [
            curator_only("Nothing on this page may be published."),
            "<h1>Methods compared</h1>",
            f'<p class="lead">{self.records:,} records, {len(self.runs)} releases. None of them was kept.</p>',
            "<p>Every figure was measured on the original table. Choosing a method by them reads the data, which no "
            "guarantee covers: choose by a similar public table where you can.</p>",
        ]
        for name, (words, _) in FIGURES.items():
            shown = [row for row in summary if row[name] is not None]
            if not shown:
                continue
            charts = [
                chart(
                    figures,
                    f"{name}-{axis}",
                    _figure(shown, name, axis),
                    f"{words}, against {_AXES[axis]}",
                    28,
                )
                for axis in axes or ["epsilon"]
            ]
            title = words[0].upper() + words[1:]
            parts.append(f'<h2>{escape(title)}</h2><div class="pair">{"".join(charts)}</div>')
        head = ["method", "k", "ε", "runs", *(words for words, _ in FIGURES.values())]
        rows = [
            [
                row["method"],
                _or_dash(row["k"]),
                _or_dash(row["epsilon"]),
                str(row["runs"]),
            ]
            + [_with_deviation(row, name) for name in FIGURES]
            for row in summary
        ]
        parts.append("<h2>All figures</h2><p>Mean ± standard deviation over the runs of a setting.</p>")
        parts.append(html_table(head, rows, numbers=range(1, len(head))))
        if self.refused:
            reasons = "".join(
                f"<li>{escape(setting.words)}: {escape(reason)}</li>"
                for setting, reason in self.refused.items()
            )
            parts.append(f"<h2>Not compared</h2><ul>{reasons}</ul>")
        return page("Methods compared", "\n".join(parts), figures, __version__)

    def save(self, directory: str | Path, *, force: bool = False) -> Path:
        """Write ``compare.csv`` and ``compare.html``, files that only the owner can read, to a directory."""
        import pyarrow.csv

        from .writing import atomic_directory

        with atomic_directory(Path(directory), force=force) as folder:
            pyarrow.csv.write_csv(self.table(), folder / "compare.csv")
            (folder / "compare.html").write_text(self.to_html(), encoding="utf-8")
            for path in folder.iterdir():
                path.chmod(0o600)
        return Path(directory)


def settings(
    methods: Sequence[str], k: Sequence[int] = (), epsilon: Sequence[float] = ()
) -> Iterator[tuple[Setting, Method]]:
    """The grid of methods and the parameters they take; each that takes no k or epsilon appears once.

    >>> [setting.k for setting, _ in settings(["MDAV", "LAPLACE"], k=[5, 10], epsilon=[1])]
    [5, 10, None]
    """
    if not methods:
        raise InputError("name at least one method to compare; `dpmicro methods` lists them")
    for name in dict.fromkeys(methods):
        if name not in catalogue():
            method(name)  # refuses, naming the nearest one
        accepted = inspect.signature(catalogue()[name].build).parameters
        grids: dict[str, Sequence[Any]] = {"k": k, "epsilon": epsilon}
        taken = {
            key: list(dict.fromkeys(values)) for key, values in grids.items() if key in accepted and values
        }
        for values in product(*taken.values()):
            parameters = dict(zip(taken, values, strict=True))
            made = method(name, **parameters)
            given = parameters.get("epsilon")
            yield Setting(name, parameters.get("k"), None if given is None else float(given)), made


def compare(
    table: Any,
    schema: Schema,
    methods: Sequence[str],
    *,
    k: Sequence[int] = (),
    epsilon: Sequence[Any] = (),
    repeats: int = 5,
    threads: int = 0,
    progress: Callable[[float], object] | None = None,
    file_options: FileOptions | None = None,
) -> Comparison:
    """Release the table by every method with every k and epsilon it takes, and measure what each lost.

    Methods that draw nothing at random give the same release each time and run once. Runs go in parallel on
    ``threads`` threads (0: all cores). Nothing is kept but the figures, and those are for the curator.

    >>> import numpy as np
    >>> from dpmicro_native import Numeric, Schema
    >>> people = np.column_stack([np.arange(60) % 13 + 30, np.arange(60) * 100.0])
    >>> schema = Schema({"age": Numeric(0, 120), "income": Numeric(0, 10_000)})
    >>> found = compare(people, schema, ["MDAV", "OPT_DP_1"], k=[3, 5], epsilon=[1], repeats=2)
    >>> [(row["method"], row["k"], row["epsilon"], row["runs"]) for row in found.summary()]
    [('MDAV', 3, None, 1), ('MDAV', 5, None, 1), ('OPT_DP_1', None, 1.0, 2)]
    """
    if repeats < 1:
        raise InputError("repeats must be at least 1")
    grid = list(settings(methods, k, epsilon))
    for _, made in grid:
        made.check(schema)
    source = read_table(table, schema, file_options).arrow
    # Files are read without the columns to drop; to anonymize they would be missing.
    present = {name: column for name, column in schema.columns.items() if name in source.column_names}
    schema = replace(schema, columns=present)
    partitions = _Partitions()
    tasks = [
        (setting, made, repeat) for setting, made in grid for repeat in range(repeats if _random(made) else 1)
    ]
    stop = threading.Event()
    finished: list[Run] = []
    refused: dict[Setting, str] = {}

    def run(setting: Setting, made: Method, repeat: int) -> None:
        def poll(station: str, share: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt

        poll("start", 0.0)
        try:
            release = anonymize(source, schema, partitions.remembered(made), threads=1, progress=poll)
        except InputError as error:
            refused[setting] = str(error)
            return
        evaluation = release.evaluation
        figures = {name: read(evaluation) for name, (_, read) in FIGURES.items()}
        finished.append(Run(setting, repeat, figures))

    # Threads, since the work happens in the core without the interpreter's lock; only this one sees Ctrl-C.
    with ThreadPoolExecutor(max_workers=threads or os.cpu_count() or 1) as pool:
        waiting = {pool.submit(run, *task) for task in tasks}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if progress is not None:
                    progress(1 - len(waiting) / len(tasks))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if not finished:
        raise InputError(next(iter(refused.values())))
    order = {setting: number for number, (setting, _) in enumerate(grid)}
    finished.sort(key=lambda run: (order[run.setting], run.repeat))
    return Comparison(tuple(finished), source.num_rows, refused)


def _random(made: Method) -> bool:
    """Whether two releases differ: by noise, or because records are drawn from moments."""
    return made.guarantee != "k-anonymity" or (isinstance(made, Microaggregation) and made.moments.order > 0)


class _Partitions:
    """Labels found so far. MDAV costs far more than the noise, which alone differs between most runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Any, threading.Lock] = {}
        self._labels: dict[Any, Labels] = {}

    def remembered(self, made: Method) -> Method:
        """The same method, with a partition that is computed once for all runs that share it."""
        if not isinstance(made, Microaggregation) or isinstance(made.partition, (type, Singletons)):
            return made
        return replace(made, partition=_Remembered(made.partition, self))

    def labels(self, key: Any, compute: Callable[[], Labels]) -> Labels:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:  # whoever needs the same labels waits for them
            if key not in self._labels:
                self._labels[key] = compute()
            return self._labels[key]


@dataclass(frozen=True)
class _Remembered(Partition):
    partition: Partition
    known: _Partitions

    @property
    def reads(self) -> Any:  # type: ignore[override]
        return self.partition.reads

    @property
    def univariate(self) -> bool:  # type: ignore[override]
        return self.partition.univariate

    def labels(
        self, U: NDArray[np.float64], *, noise_cost: float = 0.0, threads: int = 0, progress: Share = None
    ) -> Labels:
        from hashlib import blake2b

        # The table's own bytes, since dropped records and groups of attributes make others of it.
        digest = blake2b(np.ascontiguousarray(U.T).data, digest_size=16).digest()
        cost = noise_cost if self.partition.univariate else 0.0
        return self.known.labels(
            (self.partition, digest, cost),
            lambda: self.partition.labels(U, noise_cost=noise_cost, threads=threads, progress=progress),
        )

    def check(self, n: int, d: int) -> None:
        self.partition.check(n, d)

    def sum_sensitivity(self, n: int) -> int:
        return self.partition.sum_sensitivity(n)


# Plots

_AXES = {"epsilon": "ε", "k": "k"}
_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8c6bb1",
    "#7f7f7f",
)  # Okabe & Ito
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def _figure(rows: Sequence[dict[str, Any]], name: str, axis: str) -> Figure:
    """One line per method and other parameter; a method without the axis' parameter is level."""
    other = "k" if axis == "epsilon" else "epsilon"
    ends = sorted({row[axis] for row in rows} - {None}) or [1]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    others = sorted({row[other] for row in rows} - {None})
    lines: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["method"], row[other]), []).append(row)
    traces = []
    for (method_name, value), points in lines.items():
        number = methods.index(method_name)
        level = points[0][axis] is None
        points = sorted(points, key=lambda row: row[axis] or 0)
        x = [ends[0], ends[-1]] if level else [row[axis] for row in points]
        chosen = [points[0], points[0]] if level else points
        dash = _DASHES[others.index(value) % len(_DASHES)] if value is not None else "solid"
        traces.append(
            {
                "x": x,
                "y": [row[name] for row in chosen],
                "error_y": {
                    "array": [row[f"{name}_deviation"] or 0 for row in chosen],
                    "thickness": 1,
                    "width": 3,
                    "visible": any(row[f"{name}_deviation"] for row in chosen),
                },
                "type": "scatter",
                "mode": "lines+markers",
                "name": method_name if value is None else f"{method_name}, {_AXES[other]} = {value:g}",
                "line": {"color": _COLOURS[number % len(_COLOURS)], "dash": dash, "width": 2},
                "marker": {"symbol": _SYMBOLS[number % len(_SYMBOLS)], "size": 7},
            }
        )
    positive = all(row[name] > 0 for row in rows)
    return {
        "data": traces,
        "layout": {
            "xaxis": {
                "title": {"text": _AXES[axis]},
                "type": "log",
                "tickvals": ends,
                "ticktext": [f"{x:g}" for x in ends],
            },
            "yaxis": {
                "title": {"text": name.replace("_", " ")},
                "type": "log" if positive else "linear",
                "exponentformat": "power",
            },
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": -0.25,
                "yanchor": "top",
                "font": {"color": css("ink")},
            },
            "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        },
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _with_deviation(row: dict[str, Any], name: str) -> str:
    if row[name] is None:
        return "–"
    deviation = row[f"{name}_deviation"]
    return rounded(row[name], 3) + ("" if deviation is None else f" ± {rounded(deviation, 2)}")
