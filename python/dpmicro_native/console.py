"""What the command line shows: tables and a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .release import Progress

# Where a station begins and ends in the whole run, roughly; stations that are not named compute.
_SHARES = {
    "make up": (0.0, 0.3),
    "read": (0.0, 0.3),
    "release": (0.7, 0.75),
    "write": (0.75, 0.9),
    "evaluate": (0.9, 1.0),
}
_COMPUTE = (0.3, 0.7)


@contextmanager
def progress_of(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[str], Progress]]:
    """Show how far each table is; yields what gives a table's progress callback by its name."""
    if quiet:
        yield lambda name: lambda station, share: None
    elif sys.stderr.isatty():
        with _live_bars(max(map(len, names))) as bars:
            yield bars
    else:
        yield lambda name: _plain_lines(name)


@contextmanager
def _live_bars(width: int) -> Iterator[Callable[[str], Progress]]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn(f"{{task.description:<{min(width, 40)}}} {{task.fields[station]:<9}}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:

        def start(name: str) -> Progress:
            task = bars.add_task(escape(name), total=1.0, station="")
            lock, furthest = threading.Lock(), 0.0

            def progress(station: str, share: float) -> None:
                nonlocal furthest
                begin, end = _SHARES.get(station, _COMPUTE)
                with lock:
                    furthest = max(furthest, begin + (end - begin) * min(1.0, max(0.0, share)))
                    bars.update(task, completed=furthest, station=station)

            return progress

        yield start


def _plain_lines(name: str) -> Progress:
    begun = time.monotonic()
    seen: set[str] = set()

    def progress(station: str, share: float) -> None:
        if station not in seen:
            seen.add(station)
            print(f"{name}: {station} ({time.monotonic() - begun:.1f} s)", flush=True)

    return progress


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", right: Sequence[int] = ()
) -> None:
    """Print a table; the columns numbered in ``right`` are figures."""
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title or None, box=SIMPLE_HEAD, title_justify="left", title_style="bold")
        for number, name in enumerate(header):
            table.add_column(name, justify="right" if number in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    if title:
        print(title)
    widths = [max(len(row[number]) for row in (header, *rows)) for number in range(len(header))]
    for row in (header, *rows):
        cells = (
            f"{cell:>{width}}" if number in right else f"{cell:<{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def warn(message: str) -> None:
    """One line that nobody should miss."""
    print(f"warning: {message}", file=sys.stderr, flush=True)
