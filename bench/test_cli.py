"""The command line on 10^6 and 10^7 records: wall time, peak memory, and the shares of reading, computing and writing.

Run with ``pytest bench/test_cli.py -s``; the table at the end has one line per command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpmicro_native.files import FileFormat, write_file

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from subprocesses import COMMAND, environment

ROWS = 10**6
NAMES = {
    "make up": "make up",
    "read": "read",
    "partition": "compute",
    "write": "write",
    "evaluate": "evaluate",
}
LIMITS = "asked: <= 6 s, <= 2 GB on 2 cores"


@pytest.fixture(scope="module")
def report() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    print(f"\n\n{'command':<44} {'wall':>7} {'cpu':>7} {'peak':>9}  seconds of it ({LIMITS})")
    print("\n".join(lines))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10^6 x 10: four attributes to protect, four more numbers, two texts."""
    folder = tmp_path_factory.mktemp("bench")
    rng = np.random.default_rng(1)
    numbers = {
        "age": rng.integers(0, 100, ROWS),
        "income": np.round(rng.lognormal(10, 1, ROWS), 2),
        "hours": rng.integers(0, 80, ROWS),
        "wealth": np.round(rng.lognormal(11, 1.2, ROWS), 2),
    }
    more = {f"score_{j}": rng.normal(size=ROWS) for j in range(4)}
    texts = {
        "city": [f"city {i}" for i in rng.integers(0, 1000, ROWS)],
        "note": [f'said "{i}", twice' for i in rng.integers(0, 10**6, ROWS)],
    }
    for name in ("people.csv", "people.parquet", "people.csv.gz"):
        write_file(pa.table(numbers | more | texts), folder / name, FileFormat.of(folder / name), {})
    return folder


def watch_peak(process: int, peaks: list[int]) -> None:
    """Note the high-water mark of a process in kB until it ends.

    Not ru_maxrss: Linux starts a child's at its parent's, and this process has made the tables.
    """
    while found := re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text()):
        peaks.append(int(found[1]))
        time.sleep(0.005)


def run(arguments: list[str], label: str, report: list[str]) -> float:
    """Add a line to the report; the peak memory in MB."""
    begun = time.perf_counter()
    process = subprocess.Popen([*COMMAND, *arguments], env=environment(), stdout=subprocess.PIPE, text=True)
    peaks: list[int] = []
    watcher = threading.Thread(target=watch_peak, args=(process.pid, peaks))
    watcher.start()
    assert process.stdout is not None
    shown = process.stdout.read()
    process.stdout.close()
    watcher.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    assert process.returncode == 0
    starts = {match[1]: float(match[2]) for match in re.finditer(r": ([\w ]+) \(([\d.]+) s\)", shown)}
    total = float(re.search(r" in ([\d.]+) s", shown)[1])  # type: ignore[index]
    stations = [(NAMES[name], start) for name, start in starts.items() if name in NAMES]
    ends = [start for _, start in stations[1:]] + [total]
    parts = [("start", wall - total)] + [
        (name, end - start) for (name, start), end in zip(stations, ends, strict=True)
    ]
    seconds = "  ".join(f"{name} {part:.2f} ({100 * part / wall:.0f} %)" for name, part in parts)
    cpu = usage.ru_utime + usage.ru_stime
    report.append(f"{label:<44} {wall:6.2f}s {cpu:6.2f}s {max(peaks) / 1024:6.0f} MB  {seconds}")
    return max(peaks) / 1024


@pytest.mark.parametrize("name", ["people.csv", "people.parquet", "people.csv.gz"])
@pytest.mark.parametrize("method", ["OPT_DP_1", "IR_DP"])
def test_four_of_ten_columns(tables: Path, tmp_path: Path, report: list[str], name: str, method: str) -> None:
    bounds = ["age=0:120", "income=0:1000000", "hours=0:100", "wealth=0:5000000"]
    options = [part for bound in bounds for part in ("--bounds", bound)]
    how = ["--method", method, "--epsilon", "1", *options, "--other-columns", "drop"]
    command = ["anonymize", str(tables / name), *how, "--out", str(tmp_path / "out")]
    run(command, f"{method} on 4 of 10, {name}", report)


@pytest.mark.parametrize("method", ["OPT_DP_1", "IR_DP"])
@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_ten_million_records_fit_the_memory_limit(
    tmp_path: Path, report: list[str], name: str, method: str
) -> None:
    rng = np.random.default_rng(1)
    numbers = {f"c{j}": np.round(rng.normal(50, 10, 10 * ROWS), 3) for j in range(4)}
    write_file(pa.table(numbers), tmp_path / name, FileFormat.of(tmp_path / name), {})
    options = [part for column in numbers for part in ("--bounds", f"{column}=0:100")]
    how = ["--method", method, "--epsilon", "1", *options, "--memory-limit", "8GB"]
    command = ["anonymize", str(tmp_path / name), *how, "--out", str(tmp_path / "out")]
    assert run(command, f"{method} on 10^7 x 4, {name}", report) <= 8 * 1024


def test_demo(tmp_path: Path, report: list[str]) -> None:
    run(["demo", "--rows", str(ROWS), "--out", str(tmp_path / "demo")], "demo --rows 1000000", report)
