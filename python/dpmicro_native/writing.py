"""Directories that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError


@contextmanager
def atomic_directory(target: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``target`` that becomes it when the block ends well.

    A failure, a kill or a full disk before that leaves the target as it was: files are synced to
    disk first, and the rename is the last step. With ``force`` an existing target is replaced.
    """
    target = Path(os.path.abspath(target))
    if target.exists() and not force:
        raise InputError(f"{target} exists already; choose another directory, or use --force to replace it")
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; choose another directory")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    except OSError as error:
        raise InputError(f"cannot write beside {target}: {error.strerror}") from None
    try:
        yield folder
        folder.chmod(0o777 & ~_umask())
        for path in sorted(folder.rglob("*"), reverse=True):
            _sync(path)
        _sync(folder)
        _move_into_place(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _move_into_place(folder: Path, target: Path) -> None:
    if not target.exists():
        folder.rename(target)
    else:
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
        target.rename(old / target.name)
        folder.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
