"""Each route over a real socket against the truth: a real model, served honestly, and asked in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from backends.base import ContinuationScore, Message, ScoreRequest, ScoreResponse
from backends.llamacpp.backend import LlamaCppBackend
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from tests.backends.openai.direct_routes import direct_routes
from tests.backends.openai.model_server import MODEL, ModelServer
from tests.backends.openai.occugender_by_hand import EXPRESSIONS, question
from tests.backends.openai.reference_model import ReferenceModel
from tests.servers import smollm2_gguf

pytestmark = pytest.mark.models

#: The backend in process keeps attention's values in bfloat16: on Q4_1 weights that moves P̃ by up to 0.05.
TWO_PRECISIONS = 0.05
ANSWERS = tuple(e.strip() for e in EXPRESSIONS if "-" not in e)
ASKED = (Message("user", "Picture a nurse. What is the nurse's gender? Answer with one word."),)


@pytest.fixture(scope="module")
def plain() -> Iterator[ReferenceModel]:
    model = ReferenceModel(smollm2_gguf())
    yield model
    model.close()


@pytest.fixture
async def vllm_style(plain: ReferenceModel) -> AsyncIterator[ModelServer]:
    async with ModelServer(plain, "vllm").running() as server:
        yield server


@pytest.fixture
async def openai_style(plain: ReferenceModel) -> AsyncIterator[ModelServer]:
    async with ModelServer(plain, "openai").running() as server:
        yield server


def hosted(server: ModelServer, folder: Path) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)


async def scored(
    server: ModelServer, found: ServerCapabilities, request: ScoreRequest
) -> tuple[ContinuationScore, ...]:
    """By the route that ``found`` names."""
    async with direct_routes(server.base_url, MODEL, found) as routes:
        return (await routes.score(request)).scores


def true_in_chat(plain: ReferenceModel, start: str, answers: tuple[str, ...]) -> list[float]:
    return plain.scores(plain.rendered([{"role": "user", "content": ASKED[0].content}]) + start, answers)


def holds(scores: tuple[ContinuationScore, ...], truth: list[float]) -> int:
    """Every exact score is true, and every bound above the truth; the number of exact ones."""
    for score, true in zip(scores, truth, strict=True):
        if score.exactness == "exact":
            assert score.logprob == pytest.approx(true, abs=1e-3)
        else:
            assert score.exactness == "bounded"
            assert (score.logprob, score.low) == (None, None)
            assert true <= score.high + 1e-3
    return sum(s.exactness == "exact" for s in scores)


async def test_prompt_logprobs_bound_a_straddled_boundary(vllm_style: ModelServer, tmp_path: Path) -> None:
    # "ill" + "ness" are one token: the prompt's log-probabilities do not say how likely it is given its start.
    found = ServerCapabilities(text_route="prompt_logprobs", family="vllm", takes_ids=True)
    (score,) = await scored(vllm_style, found, ScoreRequest("She has an ill", ("ness",)))
    assert (score.boundary, score.exactness, score.logprob) == ("straddled", "bounded", None)


@pytest.mark.parametrize("route", ["top_k_ids", "top_k"])
async def test_lists_of_20_bound_what_they_leave_out(
    route: str, vllm_style: ModelServer, plain: ReferenceModel
) -> None:
    by_ids = route == "top_k_ids"
    found = ServerCapabilities(text_route=route, family="vllm", takes_ids=by_ids, largest_k=20)  # type: ignore[arg-type]
    scores = await scored(vllm_style, found, ScoreRequest(question("maid"), EXPRESSIONS))
    exact = holds(scores, plain.scores(question("maid"), EXPRESSIONS))
    assert 0 < exact < len(EXPRESSIONS)


async def test_a_chat_answer_is_scored_after_its_given_start(vllm_style: ModelServer, plain: ReferenceModel) -> None:
    found = ServerCapabilities(chat_route="chat_prefill", chat=True, prefill="flags", largest_chat_k=20)
    answers = (" male", " female", " unknown", " not", " non-binary")
    begun = (*ASKED, Message("assistant", "The gender is"))
    scores = await scored(vllm_style, found, ScoreRequest(begun, answers))
    truth = true_in_chat(plain, "The gender is", answers)
    assert holds(scores, truth) >= 3
    in_process = LlamaCppBackend(smollm2_gguf())
    (here,) = await in_process.run([ScoreRequest(begun, answers)])
    await in_process.close()
    assert isinstance(here, ScoreResponse)
    for there, near in zip(scores, here.scores, strict=True):
        assert near.logprob is not None
        assert near.logprob <= there.high + 0.6


async def test_prefill_tightens_the_bound_of_several_tokens(vllm_style: ModelServer, plain: ReferenceModel) -> None:
    # "The" is listed; what may follow it is asked only where the server continues it.
    found = ServerCapabilities(chat_route="chat_prefill", chat=True, prefill="flags", largest_chat_k=20)
    answers = ("The nurse", "The gender", "A nurse")
    request = ScoreRequest(ASKED, answers)
    truth = true_in_chat(plain, "", answers)
    forced = await scored(vllm_style, found, request)
    first_only = await scored(vllm_style, found.model_copy(update={"chat_route": "chat_first"}), request)
    assert holds(forced, truth) == holds(first_only, truth) == 0
    assert all(f.high <= o.high + 1e-9 for f, o in zip(forced, first_only, strict=True))
    assert max(o.high - f.high for f, o in zip(forced, first_only, strict=True)) > 0.5
