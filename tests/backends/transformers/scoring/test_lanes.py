"""Two forward passes at the same time over the same weights: the numbers of one, and each text answered once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from backends import BackendError, HFBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.transformers.scoring.twin import make_twin
from tests.backends.local.tiny_models import GROUPED, save_model_of
from tests.backends.transformers.reference import TREE_FAMILIES, plain_model, scores

STEMS = (
    "The nurse said that",
    "The engineer met the teacher because",
    "In the evening",
    "He",
    "Nobody knew why the cook",
)
REQUESTS = [
    ScoreRequest(f"{stem} {name}{end}", (" he", " she was tired", " they", "s"))
    for stem in STEMS
    for name in ("Ann", "old Tom", "the doctor's friend")
    for end in ("", " ", " and")
]


def of_threads(folder: Path, threads: int, **options: Any) -> HFBackend:
    return HFBackend(folder, threads=threads, **options)


def lanes_of(backend: HFBackend) -> Any:
    return backend.load().scorer.lanes  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", sorted(TREE_FAMILIES))
def test_two_lanes_give_the_numbers_of_one(family: str, folders: dict[str, Path]) -> None:
    one, two = of_threads(folders[family], 1), of_threads(folders[family], 2)
    expected = scores(one, REQUESTS)
    assert len(lanes_of(one)) == 1
    assert scores(two, REQUESTS) == pytest.approx(expected, abs=1e-5)
    first, second = lanes_of(two)
    assert min(first._reader.tokens_computed, second._reader.tokens_computed) > 100
    assert first.tokens_computed == first._reader.tokens_computed + second._reader.tokens_computed
    assert torch.get_num_threads() == 2


def test_lanes_go_on_where_the_last_batch_ended(folders: dict[str, Path]) -> None:
    one, two = of_threads(folders["llama"], 1), of_threads(folders["llama"], 2)
    for batch in (REQUESTS[:9], REQUESTS[5:40], REQUESTS[-1:], REQUESTS):
        assert scores(two, batch) == pytest.approx(scores(one, batch), abs=1e-5)


def test_each_answer_is_told_once_and_in_its_place(folders: dict[str, Path]) -> None:
    told: list[tuple[int, Any]] = []
    answers = of_threads(folders["llama"], 2).run_blocking(REQUESTS, lambda at, answer: told.append((at, answer)))
    assert Counter(at for at, _ in told) == Counter(range(len(REQUESTS)))
    assert all(answers[at] is answer for at, answer in told)


def test_a_long_start_of_all_texts_is_read_once(folders: dict[str, Path]) -> None:
    start = "The river was cold and the town slept while it snowed. "
    requests = [ScoreRequest(f"{start}{name}", (" he", " she")) for name in ("Ann", "Tom", "Bo", "Kim", "Eve", "Jo")]
    read = []
    for threads in (1, 2):
        backend = of_threads(folders["llama"], threads)
        lanes, scorer = lanes_of(backend), backend.load().scorer
        before = scorer.tokens_computed  # type: ignore[attr-defined]
        found = scores(backend, requests)
        read.append((scorer.tokens_computed - before, found))  # type: ignore[attr-defined]
        assert len(lanes) == threads
    (one, expected), (two, values) = read
    assert values == pytest.approx(expected, abs=1e-5)
    assert two - one < 25, "the start has 55"


def test_lanes_read_texts_too_long_for_the_tree_in_rows(tmp_path: Path) -> None:
    """Llama 4's layers without RoPE count places along the row: texts beyond a step of theirs are read in rows."""
    folder = save_model_of(
        lambda v: transformers.Llama4TextConfig(
            **GROUPED, intermediate_size_mlp=48, vocab_size=v, num_local_experts=2, interleave_moe_layer_step=1,
            no_rope_layers=[0, 1, 0], attn_temperature_tuning=True, floor_scale=24, attn_scale=2.0,
        ),
        tmp_path,
    )  # fmt: skip
    lengths = [len(str(request.prompt)) for request in REQUESTS]
    assert min(lengths) < 20
    assert max(lengths) > 30
    one, two = of_threads(folder, 1), of_threads(folder, 2)
    expected = scores(one, REQUESTS)
    assert scores(two, REQUESTS) == pytest.approx(expected, abs=1e-5, rel=1e-6)  # some are -78: two digits of float32
    assert len(lanes_of(two)) == 2


class EndedError(BaseException):
    """As what ends a batch whose caller no longer waits."""


def test_what_ends_one_lane_ends_the_other(folders: dict[str, Path]) -> None:
    backend = of_threads(folders["llama"], 2)
    told = []

    def tell(at: int, answer: Any) -> None:
        told.append(at)
        raise EndedError

    with pytest.raises(EndedError):
        backend.run_blocking(REQUESTS, tell)
    assert len(told) <= 2, "one for each lane"
    assert torch.get_num_threads() == 2
    assert all(isinstance(answer, ScoreResponse) for answer in backend.run_blocking(REQUESTS))


def test_a_lane_takes_no_more_texts_once_another_has_ended(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, has_ended = of_threads(folders["llama"], 2), threading.Event()
    _, second = lanes_of(backend)
    logprobs = second.logprobs_as_known
    monkeypatch.setattr(second, "logprobs_as_known", lambda *given: (has_ended.wait(100), logprobs(*given))[1])
    told: Counter[bool] = Counter()

    def tell(at: int, answer: Any) -> None:
        is_second = threading.current_thread() is not threading.main_thread()
        told[is_second] += 1
        if not is_second:
            has_ended.set()
            raise EndedError

    requests = [ScoreRequest(f"{r.prompt} {i}", r.continuations) for r in REQUESTS for i in range(9)]
    with pytest.raises(EndedError):
        backend.run_blocking(requests, tell)
    assert told[False] == 1
    assert told[True] < len(requests) / 4, "it had half of them"


def test_a_text_without_room_beside_another_is_tried_alone(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = scores(of_threads(folders["llama"], 1), REQUESTS)
    backend = of_threads(folders["llama"], 2)
    _, second = lanes_of(backend)
    without_room: list[int] = []

    def fail(paths: Any, on_known: Any) -> Any:
        without_room.append(len(paths))
        return [BackendError("out_of_memory", "no room")] * len(paths)

    monkeypatch.setattr(second, "logprobs_as_known", fail)
    told: list[Any] = []
    answers = backend.run_blocking(REQUESTS, lambda at, answer: told.append(answer))
    assert without_room
    assert not [answer for answer in (*answers, *told) if isinstance(answer, BackendError)]
    assert len(told) == len(REQUESTS)
    assert scores(backend, REQUESTS) == pytest.approx(expected, abs=1e-5)


def test_one_odd_text_fails_alone_in_its_lane(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = of_threads(folders["llama"], 2)
    for lane in lanes_of(backend):
        logprobs = lane.logprobs_as_known
        odd = tuple(backend.load().encoder.render("Nobody knew why the cook Ann"))

        def fail(paths: Any, on_known: Any, logprobs: Any = logprobs, odd: Any = odd) -> Any:
            if any(path.tokens[: len(odd)] == odd for path in paths):
                raise RuntimeError("odd")
            return logprobs(paths, on_known)

        monkeypatch.setattr(lane, "logprobs_as_known", fail)
    answers = backend.run_blocking(REQUESTS)
    failed = [
        request.prompt for request, answer in zip(REQUESTS, answers, strict=True) if not hasattr(answer, "scores")
    ]
    assert failed == [r.prompt for r in REQUESTS if str(r.prompt).startswith("Nobody knew why the cook Ann")]


def test_a_twin_shares_weights_and_nothing_else(folders: dict[str, Path]) -> None:
    model, _ = plain_model(folders["llama"])
    model.set_attn_implementation("sdpa")
    twin = make_twin(model)
    for own, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert own is other
    assert not {id(module) for module in model.modules()} & {id(module) for module in twin.modules()}
    assert model.config is not twin.config
    twin.set_attn_implementation("eager")
    assert model.config._attn_implementation == "sdpa"
    pairs = zip(model.buffers(), twin.buffers(), strict=True)
    assert all(own.data_ptr() != other.data_ptr() for own, other in pairs)


class Stubborn:
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot be copied")


def test_a_model_that_is_not_the_same_in_two_has_no_twin(folders: dict[str, Path]) -> None:
    hooked, _ = plain_model(folders["llama"])
    hooked.model.layers[0].register_forward_hook(lambda *_: None)
    patched, _ = plain_model(folders["llama"])
    patched.model.norm.forward = patched.model.norm.forward
    stubborn, _ = plain_model(folders["llama"])
    stubborn.held = Stubborn()
    counting, _ = plain_model(folders["llama"])
    calls = Counter[str]()

    class Counts(torch.nn.Module):
        """Answers otherwise each time, in whichever object it is called."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls["all"] += 1
            return x * calls["all"]

    counting.model.norm = Counts()
    assert [make_twin(model) for model in (hooked, patched, stubborn, counting)] == [None] * 4


_PLACES: dict[str, Any] = {}


class SharedRotary(LlamaRotaryEmbedding):  # type: ignore[misc]
    """As some code that comes with a model: what a pass works out is kept beside the model, for its layers."""

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        _PLACES["now"] = super().forward(x, position_ids)
        return _PLACES["now"]


class SharedAttention(LlamaAttention):  # type: ignore[misc]
    def forward(self, hidden_states: torch.Tensor, position_embeddings: Any = None, **given: Any) -> Any:
        return super().forward(hidden_states, position_embeddings=_PLACES["now"], **given)


def test_code_that_came_with_a_model_runs_in_one_lane(folders: dict[str, Path]) -> None:
    """What it keeps outside of its model is one for both, and no trial shows when two passes meet there."""
    model, _ = plain_model(folders["llama"])
    model.model.rotary_emb = SharedRotary(model.config)
    for at, layer in enumerate(model.model.layers):
        shared = SharedAttention(model.config, at)
        shared.load_state_dict(layer.self_attn.state_dict())
        layer.self_attn = shared.eval()
    assert make_twin(model) is None


def test_numbers_are_true_where_there_is_no_twin(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scores(of_threads(folders["llama"], 2), REQUESTS)
    monkeypatch.setattr("backends.transformers.scoring.scorer.make_twin", lambda model: None)
    backend = of_threads(folders["llama"], 2)
    assert scores(backend, REQUESTS) == pytest.approx(expected, abs=1e-5)
    assert len(lanes_of(backend)) == 1
    assert np.isfinite(expected).all()
