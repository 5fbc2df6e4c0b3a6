"""The battery over architectures, for a few that stand for the ways a model can be asked."""

from __future__ import annotations

import pytest

from tests.backends.transformers.architectures import configs, examined, summary

#: Architecture → how it is scored, and how it writes.
FEW = {
    "llama": ("tree", "many at once"),
    "gpt_oss": ("batch", "many at once"),
    "bart": ("batch", "one at a time: its log-probabilities change"),
    "mamba": ("", "one at a time: a layer"),
    "jamba": ("", "one at a time: a layer"),
    "rwkv": ("", "one at a time"),
}


@pytest.mark.parametrize("kind", FEW)
def test_scores_and_texts_are_those_of_plain_passes(kind: str) -> None:
    _, config = next(configs([kind]))
    found = examined(config)
    assert (found["scores"], found["texts"]) == ("true", "true"), found
    assert found["route"].startswith(FEW[kind][0])
    assert found["way"].startswith(FEW[kind][1])


def test_a_model_that_reads_how_much_follows_is_refused() -> None:
    """Its attention keeps the tokens of highest index, chosen anew for each length of the text."""
    _, config = next(configs(["hy_v4"]))
    assert "this model sees later tokens" in examined(config)["scores"]


@pytest.mark.battery
@pytest.mark.timeout(3600)
def test_every_architecture_scores_and_writes_truly() -> None:
    found = [{"kind": kind, **examined(config)} for kind, config in configs()]
    made = [one for one in found if "unmade" not in one]
    scored = [one for one in made if one["scores"] == "true"]
    assert not [one for one in made if one["scores"].startswith(("wrong", "crash"))], summary(found)
    assert not [one for one in made if one["texts"].startswith(("wrong", "crash"))], summary(found)
    assert sum(one["texts"] == "true" for one in scored) >= 0.95 * len(scored), summary(found)
