"""The `dpmicro` command: exit codes, and one clear line for everything that goes wrong."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .errors import DpmicroError, InputError

BAD_INPUT, FAILED, INTERRUPTED, TERMINATED = 2, 1, 130, 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `dpmicro`; the exit code is 0 done, 2 bad input, 130 interrupted, 1 anything else."""
    try:
        import click
        import rich  # noqa: F401

        from .commands import dpmicro
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        return _fail(
            FAILED, f"the command line needs {error.name}; install it with: pip install 'dpmicro_native[cli]'"
        )

    if os.name == "nt" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # names of columns are not in every code page
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)  # so that what was begun is tidied up
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = dpmicro.main(given or ["--help"], prog_name="dpmicro", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "dpmicro"
        return _fail(BAD_INPUT, f"{error.format_message()} (see {command} --help)")
    except click.ClickException as error:
        return _fail(BAD_INPUT, error.format_message())
    except (KeyboardInterrupt, click.Abort):
        return _fail(INTERRUPTED, "interrupted; nothing half done was left behind")
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _fail(*explain(error))


def explain(error: BaseException) -> tuple[int, str]:
    """The exit code and the line for an error; never a value of the table."""
    if isinstance(error, InputError):
        return BAD_INPUT, str(error)
    if isinstance(error, DpmicroError):
        return FAILED, str(error)
    if isinstance(error, OSError) and error.errno:
        where = f"{error.filename}: " if error.filename else ""
        return FAILED, f"{where}{error.strerror or os.strerror(error.errno)}"
    if isinstance(error, MemoryError):
        return FAILED, "not enough memory for this table"
    # The message of any other error might quote a value of the table.
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = None if traceback is None else traceback.tb_frame.f_code
    place = f" at {Path(frame.co_filename).name}:{traceback.tb_lineno}" if frame and traceback else ""
    return FAILED, f"unexpected {type(error).__name__}{place}; please report it"


def _fail(code: int, message: str) -> int:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _terminate(*_: object) -> None:
    raise SystemExit(TERMINATED)
