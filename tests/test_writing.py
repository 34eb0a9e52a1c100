from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dpmicro_native import InputError, writing
from dpmicro_native.writing import atomic_directory
from permissions import is_private


def make(target: Path, text: str = "new", *, force: bool = False) -> None:
    with atomic_directory(target, force=force) as folder:
        (folder / "public").mkdir()
        (folder / "public" / "data.csv").write_text(text)


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_directory_appears_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "out"
    with atomic_directory(target) as folder:
        assert not target.exists()
        assert folder.parent == target.parent
        assert is_private(folder)  # nobody else looks in before it is done
        (folder / "public").mkdir()
    assert entries(target) == ["public"]
    assert entries(target.parent) == ["out"]
    usual = tmp_path / "usual"
    usual.mkdir()
    assert target.stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    def fail() -> None:
        with atomic_directory(tmp_path / "deep" / "out") as folder:
            (folder / "data").write_text("half")
            raise failure

    with pytest.raises(failure):
        fail()
    assert entries(tmp_path) == []


def test_a_failure_leaves_the_earlier_release(tmp_path: Path) -> None:
    make(tmp_path / "out", "old")
    with pytest.raises(RuntimeError), atomic_directory(tmp_path / "out", force=True):
        raise RuntimeError
    assert (tmp_path / "out" / "public" / "data.csv").read_text() == "old"
    assert entries(tmp_path) == ["out"]


@pytest.mark.parametrize("swap", [True, False])
def test_force_replaces_a_release(tmp_path: Path, swap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not swap:
        monkeypatch.setattr(writing, "_exchange", lambda one, other: False)
    make(tmp_path / "out", "old")
    with pytest.raises(InputError, match="exists already"):
        make(tmp_path / "out")
    assert (tmp_path / "out" / "public" / "data.csv").read_text() == "old"
    make(tmp_path / "out", force=True)
    assert (tmp_path / "out" / "public" / "data.csv").read_text() == "new"
    assert entries(tmp_path) == ["out"]


def test_force_never_replaces_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "home", "old")
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="holds more than a release"):
        make(tmp_path / "home", force=True)
    assert entries(tmp_path / "home") == ["public", "thesis.txt"]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="holds more than a release"):
        make(Path(), force=True)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="is a file"):
        make(tmp_path / "file", force=True)
    with pytest.raises(InputError, match="cannot write"):
        make(tmp_path / "file" / "out")


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_is_followed(tmp_path: Path) -> None:
    make(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    make(tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "public" / "data.csv").read_text() == "new"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's /proc")
def test_everything_is_synced_before_the_directory_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted_fsync(handle: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def noted_rename(self: Path, target: Path) -> Path:
        done.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    make(tmp_path / "out")
    before, after = done[: done.index("rename")], done[done.index("rename") + 1 :]
    assert [Path(path).name for path in before[:2]] == ["data.csv", "public"]
    assert before[2].endswith(".part")
    assert after == [str(tmp_path)]


def test_an_error_of_the_system_says_why_and_where(tmp_path: Path) -> None:
    reason = "no space left on device; nothing was written"
    with pytest.raises(OSError, match=reason) as full, atomic_directory(tmp_path / "out"):
        raise OSError(28, "Error writing bytes to file")
    assert full.value.filename == str(tmp_path / "out")
    assert entries(tmp_path) == []
