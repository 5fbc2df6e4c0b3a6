"""A GGUF file is read for transformers in less time, with the same result."""

import gguf
import numpy as np
import pytest

from backends import HFBackend
from backends.embedded import smollm2_path
from backends.transformers.gguf_reading import gguf_read_once
from tests.backends.local.tiny_models import save_tiny_llama_gguf


def assert_read_alike(file):
    with gguf_read_once():
        quick = gguf.GGUFReader(str(file))
        assert gguf.GGUFReader(str(file)) is quick
    usual = gguf.GGUFReader(str(file))
    assert type(usual) is gguf.GGUFReader is not type(quick)
    assert list(quick.fields) == list(usual.fields)
    for name, field in usual.fields.items():
        other = quick.fields[name]
        assert (other.types, other.offset, other.data) == (field.types, field.offset, field.data)
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(other.parts, field.parts, strict=True))
    for a, b in zip(quick.tensors, usual.tensors, strict=True):
        for what in ("name", "tensor_type", "data_offset"):
            assert getattr(a, what) == getattr(b, what)
        assert a.data.dtype == b.data.dtype
        assert np.array_equal(a.data, b.data)


def test_fields_and_tensors_are_those_of_the_usual_reader(tmp_path):
    assert_read_alike(save_tiny_llama_gguf(tmp_path / "model.gguf", prefix_space=True))


@pytest.mark.models
def test_a_quantised_file_is_read_alike():
    assert_read_alike(smollm2_path())


def test_loading_parses_the_file_twice(tmp_path, monkeypatch):
    """For the tokenizer and for the model; it was three times. And nothing of the library is changed afterwards."""
    parsed = []
    build = gguf.GGUFReader._build_fields
    monkeypatch.setattr(gguf.GGUFReader, "_build_fields", lambda *given: parsed.append(given) or build(*given))
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    HFBackend(save_tiny_llama_gguf(tmp_path / "model.gguf", prefix_space=True), threads=1).load()
    assert len(parsed) == 2
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before
