"""The published files: pinned by their hash, found in one folder, refused with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import suites
from backends.errors import ConfigError
from suites.benchmarks import eec
from suites.common.data_files import PinnedFile, load, published_files
from tests.suites.benchmarks.invented import texts

NAMES = ("CrowSPairs", "WinoQueer", "StereoSet", "WinoBias", "BBQ", "BiasNLI", "BOLD")


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_needs_the_published_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no file .*https://raw\.githubusercontent\.com/"):
        getattr(suites, name)(folder=tmp_path)
    for file, text in texts().items():
        (tmp_path / file).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match="not the published"):
        getattr(suites, name)(folder=tmp_path)


def test_a_users_file_that_is_not_utf_8_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / eec.CORPUS.name).write_bytes("Sentence\nRené\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"not UTF-8 .* Save the file as UTF-8"):
        suites.EEC(folder=tmp_path)


def test_every_file_is_pinned_and_has_its_own_name() -> None:
    benchmarks = [name for name in load("published_files").content if name != "source"]
    files = [file for name in benchmarks for file in published_files(name).values()]
    assert all(re.search(r"/[0-9a-f]{40}/", file.url) for file in files)
    assert len({file.name for file in files}) == len(files)
    hashes = [file.sha256 or file.git_blob for file in files]
    assert len(set(hashes)) == len(hashes)
    assert all(re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", found) for found in hashes)


def test_a_file_pinned_by_gits_id_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n", "utf-8")
    file = PinnedFile("https://example.org/a.txt", git_blob="ce013625030ba8dba906f756967f9e9ca394464a")  # by git itself
    assert file.path(tmp_path, field="folder") == tmp_path / "a.txt"
    (tmp_path / "a.txt").write_text("hullo\n", "utf-8")
    with pytest.raises(ConfigError, match="git's id is"):
        file.path(tmp_path, field="folder")
