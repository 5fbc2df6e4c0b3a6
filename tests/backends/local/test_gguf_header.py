"""The GGUF header reader against the gguf package's own writer and reader."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from backends import ConfigError, HFBackend, LlamaCppBackend
from backends.local.gguf_header import (
    gguf_parts,
    is_gguf,
    longrope_cells,
    quantisation,
    read_gguf_header,
)
from tests.backends.local.tiny_models import save_tiny_llama_gguf, save_tiny_phi3_gguf


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


def test_longrope_is_told_by_its_tensor_and_its_first_length(written: Path, tmp_path: Path) -> None:
    longrope = save_tiny_phi3_gguf(tmp_path / "phi3.gguf", first=4200, most=8192)
    assert longrope_cells(longrope, read_gguf_header(longrope)) == 4096
    header = read_gguf_header(written) | {"llama.rope.scaling.original_context_length": 4096}
    assert longrope_cells(written, header) is None


def test_a_file_in_parts_is_all_of_them_in_order(written: Path, tmp_path: Path) -> None:
    first = save_tiny_llama_gguf(tmp_path / "split.gguf", part_tensors=5)
    names = [part.name for part in gguf_parts(first, read_gguf_header(first))]
    assert names == [f"split-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert gguf_parts(written, read_gguf_header(written)) == [written]


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first = save_tiny_llama_gguf(tmp_path / "split.gguf", part_tensors=5)
    (tmp_path / "split-00002-of-00003.gguf").unlink()
    with pytest.raises(ConfigError, match=r"split-00002-of-00003\.gguf is missing") as error:
        gguf_parts(first, read_gguf_header(first))
    assert error.value.field == "model"


def test_of_a_file_in_parts_the_first_is_asked_for(tmp_path: Path) -> None:
    first = save_tiny_llama_gguf(tmp_path / "split.gguf", part_tensors=5)
    second = tmp_path / "split-00002-of-00003.gguf"
    with pytest.raises(ConfigError, match="part 2 of 3"):
        gguf_parts(second, read_gguf_header(second))
    renamed = first.rename(tmp_path / "mine.gguf")
    with pytest.raises(ConfigError, match=r"-00001-of-00003\.gguf"):
        gguf_parts(renamed, read_gguf_header(renamed))


@pytest.mark.parametrize("backend", [HFBackend, LlamaCppBackend])
def test_a_model_that_reads_backwards_is_refused_by_its_header(
    backend: type[HFBackend | LlamaCppBackend], tmp_path: Path
) -> None:
    file = save_tiny_llama_gguf(tmp_path / "bert.gguf", also=lambda w: w.add_causal_attention(False))
    with pytest.raises(ConfigError, match="llama model whose tokens see what comes after them") as error:
        backend(file).check()
    assert error.value.field == "model"
    backend(save_tiny_llama_gguf(tmp_path / "gpt.gguf", also=lambda w: w.add_causal_attention(True))).check()


def of_one_field(name: str, kind: int, value: bytes) -> bytes:
    key = struct.pack("<Q", len(name)) + name.encode()
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    "data",
    [
        of_one_field("a", 9, struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 0, 0)),
        of_one_field("a", 9, struct.pack("<IQQ", 8, 3, 2**63 - 1)),
        of_one_field("a", 9, struct.pack("<IQ", 0, 2**63 - 9)),
    ],
    ids=["nested", "far string", "far array"],
)
@pytest.mark.parametrize("backend", [HFBackend, LlamaCppBackend])
def test_an_odd_header_is_refused(backend: type, data: bytes, tmp_path: Path) -> None:
    """Each ended in a traceback."""
    file = tmp_path / "model.gguf"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match="not a readable GGUF file"):
        backend(file).check()
