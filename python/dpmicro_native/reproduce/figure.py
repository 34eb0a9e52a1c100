"""What a redone figure is: its curves, what the paper's text states, and the files that hold both."""

from __future__ import annotations

import csv
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, TypeVar

from .._core import __version__
from ..report import Figure as Plot
from ..report import chart, css, html_table, page

Task = TypeVar("Task")
Result = TypeVar("Result")

# Okabe & Ito: told apart by colour-blind readers too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")


@dataclass(frozen=True)
class Line:
    """One curve; ``dotted`` marks baselines, as the papers do."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dotted: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart of a figure. ``log`` names its logarithmic axes: "", "x", "y" or "xy"."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: str = ""


@dataclass(frozen=True)
class Stated:
    """Something the paper's text says, and what came out here."""

    what: str
    where: str
    paper: str
    ours: str
    agrees: bool
    #: Why they differ, or what to know when comparing them.
    why: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper, redone."""

    name: str
    title: str
    panels: Sequence[Panel]
    stated: Sequence[Stated] = ()
    #: What was done otherwise than in the paper, in sentences.
    notes: Sequence[str] = ()

    def rows(self) -> list[tuple[str, str, float, float]]:
        """All points: panel, line, x, y."""
        return [
            (panel.title, line.name, x, y)
            for panel in self.panels
            for line in panel.lines
            for x, y in zip(line.x, line.y, strict=True)
        ]

    def to_html(self) -> str:
        """The figure as one page that opens offline."""
        plots: dict[str, Plot] = {}
        charts = [
            chart(plots, f"panel-{number}", _plot(panel), panel.title, 26)
            for number, panel in enumerate(self.panels)
        ]
        parts = [
            f"<h1>{escape(self.title)}</h1>",
            '<p class="lead">The paper\'s figure, redone.</p>',
            "<nav></nav>",
        ]
        parts.append(f'<div class="pair">{"".join(charts)}</div>')
        if self.stated:
            head = ["what the paper's text says", "where", "paper", "here", "", "remark"]
            rows = [
                [item.what, item.where, item.paper, item.ours, "✓" if item.agrees else "differs", item.why]
                for item in self.stated
            ]
            parts.append(f"<h2>Paper and here</h2>{html_table(head, rows)}")
        if self.notes:
            parts.append(
                f"<h2>Notes</h2><ul>{''.join(f'<li>{escape(note)}</li>' for note in self.notes)}</ul>"
            )
        return page(f"{self.name}: {self.title}", "\n".join(parts), plots, __version__)

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.csv (the points), NAME.stated.csv (the comparison) and NAME.html; earlier ones are replaced."""
        written = [_write_csv(folder / f"{self.name}.csv", ("panel", "line", "x", "y"), self.rows())]
        if self.stated:
            head = ("what", "where", "paper", "ours", "agrees", "why")
            rows = [
                (item.what, item.where, item.paper, item.ours, "yes" if item.agrees else "no", item.why)
                for item in self.stated
            ]
            written.append(_write_csv(folder / f"{self.name}.stated.csv", head, rows))
        written.append(_replace(folder / f"{self.name}.html", self.to_html()))
        return written


def _plot(panel: Panel) -> Plot:
    traces = []
    names = list(dict.fromkeys(line.name for line in panel.lines))
    for line in panel.lines:
        number = names.index(line.name)
        colour = _COLOURS[number % len(_COLOURS)]
        dash = "dot" if line.dotted else ("solid", "dash")[number // len(_COLOURS) % 2]
        traces.append(
            {
                "x": list(line.x),
                "y": list(line.y),
                "type": "scatter",
                "mode": "lines" if line.dotted else "lines+markers",
                "name": escape(line.name, quote=False),
                "line": {"color": colour, "width": 2, "dash": dash},
                "marker": {"symbol": _SYMBOLS[number % len(_SYMBOLS)], "size": 5},
            }
        )
    kinds = {axis: "log" if axis in panel.log else "linear" for axis in "xy"}
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": panel.x}, "type": kinds["x"], "exponentformat": "power"},
            "yaxis": {"title": {"text": panel.y}, "type": kinds["y"], "exponentformat": "power"},
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": -0.2,
                "yanchor": "top",
                "font": {"color": css("ink")},
            },
            "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        },
    }


def _write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return _replace(path, text.getvalue())


def _replace(path: Path, text: str) -> Path:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)  # these are figures of published tables, for everybody
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return path


@dataclass(frozen=True)
class Experiment:
    """Where the tables are, how much to compute, and how to compute it in parallel."""

    data: Path
    quick: bool = False
    progress: Callable[[float], object] = field(default=lambda share: None)

    def pick(self, full: Any, quick: Any) -> Any:
        """The grid or the number of repetitions of this run."""
        return quick if self.quick else full

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Results of all tasks, in their order, on all cores.

        Every task seeds its own draws, so the order in which threads take them does not matter.
        """
        stop = threading.Event()

        def guarded(task: Task) -> Result:
            if stop.is_set():
                raise KeyboardInterrupt
            return function(task)

        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            futures = [pool.submit(guarded, task) for task in tasks]
            waiting = set(futures)
            try:
                while waiting:
                    done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                    for future in done:
                        future.result()
                    self.progress(1 - len(waiting) / len(futures))
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        return [future.result() for future in futures]


def percent(share: float, digits: int = 0) -> str:
    """A share in percent, with a real minus sign."""
    return f"{100 * share:.{digits}f} %".replace("-", "−")
