"""Two lanes that take turns with one model, as on a GPU: the numbers of one, one pass at a time.

There is no GPU in the tests: the CPU's models are told to take turns here.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from backends import BackendError, HFBackend
from backends.transformers.scoring import scorer
from backends.transformers.scoring.scorer import SequenceScorer
from tests.backends.transformers.reference import TREE_FAMILIES, scores
from tests.backends.transformers.scoring.test_lanes import REQUESTS, lanes_of, of_threads


@pytest.fixture
def takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceScorer, "_takes_turns", True)


def in_turns(folder: Path) -> HFBackend:
    return of_threads(folder, 1)


@pytest.mark.parametrize("family", sorted(TREE_FAMILIES))
def test_lanes_in_turns_give_the_numbers_of_one(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = scores(of_threads(folders[family], 1), REQUESTS)
    monkeypatch.setattr(SequenceScorer, "_takes_turns", True)
    backend = in_turns(folders[family])
    assert scores(backend, REQUESTS) == pytest.approx(expected, abs=1e-5)
    first, second = lanes_of(backend)
    assert first._reader.model is second._reader.model
    assert min(first._reader.tokens_computed, second._reader.tokens_computed) > 100


@pytest.mark.usefixtures("takes_turns")
def test_one_pass_at_a_time(folders: dict[str, Path]) -> None:
    backend = in_turns(folders["llama"])
    model = backend.load().model
    lanes_of(backend)  # its trial too has two threads
    inside, most, threads = Counter[str](), [0], set()
    forward = model.model.forward

    def counted(*given: Any, **options: Any) -> Any:
        inside["now"] += 1
        most[0] = max(most[0], inside["now"])
        threads.add(threading.get_ident())
        try:
            return forward(*given, **options)
        finally:
            inside["now"] -= 1

    model.model.forward = counted
    backend.run_blocking(REQUESTS)
    assert most == [1]
    assert len(threads) == 2


@pytest.mark.usefixtures("takes_turns")
def test_the_model_is_left_as_it_was(folders: dict[str, Path]) -> None:
    backend = in_turns(folders["llama"])
    model = backend.load().model
    before, hooks = model.config._attn_implementation, len(model.lm_head._forward_pre_hooks)
    backend.run_blocking(REQUESTS)
    assert len(lanes_of(backend)) == 2
    assert (model.config._attn_implementation, len(model.lm_head._forward_pre_hooks)) == (before, hooks)
    assert torch.get_num_threads() == 1


@pytest.mark.usefixtures("takes_turns")
def test_a_pass_that_fails_gives_the_other_lane_its_turn(folders: dict[str, Path]) -> None:
    backend = in_turns(folders["llama"])
    model, odd = backend.load().model, backend.load().encoder.render("Nobody")[-1]
    lanes_of(backend)
    forward = model.model.forward

    def fail(input_ids: torch.Tensor, **options: Any) -> Any:
        if (input_ids == odd).any():
            raise RuntimeError("odd")
        return forward(input_ids, **options)

    model.model.forward = fail
    answers = backend.run_blocking(REQUESTS)
    failed = [r.prompt for r, a in zip(REQUESTS, answers, strict=True) if isinstance(a, BackendError)]
    assert failed == [r.prompt for r in REQUESTS if str(r.prompt).startswith("Nobody")]


@pytest.mark.usefixtures("takes_turns")
def test_a_part_of_a_divided_model_has_one_lane(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts take the same passes in the same order; which thread's turn it is differs between them."""
    monkeypatch.setattr(scorer, "is_divided", lambda: True)
    assert len(lanes_of(in_turns(folders["llama"]))) == 1


@pytest.mark.usefixtures("takes_turns")
def test_a_model_that_answers_otherwise_each_time_has_one_lane(folders: dict[str, Path]) -> None:
    backend = in_turns(folders["llama"])
    model, calls = backend.load().model, Counter[str]()
    forward = model.model.norm.forward

    def moved(hidden: torch.Tensor) -> torch.Tensor:
        calls["all"] += 1
        answer: torch.Tensor = forward(hidden) * (1 + 0.1 * calls["all"])
        return answer

    model.model.norm.forward = moved
    assert len(lanes_of(backend)) == 1
