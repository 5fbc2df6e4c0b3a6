"""The models that come as packages."""

from __future__ import annotations

import importlib.util

import pytest

from backends import MissingExtra
from backends.embedded import gemma3_path, smollm2_path
from backends.local.gguf_header import is_gguf, quantisation, read_gguf_header


@pytest.mark.models
@pytest.mark.parametrize(
    ("path", "architecture", "kind", "has_template"),
    [(smollm2_path, "llama", "Q4_1", True), (gemma3_path, "gemma3", "Q4_K_M", False)],
)
def test_the_files_are_what_they_are_said_to_be(path, architecture, kind, has_template) -> None:  # type: ignore[no-untyped-def]
    assert is_gguf(path())
    header = read_gguf_header(path())
    assert header["general.architecture"] == architecture
    assert quantisation(header) == kind
    assert ("tokenizer.chat_template" in header) == has_template
    assert path() == path()


@pytest.mark.parametrize("path", [smollm2_path, gemma3_path])
def test_missing_package_names_the_command_to_install_it(path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'pip install "bias-audit\[embedded\]"'):
        path()
