"""The folder of compiled programs: whole files only, none trusted unchecked, not too many."""

import os
from pathlib import Path

import pytest

from opencl import binaries


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache" / "kernels"
    monkeypatch.setattr(binaries, "directory", lambda: path)
    return path


def test_what_was_saved_is_loaded(folder: Path) -> None:
    assert binaries.load("key") is None
    binaries.save("key", b"binary")
    assert binaries.load("key") == b"binary"
    assert [path.name for path in folder.iterdir()] == ["key"]


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 40])
def test_a_damaged_file_is_no_binary(folder: Path, damage: bytes) -> None:
    binaries.save("key", b"binary")
    (folder / "key").write_bytes(damage)
    assert binaries.load("key") is None
    binaries.save("key", b"binary")
    assert binaries.load("key") == b"binary"


def test_a_file_cut_short_is_no_binary(folder: Path) -> None:
    binaries.save("key", b"binary" * 100)
    (folder / "key").write_bytes((folder / "key").read_bytes()[:-1])
    assert binaries.load("key") is None


def test_the_oldest_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "KEEP", 3)
    for age, key in enumerate("abcd"):
        binaries.save(key, b"binary")
        if key != "d":
            os.utime(folder / key, (1000 + age, 1000 + age))
    assert sorted(path.name for path in folder.iterdir()) == ["b", "c", "d"]


def test_a_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(binaries, "directory", lambda: tmp_path / "file" / "kernels")
    binaries.save("key", b"binary")
    assert binaries.load("key") is None


def test_a_write_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    binaries.save("key", b"binary")
    assert list(folder.iterdir()) == []


def test_a_user_without_a_home_gets_no_folder_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(binaries, "directory", lambda: Path("~/.cache/skillwalk"))
    binaries.save("key", b"binary")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_in_the_users_cache() -> None:
    assert binaries.directory().parts[-2:] == ("skillwalk", "kernels")


def test_the_processor_is_told_apart_by_its_instruction_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert binaries.processor()

    def hidden(_: Path) -> str:
        raise OSError

    monkeypatch.setattr(Path, "read_text", hidden)
    assert binaries.processor.__wrapped__()
