"""What is said of vLLM without it, and of options that it would not take."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from audit.config.kinds import BACKENDS
from backends import ConfigError, MissingExtra, VLLMBackend, named_backend

without_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if vLLM were there: these checks come before it is imported."""
    monkeypatch.setattr("backends.vllm.backend.need_package", lambda *_, **__: None)


@without_vllm
def test_without_vllm_the_error_names_the_extra(folders: dict[str, Path]) -> None:
    with pytest.raises(MissingExtra, match=r"bias-audit\[vllm\]"):
        VLLMBackend(folders["llama"]).check()


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"dtype": "float16"}, "engine.dtype = 'float16': set by this backend. Leave it out"),
        ({"max_model_len": 5}, "context and quantization are options beside it"),
        ({"logprobs_mode": "raw_logits"}, "Leave it out"),
        ("tensor_parallel_size=2", "engine = 'tensor_parallel_size=2': not a table of options of vllm.LLM"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_options_of_the_engine_that_would_mislead_are_refused(
    engine: object, message: str, folders: dict[str, Path]
) -> None:
    with pytest.raises(ConfigError) as error:
        VLLMBackend(folders["llama"], engine=engine).check()  # type: ignore[arg-type]
    assert message in str(error.value)


@pytest.mark.usefixtures("installed")
def test_files_and_missing_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="a file, where a folder is wanted"):
        VLLMBackend(tmp_path / "a.gguf").check()
    with pytest.raises(ConfigError, match="no such file or folder"):
        VLLMBackend(tmp_path / "none" / "there").check()


@pytest.mark.usefixtures("installed")
def test_options_that_change_numbers_are_in_the_fingerprint(folders: dict[str, Path]) -> None:
    def fingerprint(**options: object) -> dict[str, object]:
        return dict(VLLMBackend(folders["llama"], **options).describe_blocking().fingerprint)  # type: ignore[arg-type]

    usual = fingerprint()
    assert usual["backend"] == "vllm"
    assert fingerprint(engine={"tensor_parallel_size": 2}) != usual
    assert fingerprint(engine={"gpu_memory_utilization": 0.5}) == usual
    assert fingerprint(quantization="fp8") != usual
    assert fingerprint(dtype="float32") != usual
    assert fingerprint(context=64) != usual


def test_it_is_listed_and_named_like_the_others() -> None:
    assert BACKENDS["vllm"] == "VLLMBackend"
    assert isinstance(named_backend("vllm:org/name"), VLLMBackend)
