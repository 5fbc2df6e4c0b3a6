"""Hashes of files: right, kept, and taken anew when the file changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from backends.local import fingerprint
from backends.local.fingerprint import file_sha256, files_sha256, folder_weights


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


def test_files_hash_depends_on_names_not_order(tmp_path: Path) -> None:
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    assert files_sha256([a, b]) == files_sha256([b, a])
    first = files_sha256([a, b])
    a.write_bytes(b"2")
    b.write_bytes(b"1")
    assert files_sha256([a, b]) != first


def test_safetensors_are_the_weights_where_there_are_any(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert [f.name for f in folder_weights(tmp_path)] == ["pytorch_model.bin"]
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert [f.name for f in folder_weights(tmp_path)] == ["model.safetensors"]
