"""One spec, many tables: a release each, as many at once as cores and memory allow."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .certificate import Certificate
from .errors import InputError
from .files import FileFormat, open_file
from .ledger import Ledger
from .release import Progress, anonymize
from .resources import check_memory
from .schema import Schema
from .spec import Spec, bounds_from_data
from .writing import check_target

# A guess at the peak memory of a release, as a multiple of the size of its file: bench/test_cli.py, which reads 4 of
# 10 columns, shows 3.5 for CSV, 5.5 for Parquet and 8 for gzip. More columns need more, so these are about twice that.
_MEMORY_PER_BYTE = {"csv": 8, "parquet": 12, "arrow": 8, "compressed": 20}


@dataclass(frozen=True)
class Job:
    """A table and the directory that its release goes to."""

    table: Path
    target: Path


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    seconds: float
    rows: int = 0
    columns: int = 0
    certificate: Certificate | None = None
    error: Exception | None = None


def find_jobs(tables: Sequence[Path], out: Path) -> list[Job]:
    """One job per table; a folder stands for the table files in it. Several tables get a directory each."""
    found: list[Path] = []
    for path in tables:
        if path.is_dir():
            inside = sorted(child for child in path.iterdir() if child.is_file() and _is_table(child))
            if not inside:
                raise InputError(f"{path}: no table file in this folder")
            found += inside
        else:
            found.append(path)
    if len(tables) == 1 and found == list(tables):
        return [Job(found[0], out)]
    jobs: dict[str, Job] = {}
    for path in found:
        name = path.name.split(".")[0] or path.name
        if name in jobs:
            raise InputError(f"{path} and {jobs[name].table} would both go to {out / name}; rename one")
        jobs[name] = Job(path, out / name)
    return list(jobs.values())


def _is_table(path: Path) -> bool:
    try:
        return not path.name.startswith(".") and bool(FileFormat.of(path))
    except InputError:
        return False


def run(
    job: Job,
    spec: Spec,
    *,
    force: bool,
    experiment: bool,
    threads: int,
    progress: Progress,
    ledger: Ledger | None = None,
    memory_limit: int | None = None,
) -> Outcome:
    """Make and save one release."""
    begun = time.monotonic()
    check_target(job.target, force=force)
    file = open_file(job.table, spec.file_options)
    schema = spec.schema_for(file.names)
    if memory_limit is not None:
        check_memory(file, schema, memory_limit)
    if experiment:
        schema = _with_bounds_from_data(schema, file.read(skip=set(file.names) - set(schema.numeric)))
    release = anonymize(
        job.table,
        schema,
        spec.method,
        order=spec.order,
        threads=threads,
        progress=progress,
        file_options=spec.file_options,
        ledger=ledger,
    )
    release.save(job.target, force=force, progress=progress)
    table = release.table
    return Outcome(job, time.monotonic() - begun, table.num_rows, table.num_columns, release.certificate)


def _with_bounds_from_data(schema: Schema, table: Any) -> Schema:
    read = {
        name: replace(bounds_from_data(table.column(name), name), missing=schema.bounds(name).missing)
        for name in schema.numeric
        if name in table.column_names
    }
    return replace(schema, columns={name: read.get(name, column) for name, column in schema.columns.items()})


def run_all(
    jobs: Sequence[Job],
    spec: Spec,
    progress_of: Callable[[str], Progress],
    *,
    force: bool,
    experiment: bool,
    ledger: Ledger | None = None,
    memory_limit: int | None = None,
) -> Iterable[Outcome]:
    """Run every job; one that fails does not stop the others. Outcomes come as they are done."""
    cores = os.cpu_count() or 1
    workers = min(len(jobs), cores, max(1, _available_memory() // max(_memory(job.table) for job in jobs)))
    stop = threading.Event()

    def work(job: Job) -> Outcome:
        begun = time.monotonic()
        show = progress_of(str(job.table))

        def progress(station: str, share: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            show(station, share)

        try:
            threads = max(1, cores // workers)
            return run(
                job,
                spec,
                force=force,
                experiment=experiment,
                threads=threads,
                progress=progress,
                ledger=ledger,
                memory_limit=memory_limit,
            )
        except Exception as error:
            return Outcome(job, time.monotonic() - begun, error=error)

    if len(jobs) == 1:
        yield work(jobs[0])  # in this thread, which Ctrl-C reaches at once
        return
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _memory(table: Path) -> int:
    """Bytes that the release of a table may need, from the size of its file."""
    try:
        file_format = FileFormat.of(table)
        kind = "compressed" if file_format.compression else file_format.kind
        return max(1, table.stat().st_size * _MEMORY_PER_BYTE[kind])
    except (OSError, InputError):
        return 1  # it will be refused


def _available_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 4 << 30
