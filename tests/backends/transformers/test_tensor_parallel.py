"""A model divided over processes, on gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from backends import BackendError, ConfigError, HFBackend
from backends.base import GenerateRequest, GenerateResponse, Sampling, ScoreRequest
from backends.embedded import smollm2_path
from backends.errors import StoppedError
from backends.transformers.tensor_parallel import plan
from tests.backends.local.test_stopping import stopping
from tests.backends.openai.float32_weights import write_transformers_folder
from tests.backends.transformers.reference import REQUESTS, scores

pytestmark = pytest.mark.servers  # of torch.distributed, on loopback


def texts(backend: HFBackend) -> list[str]:
    prompts = ("the man", "the police said that")
    answers = backend.run_blocking([GenerateRequest(p, Sampling(max_tokens=9)) for p in prompts])
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    return [answer.text for answer in answers if isinstance(answer, GenerateResponse)]


@pytest.mark.parametrize(("family", "size"), [("llama", 2), ("gemma2", 2), ("llama", 3)])
def test_a_divided_model_answers_as_a_whole_one(family: str, size: int, folders: dict[str, Path]) -> None:
    """Three processes divide no four heads: their projections are gathered."""
    whole = HFBackend(folders[family], threads=1)
    divided = HFBackend(folders[family], threads=1, tensor_parallel=size)
    divided.check()
    try:
        assert scores(divided, REQUESTS) == pytest.approx(scores(whole, REQUESTS), abs=2e-5)
        assert texts(divided) == texts(whole)
        assert scores(divided, REQUESTS[:1]) == pytest.approx(scores(whole, REQUESTS[:1]), abs=2e-5)
        assert divided.notes_of_run()["route"].startswith("tree")
        assert divided.notes_of_run()["places"] == f"each layer over {size} processes"
        weight = divided.load().model.model.layers[0].mlp.up_proj.weight
        assert weight.to_local().shape[0] == weight.shape[0] // size
    finally:
        divided.close_blocking()
    changed = set(divided.describe_blocking().fingerprint.items()) - set(whole.describe_blocking().fingerprint.items())
    assert changed == {("tensor_parallel", size)}


def test_a_part_that_ends_is_an_error_of_each_request(folders: dict[str, Path]) -> None:
    divided = HFBackend(folders["llama"], threads=1, tensor_parallel=2)
    scores(divided, REQUESTS)
    assert divided._ranks is not None
    divided._ranks._others[0].kill()
    answers = divided.run_blocking(REQUESTS)
    assert all(isinstance(answer, BackendError) for answer in answers), answers
    divided.close_blocking()
    assert len(scores(divided, REQUESTS[:1])) == 6, "a new group"
    second = HFBackend(folders["gemma2"], threads=1, tensor_parallel=2)
    (refused, *_) = second.run_blocking(REQUESTS)
    assert "divided model already" in str(refused)
    divided.close_blocking()


def test_an_abandoned_batch_ends_the_group(folders: dict[str, Path]) -> None:
    divided = HFBackend(folders["llama"], threads=1, tensor_parallel=2)
    usual = scores(divided, REQUESTS)

    def abandon(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        divided.run_blocking(REQUESTS, abandon)
    assert scores(divided, REQUESTS) == usual
    divided.close_blocking()


@pytest.mark.parametrize(("kind", "steps"), [("scores", 2), ("texts", 9)])
async def test_a_stop_ends_a_divided_batch_and_keeps_the_group(
    kind: str, steps: int, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch: list[Any] = [ScoreRequest(f"the man {i}", (" he", " she")) for i in range(40)]
    if kind == "texts":
        batch = [GenerateRequest(f"the man {i}", Sampling(max_tokens=3 * i + 1)) for i in range(4)]
    divided = HFBackend(folders["llama"], threads=1, tensor_parallel=2)
    usual = await divided.run(batch)
    assert divided._ranks is not None
    others, loaded = divided._ranks._others, divided.load()
    owner, name = (loaded.scorer, "logprobs_as_known") if kind == "scores" else (loaded.generator, "_advance")
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, stopping(divided, getattr(owner, name), [], steps))
        answers = await divided.run(batch)
    stopped = [isinstance(answer, StoppedError) for answer in answers]
    assert 0 < sum(stopped) < len(batch)
    assert all(answer == found for answer, found, late in zip(answers, usual, stopped, strict=True) if not late)
    assert await divided.run(batch) == usual
    assert divided._ranks._others is others, "the same processes"
    await divided.close()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tensor_parallel": 1}, "tensor_parallel"),
        ({"tensor_parallel": 2, "device_map": "auto"}, "device_map"),
        ({"tensor_parallel": 2, "device": "mps"}, "device"),
    ],
)
def test_divisions_that_do_not_fit_are_named(options: dict[str, Any], field: str, folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError) as error:
        HFBackend(folders["llama"], **options).check()
    assert error.value.field == field


def test_a_model_without_a_plan_starts_no_process(folders: dict[str, Path]) -> None:
    divided = HFBackend(folders["bloom"], tensor_parallel=2)
    with pytest.raises(ConfigError, match="no plan to divide 'bloom'"):
        divided.load()
    assert divided._ranks is None


def test_fused_heads_that_cannot_be_divided_are_refused() -> None:
    config = transformers.Phi3Config(num_attention_heads=4, num_key_value_heads=4)
    config.base_model_tp_plan = {"layers.*.self_attn.qkv_proj": "colwise"}
    assert plan(config, "model", 2) == {}
    with pytest.raises(ConfigError, match="4 attention heads cannot be divided"):
        plan(config, "model", 3)


@pytest.mark.models
def test_smollm2_in_two_processes_is_smollm2(tmp_path: Path) -> None:
    write_transformers_folder(smollm2_path(), tmp_path)
    whole, divided = HFBackend(tmp_path, threads=1), HFBackend(tmp_path, threads=1, tensor_parallel=2)
    try:
        assert scores(divided, REQUESTS) == pytest.approx(scores(whole, REQUESTS), abs=2e-4)
        assert texts(divided) == texts(whole)
    finally:
        divided.close_blocking()
