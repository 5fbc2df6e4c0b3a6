"""Answers that are told before a pass has computed all of them: the same numbers, few at a time, each once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from backends import BackendError, HFBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.transformers.backend import PACK_TOKENS
from backends.transformers.scoring import scorer as scorers
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.tree import MOST_TOGETHER
from tests.backends.transformers.reference import plain_model, scores
from tests.backends.transformers.scoring.test_lanes import REQUESTS

IDS = torch.tensor([[5, 7, 11, 13, 17, 19]])
PLACES = torch.tensor([0, 2, 3, 5])
CHUNK = 16


def reader(model: Any) -> LogitReader:
    return LogitReader(model, lambda start: None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt_neox", "gemma3"])
def test_parts_of_the_logits_are_the_whole_ones(family: str, folders: dict[str, Path]) -> None:
    found = reader(plain_model(folders[family])[0])
    assert found.gives_parts
    parts = list(found.logits_in_parts(IDS, None, None, PLACES, [1, 3, 4]))
    assert [len(part) for part in parts] == [1, 2, 1]
    assert torch.allclose(torch.cat(parts), found.logits(IDS, None, None, PLACES), atol=1e-5)


@pytest.mark.parametrize("factor", [0.5, 1.00001])  # the trial of its parts alone would take the second for rounding
def test_logits_that_are_changed_after_the_head_are_whole(factor: float, folders: dict[str, Path]) -> None:
    """Here capped; and multiplied in place, which leaves them where the head has put them."""
    assert not reader(plain_model(folders["gemma2"])[0]).gives_parts
    model, _ = plain_model(folders["llama"])
    forward = model.forward

    def scaled(*given: Any, **options: Any) -> Any:
        out = forward(*given, **options)
        out.logits.mul_(factor)
        return out

    model.forward = scaled
    assert not reader(model).gives_parts


def test_a_head_that_others_have_a_part_in_is_not_split(folders: dict[str, Path]) -> None:
    model, _ = plain_model(folders["llama"])
    model.lm_head.register_forward_hook(lambda _, given, found: found)
    assert not reader(model).gives_parts


class Watched:
    """A backend whose answers and output head's products are written down in their order."""

    def __init__(self, folder: Path) -> None:
        self.backend = HFBackend(folder, threads=1)
        self.events: list[Any] = []
        self.scorer: Any = self.backend.load().scorer
        self.scorer._reader._head.register_forward_hook(lambda *_: self.events.append("head"))

    def run(self, requests: list[ScoreRequest]) -> list[Any]:
        return self.backend.run_blocking(requests, lambda at, answer: self.events.append((at, answer)))


def test_no_more_than_eight_answers_are_computed_untold(folders: dict[str, Path]) -> None:
    """A pass is of sixteen requests; between two products of its head the answers of the first are told."""
    watched = Watched(folders["llama"])
    assert watched.scorer.pack_tokens // 64 == CHUNK > MOST_TOGETHER
    answers = watched.run(REQUESTS[:CHUNK])
    runs, told = [0], {}
    for event in watched.events:
        if event == "head":
            runs.append(0)
        else:
            runs[-1] += 1
            told[event[0]] = event[1]
    assert runs == [0, 8, 8]
    assert sorted(told) == list(range(CHUNK))
    assert all(answers[at] is answer for at, answer in told.items())


def test_a_pass_of_a_large_model_is_no_larger(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take many seconds, in which a run does not end."""
    monkeypatch.setattr(scorers, "SMALL_MODEL", 1000)
    assert HFBackend(folders["llama"], threads=1).load().scorer.pack_tokens == PACK_TOKENS["cpu"]


def test_answers_told_early_are_those_of_a_request_alone(folders: dict[str, Path]) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    alone = [value for request in REQUESTS for value in scores(backend, [request])]
    assert scores(backend, REQUESTS) == pytest.approx(alone, abs=1e-5)


def test_a_request_that_fails_is_not_told_early(folders: dict[str, Path]) -> None:
    """One is spoilt in the first part of a pass: it alone fails, told once, and after those that are sound."""
    watched = Watched(folders["llama"])
    usual = watched.run(REQUESTS[:CHUNK])
    odd = ScoreRequest("The nurse said that Ann~", (" he", " she"))
    (token,) = set(watched.backend.load().encoder.encode(["~"], chat=False)[0])
    with torch.no_grad():
        watched.scorer._reader.model.get_input_embeddings().weight[token] = math.nan
    watched.scorer.forget()
    watched.events.clear()
    answers = watched.run([odd, *REQUESTS[:CHUNK]])
    assert isinstance(answers[0], BackendError)
    for answer, expected in zip(answers[1:], usual, strict=True):
        assert isinstance(answer, ScoreResponse)
        assert [s.logprob for s in answer.scores] == pytest.approx([s.logprob for s in expected.scores], abs=1e-5)
    told = [event[0] for event in watched.events if event != "head"]
    assert sorted(told) == list(range(CHUNK + 1))


def test_memory_that_ends_in_a_later_part_repeats_the_pass(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(folders["llama"])
    usual = watched.run(REQUESTS[:CHUNK])
    watched.scorer.forget()
    watched.events.clear()
    head, calls = watched.scorer._reader._head, []
    forward = head.forward

    def short(hidden: torch.Tensor) -> Any:
        calls.append(hidden.shape)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(hidden)

    monkeypatch.setattr(head, "forward", short)
    answers = watched.run(REQUESTS[:CHUNK])
    assert len(calls) > 3
    for answer, expected in zip(answers, usual, strict=True):
        assert [s.logprob for s in answer.scores] == pytest.approx([s.logprob for s in expected.scores], abs=1e-5)
    told = [event[0] for event in watched.events if event != "head"]
    assert sorted(told) == list(range(CHUNK)), "each once, though some were computed twice"
