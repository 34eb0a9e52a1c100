"""Directories that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError

#: What a release consists of; a directory with anything else in it is never replaced.
PARTS = frozenset({"public", "curator"})


def check_target(target: Path, *, force: bool = False) -> Path:
    """The directory to write, links followed; refused where it exists, unless ``force`` may replace a release."""
    target = Path(os.path.realpath(target))
    try:
        if target.exists() and not target.is_dir():
            raise InputError(f"{target} is a file; choose another directory")
        if target.exists() and not force:
            raise InputError(
                f"{target} exists already; choose another directory, or --force to replace the release in it"
            )
        if target.exists() and (
            target == Path.cwd() or not {path.name for path in target.iterdir()} <= PARTS
        ):
            raise InputError(
                f"{target} holds more than a release, so it is not replaced; choose another directory"
            )
    except OSError as error:
        raise InputError(f"cannot write {target}: {_reason(error)}; choose another directory") from None
    return target


@contextmanager
def atomic_directory(target: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``target`` that becomes it when the block ends well.

    A failure, a kill or a full disk before that leaves the target as it was: files are synced to
    disk first, and one rename is the last step. With ``force`` a release that is there is replaced.
    A kill can leave the temporary folder (its name begins with a dot and ends in ``.part``), which only
    its owner can read (on Windows: whoever can read the parent folder).
    """
    target = check_target(target, force=force)
    made = _make_parents(target.parent)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        try:
            yield folder
            folder.chmod(_usual_mode(folder))
            for path in sorted(folder.rglob("*"), reverse=True):
                _sync(path)
            _sync(folder)
            _move_into_place(folder, target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # what is left: a failed attempt, or a replaced release
        with suppress(OSError):  # it is in place already
            _sync(target.parent)
    except BaseException as error:
        for parent in made:
            with suppress(OSError):
                parent.rmdir()
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{_reason(error)}; nothing was written", str(target)) from None
        raise


def _make_parents(parent: Path) -> list[Path]:
    """Make the folders that are missing; those it made, innermost first."""
    missing = [path for path in (parent, *parent.parents) if not path.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write in {parent}: {_reason(error)}; choose another directory") from None
    return missing


def _reason(error: OSError) -> str:
    # Arrow's own errors carry the number, but a message of their own.
    return os.strerror(error.errno).lower() if error.errno else "the files could not be written"


def _move_into_place(folder: Path, target: Path) -> None:
    if not target.exists():
        folder.rename(target)
    elif not _exchange(folder, target):
        # Two steps where the system cannot swap directories in one: a kill in between leaves none.
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        target.rename(old / target.name)
        folder.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step, with Linux' renameat2; False where there is none."""
    import ctypes

    at_working_directory, exchange = -100, 2
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(renameat2(at_working_directory, paths[0], at_working_directory, paths[1], exchange) == 0)


def _sync(path: Path) -> None:
    # Windows syncs only files that are open for writing, and keeps a journal of its folders itself.
    windows = os.name == "nt"
    if windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _usual_mode(folder: Path) -> int:
    """The mode that a new folder gets here; asking for the umask would change it for other threads."""
    probe = folder / "mode"
    probe.mkdir()
    mode = probe.stat().st_mode & 0o777
    probe.rmdir()
    return mode
