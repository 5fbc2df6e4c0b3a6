"""The suites' figures on real weights, against a plain computation written out here."""

import math
from pathlib import Path

import pytest

from backends import HFBackend
from backends.base import ScoreResponse
from backends.embedded import smollm2_path
from suites import DebiasingPositions, OccuGender, from_file

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples" / "suites"
pytestmark = pytest.mark.models

FEW = [
    {"occupation": "nurse", "female_share": 0.913},
    {"occupation": "electrician", "female_share": 0.017},
]
WANTED = {
    OccuGender: ("explicit-13/electrician", "implicit-02/nurse", "implicit-13/electrician"),
    DebiasingPositions: ("with_dialogue/3/task-4/electrician", "repeated/placebo-2/task-2/nurse"),
}


class Plain:
    """log P(continuation | prompt), one forward pass for each continuation, nothing shared."""

    def __init__(self, dtype):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(2)
        path = smollm2_path()
        self._tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        self._model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype).eval()

    def ids(self, text):
        return self._tokenizer(text)["input_ids"]

    def __call__(self, prompt, continuation):
        import torch

        encoded = self._tokenizer(prompt + continuation, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        assert encoded["offset_mapping"][-1][1] == len(prompt + continuation)
        with torch.no_grad():
            logits = self._model(torch.tensor([ids])).logits[0].log_softmax(-1)
        total = 0.0
        for position, (_, end) in enumerate(encoded["offset_mapping"]):
            if end > len(prompt):
                total += logits[position - 1, ids[position]].item()
        return total


@pytest.fixture(scope="module")
def plain():
    return Plain("float64")


@pytest.fixture(scope="module")
def rounding(plain):
    """How far a plain float32 pass is from float64 here, in nats: the most of some continuations, four times over."""
    single = Plain("float32")
    prompts = [item.request for item in OccuGender(occupations=FEW).items() if item.id in WANTED[OccuGender]]
    pairs = [(request.prompt, word) for request in prompts for word in request.continuations]
    return 4 * max(abs(single(*pair) - plain(*pair)) for pair in pairs[::5])


@pytest.fixture(scope="module")
def backend():
    return HFBackend(smollm2_path(), dtype="float32", threads=2)


@pytest.mark.parametrize("suite_class", [OccuGender, DebiasingPositions])
async def test_group_probabilities_equal_a_plain_computation(suite_class, plain, rounding, backend):
    suite = suite_class(occupations=FEW)
    items = [i for i in suite.items() if i.id in WANTED[suite_class]]
    assert len(items) == len(WANTED[suite_class])
    answers = await backend.run([i.request for i in items])
    for item, answer in zip(items, answers, strict=True):
        assert isinstance(answer, ScoreResponse), answer
        row = suite.read(item, answer)
        mass = {"male": 0.0, "female": 0.0, "diverse": 0.0}
        for continuation in item.request.continuations:
            group = next(g for g, words in GROUP_OF.items() if continuation.strip().lower() in words)
            mass[group] += math.exp(plain(item.request.prompt, continuation))
        total = sum(mass.values())
        for group, p in mass.items():
            assert row.values[f"p_{group}"].value == pytest.approx(p / total, abs=rounding), (item.id, group)
        assert row.values["coverage"].value == pytest.approx(total, abs=rounding)
        lean = (mass["female"] - mass["male"]) / total
        expected = lean if item.factors["dominated_by"] == "female" else -lean
        assert row.values["stereotype_gap"].value == pytest.approx(expected, abs=rounding)


GROUP_OF = {
    "male": {"male", "man", "he", "him"},
    "female": {"female", "woman", "she", "her"},
    "diverse": {
        *("neutral", "nonbinary", "non-binary", "they", "them", "genderless", "non conforming", "nonconforming"),
        *("gender neutral", "gender-neutral", "genderfluid"),
    },
}


@pytest.mark.parametrize("language", ["spanish", "german", "chinese", "arabic"])
async def test_examples_of_languages_equal_a_plain_computation(language, plain, rounding, backend):
    """Where a token starts between prompt and word; a word's tokens that begin another's are counted with that."""
    suite = from_file(EXAMPLES / f"{language}.toml")
    items = [item for item in suite.items() if not item.is_control][::12]
    compared = 0
    for item, answer in zip(items, await backend.run([item.request for item in items]), strict=True):
        prompt, words = item.request.prompt, item.request.continuations
        ids = {word: plain.ids(prompt + word) for word in words}
        if any(found[: len(plain.ids(prompt))] != plain.ids(prompt) for found in ids.values()):
            continue
        p = {word: math.exp(plain(prompt, word)) for word in words}
        own = {
            word: p[word]
            - sum(p[o] for o in words if len(ids[o]) > len(ids[word]) and ids[o][: len(ids[word])] == ids[word])
            for word in words
        }
        row, compared = suite.read(item, answer), compared + 1
        of_groups = {group: f"p_{group}" for group in suite.groups.names}
        for (group, name), word in zip(of_groups.items(), words, strict=True):
            assert row.values[name].value == pytest.approx(own[word] / sum(own.values()), abs=rounding), (
                item.id,
                group,
            )
        assert row.values["coverage"].value == pytest.approx(sum(own.values()), rel=1e-3)
    assert compared >= 2, f"{compared} of {len(items)} prompts end where a token ends"
