"""The battery over architectures, for a few that stand for the ways a model can be asked."""

from __future__ import annotations

import itertools

import pytest

from tests.backends.transformers.architectures import configs, examined, shortcomings, summary

#: Architecture → how it is scored, and how it writes.
FEW = {
    "llama": ("tree", "many at once"),
    "gpt_oss": ("tree", "many at once"),
    "gemma4": ("tree", "many at once"),
    "llama4_text": ("tree", "many at once"),
    "mistral": ("tree", "many at once"),
    "qwen3": ("tree", "many at once"),
    "opt": ("tree", "many at once"),
    "falcon": ("tree", "many at once"),
    "bart": ("tree", "many at once, of prompts of equal length"),
    "gpt_neo": ("rows", "many at once"),
    "mpt": ("rows", "many at once"),
    "mamba": ("", "many at once"),
    "jamba": ("", "many at once"),
    "openai-gpt": ("rows", "many at once"),
    "rwkv": ("", "one at a time"),
}


@pytest.mark.parametrize("kind", FEW)
def test_scores_and_texts_are_those_of_plain_passes(kind: str) -> None:
    _, config = next(configs([kind]))
    found = examined(config)
    assert (found["scores"], found["texts"]) == ("true", "true"), found
    assert found["route"].startswith(FEW[kind][0])
    assert found["way"].startswith(FEW[kind][1])


#: Multimodal architecture → how its text decoder is scored.
MULTIMODAL = {"gemma3": "tree", "llava": "tree", "qwen2_5_omni": "tree", "unlimited_ocr": "rows"}


@pytest.mark.parametrize("kind", MULTIMODAL)
def test_a_text_decoder_answers_as_the_whole_model(kind: str) -> None:
    _, config = next(itertools.chain(configs([kind]), configs([kind], multimodal=True)))
    found = examined(config)
    assert (found["scores"], found["texts"]) == ("true", "true"), found
    assert found["route"].startswith(MULTIMODAL[kind])
    assert kind in found["decoder"]


def test_a_cache_of_the_models_own_kind_is_not_used() -> None:
    """It keeps a prompt and a window: right for as long as a trial lasts."""
    _, config = next(configs(["unlimited_ocr"], multimodal=True))
    assert "each read anew" in examined(config)["way"]


def test_texts_beyond_a_choice_of_tokens_are_not_read() -> None:
    """Its attention keeps the tokens of highest index, chosen anew for each length of the text."""
    _, config = next(configs(["hy_v4"]))
    assert "beyond 48 tokens what else is read decides ties" in examined(config)["route"]


@pytest.mark.parametrize(("kind", "said"), [("cpmant", "sees later tokens"), ("prophetnet", "gives logits of shape")])
def test_a_model_that_the_trial_cannot_read_is_refused_by_name(kind: str, said: str) -> None:
    _, config = next(configs([kind]))
    assert said in examined(config)["scores"]


@pytest.mark.battery
@pytest.mark.timeout(3600)
def test_every_architecture_scores_and_writes_truly() -> None:
    found = [{"kind": kind, **examined(config)} for kind, config in [*configs(), *configs(multimodal=True)]]
    assert not shortcomings(found), summary(found)
