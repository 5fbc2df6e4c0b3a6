"""A server that answers nothing: the message says whether address, version, model or key is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import AnthropicBackend
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from tests.backends.openai.lying_server import MODEL as LISTED
from tests.backends.openai.lying_server import Liar
from tests.backends.openai.raw_server import RawServer, Reply
from tests.backends.openai.strict_server import (
    DEPRECATED,
    MODEL,
    O_SERIES,
    THINKING,
    Manner,
    StrictServer,
    refusal,
    varied,
)


class Chats(StrictServer):
    """Lists its model, and shows a web page outside of ``/v1``, as the sites of providers do."""

    page = False

    def __init__(self) -> None:
        super().__init__(DEPRECATED, varied)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if self.page and not path.startswith("/v1/"):
            return Reply(None, raw=b"<!DOCTYPE html><html>Welcome</html>")
        if path == "/v1/models":
            return Reply({"object": "list", "data": [{"id": MODEL}, {"id": "another-2"}]})
        return super().reply(path, sent)


async def refusal_of(backend: OpenAIBackend) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await backend.describe()
    await backend.close()
    return caught.value


def backend_at(url: str, folder: Path, model: str = MODEL, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(url, model=model, api_key_env=None, probe_folder=folder, **options)


async def test_a_model_that_is_not_listed_is_named_with_the_listed(tmp_path: Path) -> None:
    async with Chats().running() as server:
        error = await refusal_of(backend_at(server.base_url, tmp_path, "strict-one"))
    assert error.message == "the server lists no model 'strict-one'"
    assert MODEL in error.hint


async def test_a_wrong_model_of_chats_is_no_missing_route(tmp_path: Path) -> None:
    async with StrictServer(DEPRECATED, varied).running() as server:
        error = await refusal_of(backend_at(server.base_url, tmp_path, "strict-one"))
    assert "The model 'strict-one' does not exist" in error.message


async def test_a_web_page_in_place_of_an_answer_leads_to_v1(tmp_path: Path, waits: list[float]) -> None:
    async with Chats().running() as server:
        server.page = True
        url = server.base_url.removesuffix("/v1")
        error = await refusal_of(backend_at(url, tmp_path))
    assert f"Set base_url to {url}/v1" in error.hint


class OwnApi(Liar):
    """As llama.cpp's server: at the root an API of its own for texts."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path == "/completions":
            return Reply({"content": " Male", "tokens_evaluated": 3})
        if path == "/v1/chat/completions":
            return refusal(400, "no template")
        return super().reply(path, sent)


async def test_another_api_at_the_root_leads_to_v1(tmp_path: Path, waits: list[float]) -> None:
    async with OwnApi().running() as server:
        url = server.base_url.removesuffix("/v1")
        error = await refusal_of(backend_at(url, tmp_path, LISTED))
    assert f"Set base_url to {url}/v1" in error.hint


class Azure(RawServer):
    """A deployment's older address, which needs a version."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if "api-version=" not in path:
            return Reply({"error": {"code": "404", "message": "Resource not found"}}, 404)
        return Reply({"error": {"code": "BadRequest", "message": "API version not supported"}}, 400)


async def test_azures_version_is_asked_for_where_it_is_missing(tmp_path: Path) -> None:
    async with Azure().running() as server:
        url = server.base_url.replace("/v1", "/openai/deployments/mine")
        without = await refusal_of(backend_at(url, tmp_path))
        wrong = await refusal_of(backend_at(url, tmp_path, query={"api-version": "2020-01-01"}))
    assert 'query={"api-version"' in without.hint
    assert "API version not supported" in wrong.message
    assert "/v1" not in wrong.hint


class Messages(RawServer):
    """Anthropic's API, without the model that is asked for."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        kind, message = "not_found_error", f"model: {sent.get('model')}" if path == "/v1/messages" else "Not Found"
        if path == "/v1/messages" and sent["model"] == MODEL:
            body = {"content": [{"type": "text", "text": "yes"}], "stop_reason": "end_turn"}
            return Reply({"id": "m", "model": MODEL, **body, "usage": {"input_tokens": 1, "output_tokens": 1}})
        return Reply({"type": "error", "error": {"type": kind, "message": message}}, 404)


async def test_anthropics_refusals_keep_their_reason(tmp_path: Path) -> None:
    async with Messages().running() as server:
        url, options = server.base_url, {"api_key_env": None, "probe_folder": tmp_path}
        wrong = await refusal_of(AnthropicBackend("claude-x", base_url=url, **options))
        without = await refusal_of(AnthropicBackend(MODEL, base_url=url.removesuffix("/v1"), **options))
    assert "model: claude-x" in wrong.message
    assert f"Set base_url to {url}" in without.hint


class Locked(StrictServer):
    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return refusal(401, "Incorrect API key provided")


async def test_a_refused_key_is_told_by_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", "key-of-nobody")
    monkeypatch.delenv("TEST_NO_KEY", raising=False)
    async with Locked(DEPRECATED, varied).running() as server:
        options: dict[str, Any] = {"model": MODEL, "probe_folder": tmp_path}
        wrong = await refusal_of(OpenAIBackend(server.base_url, api_key_env="TEST_AUDIT_KEY", **options))
        none = await refusal_of(OpenAIBackend(server.base_url, api_key_env="TEST_NO_KEY", **options))
    assert "Check the key in TEST_AUDIT_KEY (api_key_env)" in wrong.hint
    assert "TEST_NO_KEY is not set" in none.message
    assert "--api-key-env" in none.hint


@pytest.mark.parametrize("manner", [THINKING, O_SERIES])
async def test_draws_that_end_in_a_thought_name_the_option(manner: Manner, tmp_path: Path) -> None:
    async with StrictServer(manner, varied).running() as server:
        backend = backend_at(server.base_url, tmp_path, samples=4, reasoning_tokens=5)
        description = await backend.describe()
        await backend.close()
    assert "score" not in description.capabilities, "no audit begins whose every answer would be missing"
    assert "raise reasoning_tokens" in description.absent["score"]
