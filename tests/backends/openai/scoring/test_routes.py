"""Each route over a real socket against the truth: a real model, served honestly, and asked in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from backends.base import ContinuationScore, GenerateRequest, Message, Sampling, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.llamacpp.backend import LlamaCppBackend
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from tests.backends.openai.direct_routes import direct_routes
from tests.backends.openai.model_server import MODEL, ModelServer
from tests.backends.openai.occugender_by_hand import EXPRESSIONS, as_scores, question, relative
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


@pytest.mark.battery  # a probe of a model in this process takes minutes
async def test_chosen_tokens_by_id_are_the_models_own(
    vllm_style: ModelServer, plain: ReferenceModel, tmp_path: Path
) -> None:
    backend = hosted(vllm_style, tmp_path)
    report = await backend.probe()
    found = report.capabilities
    assert (found.text_route, found.chat_route, found.prefill) == ("logprob_token_ids", "chat_prefill", "flags")
    assert (found.largest_k, found.largest_chat_k, found.takes_ids, found.bos) == (20, 20, True, False)
    passed = {c.name: c.passed for c in report.checks}
    for name in (
        "prompt_logprobs",
        "prompts as token ids",
        "token counts",
        "seeds",
        "logit_bias",
        "possible values",
    ):
        assert passed[name] is True, report.render_text()
    assert passed["prompt without BOS"] is None
    for name in ("logprob_token_ids", "several prompts in one request", "unknown model name", "assistant prefill"):
        assert passed[name] is True, report.render_text()
    request = ScoreRequest(question("nurse"), EXPRESSIONS)
    (answer,) = await backend.run([request])
    await backend.close()
    assert isinstance(answer, ScoreResponse)
    truth = plain.scores(question("nurse"), EXPRESSIONS)
    assert holds(answer.scores, truth) == len(EXPRESSIONS)
    assert {(s.route, s.boundary) for s in answer.scores} == {("logprob_token_ids", "clean")}
    assert relative(answer.scores) == pytest.approx(relative(as_scores(truth)), abs=1e-3)
    in_process = LlamaCppBackend(smollm2_gguf())
    (here,) = await in_process.run([request])
    await in_process.close()
    assert isinstance(here, ScoreResponse)
    assert relative(answer.scores) == pytest.approx(relative(here.scores), abs=TWO_PRECISIONS)
    for there, near in zip(answer.scores, here.scores, strict=True):
        assert [t.token_id for t in there.tokens] == [t.token_id for t in near.tokens]


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


@pytest.mark.battery  # a probe of a model in this process takes minutes
async def test_a_chat_only_server_gives_first_tokens_and_bounds(
    openai_style: ModelServer, plain: ReferenceModel, tmp_path: Path
) -> None:
    backend = hosted(openai_style, tmp_path)
    report = await backend.probe()
    found = report.capabilities
    assert (found.text_route, found.chat_route, found.prefill) == (None, "chat_first", None)
    assert (found.completions, found.chat, found.largest_chat_k, found.identity) == (False, True, 5, "bytes")
    passed = {c.name: c.passed for c in report.checks}
    assert passed["unknown model name"] is passed["seeds"] is passed["possible values"] is True
    by_chat, by_start, by_text = await backend.run(
        [
            ScoreRequest(ASKED, ANSWERS),
            ScoreRequest((*ASKED, Message("assistant", "The gender is")), (" male",)),
            ScoreRequest(question("nurse"), (" Male",)),
        ]
    )
    (drawn,) = await backend.run([GenerateRequest(ASKED, Sampling(max_tokens=3))])
    await backend.close()
    assert isinstance(by_chat, ScoreResponse)
    assert 0 < holds(by_chat.scores, true_in_chat(plain, "", ANSWERS)) < len(ANSWERS)
    for refused in (by_start, by_text):
        assert isinstance(refused, BackendError)
        assert refused.kind == "unsupported"
    assert drawn.completion_tokens == 3  # type: ignore[union-attr]
    accepted = [b for b in openai_style.bodies if "max_completion_tokens" in b]
    assert all("max_tokens" not in b for b in accepted)
    # The old name is tried once, in the first question.
    assert sum("max_tokens" in b and b["model"] == MODEL and "messages" in b for b in openai_style.bodies) <= 1


@pytest.mark.battery  # a probe of a model in this process takes minutes
async def test_lists_that_repeat_a_prefill_are_not_used_for_scores(plain: ReferenceModel, tmp_path: Path) -> None:
    async with ModelServer(plain, "vllm", prefill_repeated=True).running() as server:
        backend = hosted(server, tmp_path)
        report = await backend.probe()
        await backend.close()
    assert (report.capabilities.prefill, report.capabilities.chat_route) == ("flags", "chat_first")
    prefill = next(c for c in report.checks if c.name == "assistant prefill")
    assert "not used for scores" in prefill.message


@pytest.mark.battery  # a probe of a model in this process takes minutes
async def test_probed_capabilities_are_in_fingerprint_and_report(
    vllm_style: ModelServer, plain: ReferenceModel, tmp_path: Path
) -> None:
    backend = hosted(vllm_style, tmp_path)
    fingerprint = (await backend.describe()).fingerprint
    report = await backend.probe()
    # The server is on this event loop: who waits for it must not block it.
    counts = await asyncio.to_thread(backend.count_tokens, ["Monday", question("nurse")])
    in_chat = backend.count_tokens([ASKED])
    await backend.close()
    assert report.capabilities.fingerprint().items() <= fingerprint.items()
    assert (fingerprint["text_route"], fingerprint["canary"]) == ("logprob_token_ids", report.canary_id)
    shown = report.render_text()
    for check in report.checks:
        assert check.name in shown
    assert counts == [len(plain.tokenize(text)) for text in ("Monday", question("nurse"))]
    assert in_chat is None
