"""Files and folders that may hold prompts and answers are their owner's alone; what exists keeps its mode."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from audit.logs import run_log
from audit.schedule.journal import Journal
from audit.store import Store
from backends.files import atomic_write, private_folder


def log(folder: Path) -> None:
    with run_log(folder, "r"):
        pass


WRITERS: dict[str, Callable[[Path], object]] = {
    "store": lambda folder: Store.open(folder / "a.db").close(),
    "report": lambda folder: atomic_write(folder / "report.html", "…"),
    "log": log,
    "journal": lambda folder: Journal(folder / "j.jsonl").write("started", datetime.now(UTC)),
    "lock": lambda folder: Journal(folder / "j.jsonl").lock().acquire().lock.release(),
}


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(path.stat().st_mode & 0o777) for path in folder.rglob("*")}


@pytest.mark.parametrize("writer", WRITERS)
def test_folders_and_files_are_created_for_their_owner(writer: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path / "new" / "deep")
    found = modes(tmp_path)
    assert found.pop("new") == found.pop("deep") == "0o700"
    assert set(found.values()) <= {"0o600"}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_exists_keeps_its_mode(writer: str, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    WRITERS[writer](tmp_path / "shared" / "new")
    assert (modes(tmp_path)["shared"], modes(tmp_path)["new"]) == ("0o755", "0o700")


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        private_folder(tmp_path / "file" / "folder")


def test_a_file_that_cannot_be_written_is_named_by_its_own_name() -> None:
    with pytest.raises(OSError, match="No such file") as refused:
        atomic_write(Path("/proc/a.jsonl"), "text")
    assert refused.value.filename == "/proc/a.jsonl"
