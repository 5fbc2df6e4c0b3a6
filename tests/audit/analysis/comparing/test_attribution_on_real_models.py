"""The ladder on SmolLM2: an adapter, the quantised file and its dequantised weights, raw and chat."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from audit import Audit
from audit.report.exports.markdown import markdown_report
from audit.report.figures import Figures
from audit.report.phrases import summary
from audit.report.phrases.checks.problems import problems_of
from audit.results import AttributionStep, AuditResult
from audit.run import run_audit
from audit.store import Store
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
        {"raw": OccuGender(("implicit",)), "chat": OccuGender(("implicit",), prompt_format="chat")},
        limit=PROMPTS,
        ladder=[("dequantised", "llama.cpp")],
        db=folder / "audit.db",
        out=folder / "out",
    )
    result = asyncio.run(run_audit(audit))
    assert list(problems_of(result)) == []
    return result, audit.db


def steps(result: AuditResult) -> dict[tuple[str, str, str, str], AttributionStep]:
    return {(s.a.model, s.a.suite, s.b.model, s.b.suite): s for s in result.ladder}


def test_each_change_is_one_step_and_engines_are_none(climbed: tuple[AuditResult, Path]) -> None:
    result, _ = climbed
    found = steps(result)
    assert {(a, b): s.changes for (a, of_a, b, of_b), s in found.items() if of_a == of_b == "raw"} == {
        ("base", "tuned"): ["adapter"],
        ("dequantised", "llama.cpp"): ["quantisation"],
    }
    assert {a for a, of_a, b, of_b in found if (of_a, of_b) == ("raw", "chat") and a == b} == {
        model.name for model in result.models
    }
    assert found["base", "raw", "tuned", "raw"].engine == []
    assert "backend" in found["dequantised", "raw", "llama.cpp", "raw"].engine
    # One GGUF file on two engines is the same model; the same file and an adapter is not.
    assert {(drift.a, drift.b) for drift in result.drift} == {("base", "llama.cpp")}


def test_the_steps_are_those_of_the_stored_rows(climbed: tuple[AuditResult, Path]) -> None:
    result, db = climbed
    with Store.open(db, read_only=True) as store:
        rows = partial(store.runs.read_rows, result.run_id)
        of = {
            # Rows over templates hold no p_female: they are no answers.
            (m.name, s.name): {r.row.item_id: r.row for r in rows(m.name, s.name) if "p_female" in r.row.values}
            for m in result.models
            for s in result.suites
        }
    for (a, of_a, b, of_b), step in steps(result).items():
        ours, theirs = of[a, of_a], of[b, of_b]
        changes = {i: theirs[i].values["p_female"].value - ours[i].values["p_female"].value for i in ours}  # type: ignore[operator]
        assert len(changes) == PROMPTS
        assert {i.item: i.quantities["p_female"] for i in step.items} == pytest.approx(changes, abs=1e-12)
        of_groups = [c for c in step.comparisons if c.measure == "p_female"]
        assert len(of_groups) == 2
        for c in of_groups:
            own = [changes[i] for i, row in ours.items() if row.factors["dominated_by"] == c.where["dominated_by"]]
            assert c.difference == pytest.approx(sum(own) / len(own), abs=1e-12)


def test_dequantised_weights_give_the_files_own_numbers(climbed: tuple[AuditResult, Path]) -> None:
    """What llama.cpp makes of a Q4_1 file is its arithmetic: transformers gives the same from file and float32 copy."""
    result, _ = climbed
    group = {"bias": "implicit", "debiasing": None, "dominated_by": "female"}
    value = {m.model: m.value for m in result.measures if (m.suite, m.measure, m.where) == ("raw", "p_female", group)}
    assert value["dequantised"] == pytest.approx(value["base"], abs=1e-4)
    assert value["tuned"] != pytest.approx(value["base"], abs=1e-3)


def test_first_screen_calls_no_adapter_noise_or_same_weights(climbed: tuple[AuditResult, Path]) -> None:
    result, _ = climbed
    said = [sentence.text for sentence in summary(Figures(result))]
    of_adapter = [text for text in said if "tuned" in text]
    assert any("base → tuned (adapter)" in text for text in of_adapter)
    assert any("raw → chat (prompt format)" in text for text in said)
    assert not [text for text in of_adapter if "noise" in text or "same weights" in text or "same model" in text]
    assert "base → tuned (adapter)" in markdown_report(result)
