"""What is left when `dpmicro` is killed, interrupted, or runs out of disk: a whole release or none."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpmicro_native.files import FileFormat, open_file, write_file
from dpmicro_native.people import made_up_people
from subprocesses import COMMAND, environment

fcntl, pty, resource, termios = (
    pytest.importorskip(name, reason="needs signals, limits and terminals as POSIX has them")
    for name in ("fcntl", "pty", "resource", "termios")
)

ROWS = 2_000

# Imports everything once, then forks a child per line of its input, which runs dpmicro: so that a kill meets the
# work, not the interpreter's start. A line is JSON: the arguments, and the number of the event at which to crash.
SERVER = """
import json, os, sys
import pyarrow.compute, pyarrow.csv, rich
sys.modules["plotly"] = None  # a report without charts is megabytes smaller, and quicker to write
from dpmicro_native import batch, cli, commands, evaluate, report

EVENTS = {"open", "os.mkdir", "os.rename", "os.chmod", "os.rmdir", "os.remove", "os.listdir", "os.scandir",
          "shutil.rmtree", "tempfile.mkdtemp"}

def crash_at(number, folder):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event in EVENTS and any(folder in str(argument) for argument in arguments):
            seen += 1
            if seen == number:
                os._exit(77)
    sys.addaudithook(hook)

print("ready", flush=True)
for line in sys.stdin:
    arguments, number = json.loads(line)
    child = os.fork()
    if child == 0:
        if number:
            crash_at(number, os.path.dirname(arguments[arguments.index("--out") + 1]))
        os._exit(cli.main(arguments))
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(status, flush=True)
"""


class Server:
    """Runs dpmicro in children that may be killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, arguments: list[str], *, crash_at: int = 0, kill_after: float | None = None) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([arguments, crash_at]) + "\n")
        self.process.stdin.flush()
        child = int(self._line())
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        return int(self._line())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crash") / "people.csv"
    write_file(made_up_people(ROWS), path, FileFormat(), {})
    return path


def command(table: Path, out: Path, *more: str) -> list[str]:
    bounds = ["age=0:120", "income=0:500000", "hours=0:100", "household_size=1:15"]
    options = [part for bound in bounds for part in ("--bounds", bound)]
    method = ["--method", "OPT_DP_1", "--epsilon", "1"]
    return ["anonymize", str(table), *method, *options, "--out", str(out), "--quiet", *more]


def is_whole(release: Path) -> bool:
    """True for a whole release, False for none; anything in between fails."""
    if not release.exists():
        return False
    assert open_file(release / "public" / "data.csv").count() == ROWS
    json.loads((release / "public" / "certificate.json").read_text())
    json.loads((release / "curator" / "evaluation.json").read_text())
    assert (release / "curator" / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    return True


def tidy(folder: Path) -> None:
    """Remove what a kill may leave: hidden folders that only the owner can read."""
    for path in folder.iterdir():
        if path.name != "out":
            assert path.name.startswith(".out.")
            assert path.name.endswith(".part")
            shutil.rmtree(path)


def test_killed_at_random_moments_the_release_is_whole_or_absent(
    tmp_path: Path, server: Server, table: Path
) -> None:
    out = tmp_path / "out"
    begun = time.monotonic()
    assert server.run(command(table, out)) == 0
    typical = time.monotonic() - begun
    moments = random.Random(time.time())
    whole = absent = 0
    for attempt in range(50):
        replace = attempt % 2 == 1  # an earlier release is there, and must not be lost either
        if not replace:
            shutil.rmtree(out, ignore_errors=True)
        elif not out.exists():
            assert server.run(command(table, out)) == 0
        # Half of the kills come when the files are being written.
        moment = moments.uniform(0.5, 1.1) if attempt % 4 < 2 else moments.uniform(0, 1.5)
        server.run(command(table, out, *(["--force"] if replace else [])), kill_after=typical * moment)
        if is_whole(out):
            whole += 1
        else:
            assert not replace
            absent += 1
        tidy(tmp_path)
    assert whole >= 25
    assert absent > 0


@pytest.mark.parametrize("replace", [False, True])
def test_a_crash_at_every_step_leaves_a_whole_release_or_none(
    tmp_path: Path, server: Server, table: Path, replace: bool
) -> None:
    """Deterministic: crash at the first, second, ... thing that is done to the file system."""
    out = tmp_path / "out"
    crashes = finished = 0
    while finished == 0:
        if replace and not out.exists():
            assert server.run(command(table, out)) == 0
        elif not replace:
            shutil.rmtree(out, ignore_errors=True)
        status = server.run(command(table, out, *(["--force"] if replace else [])), crash_at=crashes + 1)
        assert status in (0, 77 << 8)
        if status == 0:
            finished = 1
        else:
            crashes += 1
        assert is_whole(out) or not replace
        tidy(tmp_path)
    assert is_whole(out)
    assert crashes > 10


@pytest.mark.parametrize("how", ["limit", "tmpfs"])
def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path, table: Path, how: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = [*COMMAND, *command(table, disk / "deep" / "out")]
    if how == "tmpfs":
        mount = f'mount -t tmpfs -o size=32k none "{disk}" || exit 99; '
        script = mount + f'"$@"; code=$?; ls -A "{disk}"; exit $code'
        arguments = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *arguments]
        if shutil.which("unshare") is None:
            pytest.skip("needs unshare to mount a small file system")
    limit = 32 << 10

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    run = subprocess.run(
        arguments,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit_files if how == "limit" else None,
    )
    if how == "tmpfs" and (run.returncode == 99 or "unshare" in run.stderr):
        pytest.skip("this system does not let users mount a small file system")
    assert run.returncode == 1
    reason = "file too large" if how == "limit" else "no space left on device"
    assert run.stderr.strip() == f"error: {disk / 'deep' / 'out'}: {reason}; nothing was written"
    assert run.stdout == ""
    assert list(disk.iterdir()) == []


def test_a_polite_kill_tidies_up(tmp_path: Path) -> None:
    with slow_run(tmp_path) as (process, terminal):
        read_until(terminal, "partition")
        process.send_signal(signal.SIGTERM)
        drain(terminal)
        assert process.wait(10) == 143
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


def test_a_terminal_shows_progress_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with slow_run(tmp_path) as (process, terminal):
        shown = read_until(terminal, "partition")
        shown += read_until(terminal, "%")
        shown += read_until(terminal, ":")  # the remaining time
        assert "people.csv" in shown
        assert "━" in shown
        begun = time.monotonic()
        os.write(terminal, b"\x03")
        shown = drain(terminal)
        assert process.wait(10) == 130
        assert time.monotonic() - begun < 5
        assert "interrupted" in shown
        assert "Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


@contextlib.contextmanager
def slow_run(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run that takes a while, in a terminal of its own; the other end of that terminal."""
    table = folder / "people.csv"
    write_file(made_up_people(200_000), table, FileFormat(), {})
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    arguments = [argument for argument in command(table, folder / "out") if argument != "--quiet"]
    arguments[arguments.index("OPT_DP_1")] = "MDAV_DP"
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--k", "2"],
        env=environment() | {"TERM": "xterm-256color"},
        stdin=inside,
        stdout=inside,
        stderr=inside,
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    os.close(inside)
    try:
        yield process, terminal
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def read_until(terminal: int, text: str, seconds: float = 30) -> str:
    shown = b""
    deadline = time.monotonic() + seconds
    while text not in shown.decode(errors="replace"):
        assert time.monotonic() < deadline, f"no {text!r} in {shown.decode(errors='replace')!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536)
    return shown.decode(errors="replace")


def drain(terminal: int) -> str:
    """What is shown until the other end closes."""
    shown = b""
    with contextlib.suppress(OSError):  # Linux' way to say that it did
        while select.select([terminal], [], [], 15)[0] and (block := os.read(terminal, 65536)):
            shown += block
    return shown.decode(errors="replace")
