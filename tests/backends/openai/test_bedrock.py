"""Bedrock: tokens that end in mid-run, and thoughts in the content; nothing is lost or misread."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from backends.base import Answer, GenerateRequest, GenerateResponse, Message, Sampling
from backends.errors import BackendError, ConfigError
from backends.openai import OpenAIBackend
from tests.backends.openai.clouds import BEDROCK_MODEL, Bedrock, token_of


def _female(question: str) -> dict[str, float]:
    return {"Female": 1.0}


def backend_of(server: Bedrock, folder: Path, token: Any, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=BEDROCK_MODEL, token=token, probe_folder=folder, **options)


async def answered(backend: OpenAIBackend, n: int) -> list[Answer]:
    asked = [GenerateRequest((Message("user", f"Question {i}?"),), Sampling(max_tokens=16)) for i in range(n)]
    return [(await backend.run([request]))[0] for request in asked]


async def test_each_passage_of_the_thought_is_cut_off(tmp_path: Path) -> None:
    async with Bedrock(_female).running() as server:
        backend = backend_of(server, tmp_path, lambda: token_of(time.time, 600))
        await backend.describe()
        (answer,) = await answered(backend, 1)
        server.thought_tokens = 5000
        (cut,) = await backend.run([GenerateRequest((Message("user", "Another?"),), Sampling(max_tokens=16))])
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer
    assert answer.text == "Female"
    assert answer.thought.count("<reasoning>") == 2
    assert isinstance(cut, BackendError)
    assert "thought" in cut.message


@pytest.mark.parametrize("token", [None, "bedrock-api-key-of-another"])
async def test_a_source_without_a_valid_token_ends_the_look(
    token: str | None, tmp_path: Path, waits: list[float]
) -> None:
    def source() -> str:
        if token is None:
            raise OSError("secret-of-the-account")
        return token

    async with Bedrock(_female).running() as server:
        backend = backend_of(server, tmp_path, source)
        with pytest.raises(BackendError) as caught:
            await backend.describe()
        await backend.close()
    assert caught.value.kind == "auth"
    assert "secret" not in str(caught.value)
    assert server.requests <= 6
    assert not waits


@pytest.mark.parametrize("name", ["no.such.module:f", "json:no_such", "json"])
def test_a_function_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match="module:function"):
        OpenAIBackend("https://h/v1", model="m", token=name).check()
