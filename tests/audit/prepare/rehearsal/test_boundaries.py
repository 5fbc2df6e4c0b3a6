"""How prompts and continuations meet in a model's tokens, told before the model is asked."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from audit.prepare.boundaries import check_boundaries
from audit.report.phrases.planning import boundary_lines
from backends import FakeBackend, HFBackend, LlamaCppBackend
from backends.base import ScoreRequest
from backends.embedded import smollm2_path
from backends.errors import BackendError, ConfigError
from suites.base import Item

ITEMS = [
    Item("clean", ScoreRequest("The nurse said that", (" she", " he")), {}),
    Item("straddled", ScoreRequest("The nurse said that ", ("she", "he")), {}),
]


class Told(FakeBackend):
    """A backend whose tokenizer answers as planted."""

    def boundaries(self, requests):
        return [("clean", "straddled"), BackendError("unsupported", "it rewrites the text", hint="write it so")]


def test_a_question_that_cannot_be_scored_is_a_mistake():
    found = check_boundaries("m", Told(), "s", ITEMS)
    assert found.counts == Counter(clean=1, straddled=1)
    (mistake,) = found.mistakes()
    assert mistake.field == "s on m"
    assert str(mistake) == "s on m = 'straddled': no answer: it rewrites the text. write it so."
    told = list(boundary_lines([found]))
    assert told[0] == "s on m: of 2 continuations 1 begin with a token of their own, 1 share a token with the prompt."
    assert "'The nurse said that| he'" in told[1]
    assert "Questions in which other continuations do not: 1." in told[2]


def test_a_tokenizer_that_cannot_be_loaded_is_told(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}), "utf-8")
    with pytest.raises(ConfigError, match=r"model"):
        check_boundaries("m", HFBackend(tmp_path), "s", ITEMS)


@pytest.mark.models
@pytest.mark.parametrize("backend", [LlamaCppBackend, HFBackend])
def test_real_tokenizers_are_asked_without_their_weights(backend):
    model = backend(smollm2_path())
    found = check_boundaries("m", model, "s", ITEMS)
    assert found.counts == Counter(clean=2, straddled=2)
    assert found.straddled.endswith("said that |she")
    assert model._loaded is None
