"""Hashes of files: right, kept, and taken anew when the file changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from backends.local import fingerprint
from backends.local.fingerprint import file_sha256


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fingerprint._file_sha256.cache_clear()
    return tmp_path / "cache" / "bias-audit" / "file-hashes"


def test_the_hash_is_sha256_of_the_contents_and_is_kept(tmp_path: Path, own_cache: Path) -> None:
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"weights")
    assert file_sha256(file) == hashlib.sha256(b"weights").hexdigest()
    assert len(list(own_cache.iterdir())) == 1


def test_a_file_written_over_with_its_old_time_is_hashed_again(tmp_path: Path) -> None:
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"weights")
    state = file.stat()
    before = file_sha256(file)
    file.write_bytes(b"WEIGHTS")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert file_sha256(file) == hashlib.sha256(b"WEIGHTS").hexdigest() != before
