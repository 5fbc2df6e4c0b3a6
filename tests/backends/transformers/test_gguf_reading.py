"""A GGUF file is read for transformers in less time."""

import gguf

from backends import HFBackend
from tests.backends.local.tiny_models import save_tiny_llama_gguf


def test_loading_parses_the_file_twice(tmp_path, monkeypatch):
    """For the tokenizer and for the model; it was three times. And nothing of the library is changed afterwards."""
    parsed = []
    build = gguf.GGUFReader._build_fields
    monkeypatch.setattr(gguf.GGUFReader, "_build_fields", lambda *given: parsed.append(given) or build(*given))
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    HFBackend(save_tiny_llama_gguf(tmp_path / "model.gguf", prefix_space=True), threads=1).load()
    assert len(parsed) == 2
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before
