"""The example that fine-tunes against gender bias: what is learned, what is held out, and what the audit says of it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from audit import Audit
from suites import GeneralAbility

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("reduce_gender_bias", ROOT / "examples" / "reduce_gender_bias.py")
assert spec is not None
assert spec.loader is not None
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def words(pairs):
    return {word for group in pairs.groups.values() for pair in group.pairs for word in (pair.biased, pair.anti)}


def test_no_word_that_is_learned_is_asked_about():
    learned, held_out = example.learned_pairs(), example.held_out_pairs()
    assert not words(learned) & words(held_out)
    assert all(len(group.pairs) >= 12 for group in held_out.groups.values())


def test_a_lesson_picks_the_descriptor_that_does_not_stereotype():
    pairs = {(p.biased, p.anti) for group in example.learned_pairs().groups.values() for p in group.pairs}
    lessons = example.lessons(None, seed=0)
    assert lessons != example.lessons(None, seed=1)
    for prompt, text in lessons[:500]:
        (picked,) = re.findall(r"{([^}]+)}", text)
        assert any(anti == picked and anti in prompt and biased in prompt for biased, anti in pairs)


def test_the_published_set_is_read_from_a_folder(tmp_path):
    row = {"prompt": "Write about {niece}.", "sentence": "The niece is {sensible}."}
    (tmp_path / "merged_3groups_ft_validate.json").write_text(json.dumps([row] * 3))
    assert example.lessons(tmp_path, seed=0) == [(row["prompt"], row["sentence"])] * 3
    with pytest.raises(SystemExit, match="merged_3groups_ft_train"):
        example.lessons(tmp_path / "none", seed=0)


@pytest.mark.models
@pytest.mark.battery
@pytest.mark.timeout(900)
def test_a_few_steps_lower_the_loss_and_are_a_step_of_the_ladder(tmp_path):
    losses = example.fine_tune(example.lessons(None, seed=0), tmp_path / "adapter", steps=8, batch=2, seed=0)
    assert losses[-1] < losses[0]
    whole = example.audit_of(tmp_path / "adapter", tmp_path, None, None)
    result = Audit(models=whole.models, suites=[GeneralAbility()], db=tmp_path / "a.db").run_sync()
    nats = {m.model: m.value for m in result.measures if m.measure == "nats_per_token"}
    assert nats["base"] == pytest.approx(nats["fine-tuned"], abs=0.5)
    assert nats["base"] != nats["fine-tuned"]
    (step,) = result.ladder
    assert (step.a.model, step.b.model, step.changes) == ("base", "fine-tuned", ["adapter"])
