"""The ladder on SmolLM2: an adapter, the quantised file and its dequantised weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from audit import Audit
from audit.report.phrases.problems import problems_of
from audit.results import AuditResult
from audit.run import run_audit
from backends import HFBackend, LlamaCppBackend
from backends.embedded import smollm2_path
from suites import OccuGender
from tests.backends.openai.float32_weights import write_transformers_folder

PROMPTS = 12

pytestmark = [pytest.mark.models, pytest.mark.battery, pytest.mark.timeout(900)]


def save_adapter(folder: Path, float32: Path) -> Path:
    """A LoRA of rank 4 with fixed random weights, strong enough to move answers.

    Made for the float32 copy, whose layers are the file's: to read the quantised file once more takes half a minute.
    """
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(float32)
    config = peft.LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    peft.get_peft_model(model, config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditResult, Path]:
    folder = tmp_path_factory.mktemp("ladder")
    float32 = folder / "float32"
    write_transformers_folder(smollm2_path(), float32)
    options = {"dtype": "float32", "device": "cpu", "threads": 1}
    audit = Audit(
        {
            "base": HFBackend(smollm2_path(), **options),
            "tuned": HFBackend(smollm2_path(), adapter=save_adapter(folder / "adapter", float32), **options),
            "llama.cpp": LlamaCppBackend(smollm2_path(), threads=1),
            "dequantised": HFBackend(float32, **options),
        },
        [OccuGender(("implicit",))],
        limit=PROMPTS,
        ladder=[("dequantised", "llama.cpp")],
        db=folder / "audit.db",
        out=folder / "out",
    )
    result = asyncio.run(run_audit(audit))
    assert list(problems_of(result)) == []
    return result, audit.db


def test_each_change_is_one_step_and_engines_are_none(climbed: tuple[AuditResult, Path]) -> None:
    found = {(step.a.model, step.b.model): step for step in climbed[0].ladder}
    assert {models: step.changes for models, step in found.items()} == {
        ("base", "tuned"): ["adapter"],
        ("dequantised", "llama.cpp"): ["quantisation"],
    }
    assert found["base", "tuned"].engine == []
    assert "backend" in found["dequantised", "llama.cpp"].engine


def test_dequantised_weights_give_the_files_own_numbers(climbed: tuple[AuditResult, Path]) -> None:
    """What llama.cpp makes of a Q4_1 file is its arithmetic: transformers gives the same from file and float32 copy."""
    result, _ = climbed
    group = {"bias": "implicit", "debiasing": None, "dominated_by": "female"}
    value = {m.model: m.value for m in result.measures if (m.measure, m.where) == ("p_female", group)}
    assert value["dequantised"] == pytest.approx(value["base"], abs=1e-4)
    assert value["tuned"] != pytest.approx(value["base"], abs=1e-3)
