"""A service as a page on `backends.http`, and what the contract says of a careless one."""

from __future__ import annotations

from typing import Any

import pytest

from backends.base import (
    ContinuationScore,
    Description,
    GenerateRequest,
    GenerateResponse,
    Request,
    Response,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError
from backends.http.backend import HttpBackend
from backends.http.options import HttpOptions
from tests.backends.http.contract import keeps_the_contract
from tests.backends.openai.raw_server import RawServer, Reply


class Service(RawServer):
    """A service of its own kind: ``/v1/score`` gives the value of one word."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path == "/v1/write":
            return Reply({"said": "She is.", "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
        value = {" Male": -1.2, " Female": -0.9}[sent["word"]]
        return Reply({"value": value, "usage": {"prompt_tokens": 9, "completion_tokens": 0}})


class OwnBackend(HttpBackend):
    """The whole of a backend for it."""

    with_tokens = True

    async def describe(self) -> Description:
        return Description({"backend": "own", "model": self.model}, frozenset(("score", "generate")))

    async def answer(self, request: Request) -> Response:
        if isinstance(request, GenerateRequest):
            if request.sampling.top_k:
                raise BackendError("unsupported", "the service takes no top_k")
            reply = await self.post("write", {"prompt": request.prompt, "max_tokens": request.sampling.max_tokens})
            return GenerateResponse(reply["said"], "stop")
        assert isinstance(request, ScoreRequest)
        return ScoreResponse(tuple([await self._score(str(request.prompt), c) for c in request.continuations]))

    async def _score(self, prompt: str, text: str) -> ContinuationScore:
        value = (await self.post("score", {"prompt": prompt, "text": prompt, "word": text}))["value"]
        if self.with_tokens:
            return ContinuationScore.exact([TokenLogprob(text, 0, len(text), value)])
        return ContinuationScore(value, value, value)


@pytest.mark.parametrize("with_tokens", [True, False])
async def test_a_service_is_a_page_and_a_score_without_tokens_is_caught(with_tokens: bool) -> None:
    async with Service().running() as server:
        backend = OwnBackend(
            HttpOptions(base_url=server.base_url, model="own", prices={"prompt": 1.0, "completion": 1.0})
        )
        backend.with_tokens = with_tokens
        if with_tokens:
            await keeps_the_contract(backend, "Picture a nurse:", (" Male", " Female"))
            assert backend.spent() == pytest.approx(backend.usage.prompt_tokens / 1e6 + 3e-6)
        else:
            with pytest.raises(AssertionError, match="without its tokens"):
                await keeps_the_contract(backend, "Picture a nurse:", (" Male", " Female"))
