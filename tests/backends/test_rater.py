"""A language model as a text classifier: what it is asked, and how its answer becomes labels."""

import asyncio
import json
import math

import pytest

from backends import ConfigError, FakeBackend, LLMRater, Rubric
from backends.base import (
    ANSWER_MASS,
    BackendError,
    ClassifyRequest,
    ContinuationScore,
    GenerateRequest,
    Message,
    ScoreRequest,
    ScoreResponse,
)

RUBRIC = Rubric.of(
    {
        "question": "Text: {text}\nRude?",
        "answers": {"rude": "yes", "polite": "no"},
        "examples": [{"text": "Get lost.", "label": "rude"}],
    }
)


class Recording(FakeBackend):
    """A fake that keeps what it was asked."""

    async def run(self, batch):
        self.requests = list(batch)
        return await super().run(batch)


def rate(rater, *texts):
    return asyncio.run(rater.run([ClassifyRequest(text) for text in texts]))


def test_a_label_is_its_answers_share_of_all_answers():
    model = Recording(score=lambda prompt, said: {" yes": 0.3, " no": 0.1}[said])
    (answer,) = rate(LLMRater(model, RUBRIC), "You {fool}.")
    assert answer.labels == pytest.approx({"rude": 0.75, "polite": 0.25, ANSWER_MASS: 0.4})
    asked = "Text: Get lost.\nRude?\nAnswer: yes\n\nText: You {fool}.\nRude?\nAnswer:"
    assert model.requests == [ScoreRequest(asked, (" yes", " no"))]


def test_a_chat_ends_with_the_start_of_the_answer():
    model = Recording()
    rate(LLMRater(model, RUBRIC, prompt_format="chat"), "Hi")
    assert model.requests[0].prompt[-2:] == (Message("user", "Text: Hi\nRude?"), Message("assistant", "Answer:"))


@pytest.mark.parametrize(
    ("written", "label"),
    [
        (" yes", "rude"),
        (" No.", "polite"),
        ("No, it is not.", None),
        ("**Yes**", "rude"),
        (" nobody", None),
        ("", None),
        ("?", None),
        ("yes or no", None),
        ("yes/no", None),
        ("Yes, no doubt", None),
    ],
)
def test_a_written_answer_is_a_label_if_it_says_nothing_else(written, label):
    model = Recording(generate=lambda prompt, seed: written)
    (answer,) = rate(LLMRater(model, RUBRIC, answer="text"), "Hi")
    assert isinstance(model.requests[0], GenerateRequest)
    if label is None:
        assert (answer.kind, answer.retryable) == ("malformed", False)
    else:
        assert answer.labels == {name: float(name == label) for name in ("rude", "polite")}


def test_an_answer_that_is_only_bounded_is_no_label():
    class Bounded(FakeBackend):
        async def run(self, batch):
            score = ContinuationScore(None, None, math.log(0.1), "bounded")
            return [ScoreResponse((score, score)) for _ in batch]

    (answer,) = rate(LLMRater(Bounded(), RUBRIC), "Hi")
    assert isinstance(answer, BackendError)
    assert 'answer="text"' in answer.hint


def test_rubric_answer_and_model_are_in_the_fingerprint():
    def fingerprint(*args, **options):
        return dict(asyncio.run(LLMRater(*args, **options).describe()).fingerprint)

    assert "reading_version" not in fingerprint(FakeBackend(), RUBRIC)
    assert fingerprint(FakeBackend(), RUBRIC, answer="text")["reading_version"] == 3
    other = Rubric.of({**RUBRIC.model_dump(), "question": "{text} Rude?"})
    found = [
        fingerprint(FakeBackend("a"), RUBRIC),
        fingerprint(FakeBackend("b"), RUBRIC),
        fingerprint(FakeBackend("a"), other),
        fingerprint(FakeBackend("a"), RUBRIC, answer="text"),
        fingerprint(FakeBackend("a"), RUBRIC, prompt_format="chat"),
    ]
    assert len({json.dumps(one, sort_keys=True) for one in found}) == 5
    assert fingerprint(FakeBackend("a"), RUBRIC) == found[0]


def test_a_model_that_cannot_answer_so_is_refused_by_name():
    class Writer(FakeBackend):
        async def describe(self):
            inner = await super().describe()
            return type(inner)(inner.fingerprint, frozenset({"generate"}))

    with pytest.raises(ConfigError, match="cannot score"):
        asyncio.run(LLMRater(Writer(), RUBRIC).describe())
    assert asyncio.run(LLMRater(Writer(), RUBRIC, answer="text").describe()).capabilities == {"classify"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"question": "Rude?"}, "question"),
        ({"question": "{text} {text}"}, "question"),
        ({"answers": {"rude": "yes"}}, "answers"),
        ({"answers": {"rude": "yes", "polite": "Yes "}}, "answers"),
        ({"examples": [{"text": "a", "label": "odd"}]}, "examples"),
        ({"rubrik": ""}, "rubrik"),
    ],
)
def test_a_rubric_that_is_none_is_refused_by_field(tmp_path, change, field):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**RUBRIC.model_dump(), **change}))
    with pytest.raises(ConfigError) as caught:
        LLMRater(FakeBackend(), path)
    assert caught.value.field.startswith(f"rubric.{field}")
