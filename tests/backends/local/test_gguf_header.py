"""The GGUF header reader against the gguf package's own writer and reader."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from backends import ConfigError, LlamaCppBackend
from backends.local.gguf_header import (
    gguf_parts,
    is_gguf,
    quantisation,
    read_gguf_header,
)
from tests.backends.local.tiny_models import save_tiny_llama_gguf


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_token_list(["a", "é", "<|im_start|>"])
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages }}")
    writer.add_float32("some.float", 0.5)
    writer.add_tensor("t", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_scalar_is_read_as_the_gguf_package_reads_it(written: Path) -> None:
    header = read_gguf_header(written)
    fields = gguf.GGUFReader(written).fields
    expected = {k: f.contents() for k, f in fields.items() if not k.startswith("GGUF.") and len(f.types) == 1}
    assert header == expected
    assert len(header) >= 5
    assert quantisation(header) == "Q4_K_M"
    assert is_gguf(written)


def test_file_types_have_the_names_the_gguf_package_gives_them() -> None:
    from backends.local.gguf_header import FILE_TYPES

    for number, name in FILE_TYPES.items():
        theirs = gguf.LlamaFileType(number).name
        assert theirs.removeprefix("MOSTLY_").removeprefix("ALL_") == name


def test_of_a_file_in_parts_the_first_is_asked_for(tmp_path: Path) -> None:
    first = save_tiny_llama_gguf(tmp_path / "split.gguf", part_tensors=5)
    second = tmp_path / "split-00002-of-00003.gguf"
    with pytest.raises(ConfigError, match="part 2 of 3"):
        gguf_parts(second, read_gguf_header(second))
    renamed = first.rename(tmp_path / "mine.gguf")
    with pytest.raises(ConfigError, match=r"-00001-of-00003\.gguf"):
        gguf_parts(renamed, read_gguf_header(renamed))


def test_a_model_that_reads_backwards_is_refused_by_its_header(tmp_path: Path) -> None:
    file = save_tiny_llama_gguf(tmp_path / "bert.gguf", also=lambda w: w.add_causal_attention(False))
    with pytest.raises(ConfigError, match="llama model whose tokens see what comes after them") as error:
        LlamaCppBackend(file).check()
    assert error.value.field == "model"
