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


def published(folder, rows):
    (folder / "merged_3groups_ft_validate.json").write_text(json.dumps(rows))
    return folder


@pytest.mark.parametrize("set_of", ["built-in", "published"])
def test_no_word_that_is_learned_is_asked_about(tmp_path, set_of):
    row = {"prompt": "Write about {lawyer, nurse}.", "sentence": "The Nurse is {gentle}."}
    learned = example.lessons(None if set_of == "built-in" else published(tmp_path, [row]), seed=0)
    held_out = words(example.held_out_pairs(learned))
    texts = " ".join(text for lesson in learned for text in lesson).casefold()
    assert not [word for word in held_out if re.search(rf"\b{re.escape(word.casefold())}\b", texts)]
    assert all(len(group.pairs) >= 12 for group in example.held_out_pairs(learned).groups.values())


def test_a_lesson_picks_the_descriptor_that_does_not_stereotype():
    pairs = {(p.biased, p.anti) for group in example.learned_pairs().groups.values() for p in group.pairs}
    lessons = example.lessons(None, seed=0)
    assert lessons != example.lessons(None, seed=1)
    for prompt, text in lessons[:500]:
        (picked,) = re.findall(r"{([^}]+)}", text)
        assert any(anti == picked and anti in prompt and biased in prompt for biased, anti in pairs)


def test_the_published_set_is_read_from_a_folder(tmp_path):
    row = {"prompt": "Write about {niece}.", "sentence": "The niece is {sensible}."}
    assert example.lessons(published(tmp_path, [row] * 3), seed=0) == [(row["prompt"], row["sentence"])] * 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--data", "none"], "no such folder"),
        (["--data", "."], "contains none of merged_3groups_ft_train.json"),
        (["--data", "cut"], "not a JSON list of objects with prompt and sentence (JSONDecodeError"),
        (["--data", "other"], "KeyError: 'prompt'"),
        (["--questions", "none.jsonl"], "No such file"),
        (["--steps", "0"], "give 1 or more"),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(tmp_path, monkeypatch, capsys, given, said):
    monkeypatch.chdir(tmp_path)
    for folder, text in (("cut", '[{"prompt"'), ("other", '[{"text": 1}]')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "merged_3groups_ft_validate.json").write_text(text)
    monkeypatch.setattr(example, "fine_tune", lambda *args, **options: pytest.fail("trained"))
    monkeypatch.setattr("sys.argv", ["reduce_gender_bias.py", *given])
    with pytest.raises(SystemExit) as stopped:
        example.main()
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.models
@pytest.mark.battery
def test_a_few_steps_lower_the_loss_and_are_a_step_of_the_ladder(tmp_path):
    learned = example.lessons(None, seed=0)
    losses = example.fine_tune(learned, tmp_path / "adapter", steps=8, batch=2, seed=0)
    assert losses[-1] < losses[0]
    whole = example.audit_of(tmp_path / "adapter", example.suites_of(learned, None), tmp_path, None)
    result = Audit(models=whole.models, suites=[GeneralAbility()], db=tmp_path / "a.db").run_sync()
    nats = {m.model: m.value for m in result.measures if m.measure == "nats_per_token"}
    assert nats["base"] == pytest.approx(nats["fine-tuned"], abs=0.5)
    assert nats["base"] != nats["fine-tuned"]
    (step,) = result.ladder
    assert (step.a.model, step.b.model, step.changes) == ("base", "fine-tuned", ["adapter"])
