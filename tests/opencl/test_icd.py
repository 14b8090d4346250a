"""The list of runtimes the loader reads: completed, never shortened, and the user's word stands."""

import importlib.metadata
import os
from pathlib import Path

import pytest

from opencl import icd


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system's folder of entries, empty, and none of the user's variables."""
    for name in icd.USER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "vendors"
    folder.mkdir()
    monkeypatch.setenv("OPENCL_VENDOR_PATH", str(folder))
    return folder


@pytest.fixture
def intel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that installed its library at this path."""
    library = tmp_path / "lib" / "libintelocl.so"
    library.parent.mkdir()
    library.touch()
    files = [importlib.metadata.PackagePath("../../libother.so"), _At(library)]
    monkeypatch.setattr(importlib.metadata, "files", lambda package: files)
    return library


class _At(importlib.metadata.PackagePath):
    def __new__(cls, path: Path) -> "_At":
        return super().__new__(cls, path)

    def locate(self) -> Path:
        return Path(self)


def listed() -> dict[str, str]:
    """Libraries by file name, read as the loader reads them."""
    with icd.complete_list():
        folder = Path(os.environ["OCL_ICD_VENDORS"])
        entries = {path.name: path.read_text().strip() for path in folder.glob("*.icd")}
    assert not folder.exists()
    assert "OCL_ICD_VENDORS" not in os.environ
    return entries


def test_adds_the_package_and_keeps_the_systems(vendors: Path, intel: Path) -> None:
    (vendors / "pocl.icd").write_text("libpocl.so.2\n")
    (vendors / "amdocl64.icd").write_text("/opt/rocm/lib/libamdocl64.so\n")
    assert listed() == {
        "pocl.icd": "libpocl.so.2",
        "amdocl64.icd": "/opt/rocm/lib/libamdocl64.so",
        "skillwalk-intel.icd": str(intel),
        "skillwalk-nvidia.icd": "libnvidia-opencl.so.1",
    }


def test_does_not_load_a_second_copy_of_a_runtime(vendors: Path, intel: Path) -> None:
    (vendors / "intel.icd").write_text(f"{intel}\n")
    (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    assert sorted(listed()) == ["intel.icd", "nvidia.icd"]


def test_a_path_in_another_encoding_is_kept_byte_for_byte(vendors: Path, intel: Path) -> None:
    (vendors / "odd.icd").write_bytes(b"lib\xff.so\n")
    with icd.complete_list():
        assert (Path(os.environ["OCL_ICD_VENDORS"]) / "odd.icd").read_bytes() == b"lib\xff.so\n"


def test_an_entry_whose_library_is_gone_does_not_stand_in_the_way(
    vendors: Path, intel: Path
) -> None:
    (vendors / "intel.icd").write_text("/opt/removed/libintelocl.so\n")
    assert listed()["skillwalk-intel.icd"] == str(intel)


def test_without_the_package_and_the_systems_folder(
    vendors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str) -> None:
        raise importlib.metadata.PackageNotFoundError(package)

    vendors.rmdir()
    monkeypatch.setattr(importlib.metadata, "files", missing)
    assert list(listed()) == ["skillwalk-nvidia.icd"]


def test_a_package_without_its_library_is_none(vendors: Path, intel: Path) -> None:
    intel.unlink()
    assert icd.intel_library() is None


def test_unreadable_and_empty_entries_are_skipped(vendors: Path, intel: Path) -> None:
    (vendors / "folder.icd").mkdir()
    (vendors / "empty.icd").write_text("\n")
    (vendors / "pocl.txt").write_text("libpocl.so.2")
    assert sorted(listed()) == ["skillwalk-intel.icd", "skillwalk-nvidia.icd"]


@pytest.mark.parametrize("name", icd.USER_VARIABLES)
def test_the_users_variable_stands(
    vendors: Path, intel: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/their/choice")
    assert icd.user_choice() == f"{name}=/their/choice"
    before = dict(os.environ)
    with icd.complete_list():
        assert dict(os.environ) == before


def test_an_empty_variable_is_no_choice_and_comes_back_empty(
    vendors: Path, intel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "")
    with icd.complete_list():
        assert os.environ["OCL_ICD_VENDORS"]
    assert os.environ["OCL_ICD_VENDORS"] == ""


def test_the_environment_comes_back_after_an_error(vendors: Path, intel: Path) -> None:
    with pytest.raises(ZeroDivisionError), icd.complete_list():
        raise ZeroDivisionError
    assert "OCL_ICD_VENDORS" not in os.environ
