"""A server whose texts stay the same while its chats are asked in another way is another model in chats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.base import Message, ScoreRequest
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from tests.backends.openai.lying_server import MODEL, ChatLiar, Liar
from tests.backends.openai.raw_server import Reply

ASKED = ScoreRequest((Message("user", "Question?"),), ("Male", "Female"))


class TextsAndChats(ChatLiar):
    """Answers texts and chats, both with lists. ``weights`` stands for its chat template: texts do not see it."""

    def __init__(self) -> None:
        super().__init__()
        self._texts = Liar()

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return self._texts.reply(path, sent) if path == "/v1/completions" else super().reply(path, sent)


def backend_of(server: TextsAndChats, folder: Path, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, **options)


async def test_another_chat_template_is_another_model(tmp_path: Path) -> None:
    async with TextsAndChats().running() as server:
        first = backend_of(server, tmp_path)
        before = (await first.describe()).fingerprint
        await first.close()
        again = backend_of(server, tmp_path)
        assert (await again.describe()).fingerprint == before
        await again.close()
        server.weights = "other"
        other = backend_of(server, tmp_path)
        after = (await other.describe()).fingerprint
        await other.close()
    assert before["text_route"] is not None
    assert before["chat_route"] == "chat_first"
    assert after["canary"] != before["canary"]


async def test_a_template_that_changes_in_a_run_is_noticed(tmp_path: Path) -> None:
    async with TextsAndChats().running() as server:
        backend = backend_of(server, tmp_path)
        await backend.run([ASKED])
        server.weights = "other"
        await backend.run([ASKED])
        await backend.verify_identity()
        await backend.close()
    assert backend.unverified_since is not None


async def test_a_replica_of_another_chat_template_is_refused(tmp_path: Path) -> None:
    async with TextsAndChats().running() as one, TextsAndChats().running() as other:
        other.weights = "other"
        backend = OpenAIBackend(
            urls=[one.base_url, other.base_url], model=MODEL, api_key_env=None, probe_folder=tmp_path
        )
        with pytest.raises(BackendError, match="does not serve the same model"):
            await backend.describe()
        await backend.close()
