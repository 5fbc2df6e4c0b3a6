"""The server's counts of tokens against those of the model's own tokenizer: no request is sent for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from backends.base import ScoreRequest
from backends.errors import ConfigError
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.server import MODEL, WordServer
from tests.backends.openai.lies.trial import ask_directly, questions, told


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the word model's tokenizer."""
    words = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = Split(Regex(r" ?[A-Za-z]+| ?[0-9]+|[^A-Za-z0-9]"), "isolated")
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return str(folder)


async def asked(lie: str, own: str | None, folder: Path) -> tuple[str, int]:
    """What the checks of a run say at its end, and how many requests it took."""
    async with WordServer("lists", 0, told(lie, 0)).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, tokenizer=own)
        ask_directly(backend, server)
        for request in questions("lists", 12):
            await backend.run([ScoreRequest(request.prompt, request.continuations)])
        await backend.verify_identity()
        await backend.close()
        return (backend.unverified_reason if backend.unverified_since else ""), server.requests


@pytest.mark.parametrize("lie", ["honest", "hidden system prompt"])
async def test_a_text_before_every_prompt_is_counted(lie: str, own: str, tmp_path: Path) -> None:
    alone, requests = await asked(lie, None, tmp_path / "alone")
    found, counted = await asked(lie, own, tmp_path / "counted")
    assert not alone, "nothing else sees it"
    assert ("a text is added, or prompts are rewritten" in found) is (lie != "honest"), found
    assert counted <= requests, "no request is sent for it"


async def test_a_tokenizer_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer = 'no/such'"):
        await asked("honest", "no/such", tmp_path)
