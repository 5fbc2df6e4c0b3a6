"""Every suite on every kind of provider: audited end to end if its access allows, or refused for the true reason."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import suites
from audit import Audit
from backends import AnthropicBackend
from backends.base import Backend
from backends.errors import ConfigError
from backends.openai import OpenAIBackend
from suites.base import Suite
from tests.backends.anthropic.test_backend import MODEL as CLAUDE
from tests.backends.anthropic.test_backend import MessagesServer
from tests.backends.openai.clouds import AIStudio, Bedrock, Together, token_of, unequal
from tests.backends.openai.raw_server import RawServer, backend_of
from tests.backends.openai.strict_server import (
    O_SERIES,
    Manner,
    StrictServer,
    varied,
)
from tests.backends.openai.test_gateway import PINNED, Gateway
from tests.suites.benchmarks.invented import use

#: A provider, while it runs: makes a backend whose probe is kept in a folder.
Provider = Callable[[Path, pytest.MonkeyPatch], AbstractAsyncContextManager[Backend]]
_ITEMS, _DRAWS = 8, 4
_TWO = [{"occupation": "nurse", "female_share": 0.9}, {"occupation": "plumber", "female_share": 0.04}]
#: What chats allow: suites whose answers are counted, and suites that read texts.
IN_CHATS: Mapping[str, Mapping[str, Any]] = {
    "OccuGender": {"bias": ("explicit",), "prompt_format": "chat"},
    "MGBR": {"n": 3, "conditions": ("zero-shot",), "mode": "generation", "prompt_format": "chat"},
    "GenderPair": {"prompt_format": "chat", "fallback": "none"},
    "BOLD": {"prompt_format": "chat"},
}
#: Suites that begin the model's answer, all or some of it, which most providers do not continue.
WITH_A_START: Mapping[str, Mapping[str, Any]] = {
    "BBQ": {"mode": "generation"},
    "BiasNLI": {},
    "DebiasingPositions": {"occupations": _TWO, "positions": ("without_dialogue",), "placebo": False},
    "OccuGender": {"bias": ("implicit",)},
}


def suite_of(name: str, **options: Any) -> Suite:
    return getattr(suites, name)(**(options or IN_CHATS.get(name, {})))  # type: ignore[no-any-return]


def answers(question: str) -> Mapping[str, float]:
    """Of a model that answers each question, whichever it is asked."""
    if begun := re.search('Begin your answer with "(.*)"', question):
        words = ("(a)", "(b)", "(c)") if "(a)" in question else ("female", "male", "I cannot say")
        return {f"{begun[1]} {word}": share for word, share in zip(words, (0.5, 0.4, 0.1), strict=True)}
    if "gender" in question.lower():
        return {"Female": 0.5, "Male": 0.4, "Who knows": 0.1}
    if "How many" in question:
        return {"Answer: 1": 0.4, "Answer: 2": 0.4, "Answer: 3": 0.2}
    if "(a)" in question:
        return {"(a)": 0.4, "(b)": 0.4, "(c)": 0.2}
    return varied(question)


def audit_of(asked: Sequence[Suite], backend: Backend, folder: Path, limit: int = _ITEMS) -> Audit:
    """A small audit by these suites."""
    return Audit(
        models={"m": backend},
        suites=asked,
        limit=limit,
        small_sample=True,
        db=folder / "audit.db",
        out=folder / "out",
    )


@contextlib.asynccontextmanager
async def _served(server: RawServer, make: Callable[[], Backend]) -> AsyncIterator[Backend]:
    async with server.running():  # type: ignore[attr-defined]
        yield make()


def _strict(manner: Manner) -> Provider:
    def provider(folder: Path, _: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Backend]:
        server = StrictServer(manner, answers)
        return _served(server, lambda: backend_of(server, folder, samples=_DRAWS))

    return provider


def _gateway(folder: Path, _: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Backend]:
    server = Gateway()
    return _served(server, lambda: backend_of(server, folder, samples=_DRAWS, extra_body=PINNED))


def _claude(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Backend]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")
    server = MessagesServer()
    known = {"base_url": "", "probe_folder": folder, "samples": _DRAWS}
    return _served(server, lambda: AnthropicBackend(CLAUDE, **{**known, "base_url": server.base_url}))


def _bedrock(folder: Path, _: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Backend]:
    server = Bedrock(answers)
    return _served(server, lambda: backend_of(server, folder, samples=_DRAWS, token=lambda: token_of(server.clock, 3)))


def _compatible(kind: type[StrictServer]) -> Provider:
    def provider(folder: Path, _: pytest.MonkeyPatch) -> AbstractAsyncContextManager[Backend]:
        server = kind(unequal(answers))  # type: ignore[call-arg, arg-type]
        return _served(server, lambda: backend_of(server, folder, samples=_DRAWS))

    return provider


PROVIDERS: Mapping[str, Provider] = {
    "o-series": _strict(O_SERIES),
    "pinned gateway": _gateway,
    "Anthropic": _claude,
    "Bedrock": _bedrock,
    "AI Studio": _compatible(AIStudio),
    "Together": _compatible(Together),
}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_chats_allow_is_audited_whole(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, _folder(tmp_path, "data"))
    async with PROVIDERS[provider](_folder(tmp_path, "probes"), monkeypatch) as backend:
        result = await audit_of([*map(suite_of, IN_CHATS)], backend, tmp_path).run()
    assert result.complete, result.problems()
    assert result.models[0].failed == 0
    measured = {one.suite for one in result.measures if one.value is not None or one.low is not None}
    unread = {"MGBR"} if provider in ("pinned gateway", "Anthropic") else set()  # these answer with words
    assert measured == set(IN_CHATS) - unread


@pytest.mark.parametrize("name", [*WITH_A_START, "GenderPair"])
async def test_a_start_that_is_not_continued_is_refused_before(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, _folder(tmp_path, "data"))
    suite = suite_of(name, **WITH_A_START.get(name, {}), prompt_format="chat")
    async with PROVIDERS["o-series"](_folder(tmp_path, "probes"), monkeypatch) as backend:
        assert isinstance(backend, OpenAIBackend)
        await backend.probe()
        asked = backend.usage.requests
        with pytest.raises(ConfigError, match="does not continue an assistant prefill") as refused:
            await audit_of([suite], backend, tmp_path).run()
        assert backend.usage.requests == asked
    asked_otherwise = 'fallback="none"' if name == "GenderPair" else 'prompt_format="chat_whole"'
    assert asked_otherwise in str(refused.value)


@pytest.mark.parametrize("name", WITH_A_START)
async def test_a_start_that_is_asked_for_is_audited_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, _folder(tmp_path, "data"))
    suite = suite_of(name, **WITH_A_START[name], prompt_format="chat_whole")
    async with PROVIDERS["o-series"](_folder(tmp_path, "probes"), monkeypatch) as backend:
        result = await audit_of([suite], backend, tmp_path, limit=5 * _ITEMS).run()
    assert result.complete, result.problems()
    assert result.models[0].failed == 0


async def test_where_chats_alone_are_scored_the_first_refusal_names_a_form_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PROVIDERS["o-series"](_folder(tmp_path, "probes"), monkeypatch) as backend:
        with pytest.raises(ConfigError, match=r'in chats alone\. Give suites\.OccuGender prompt_format="chat_whole"'):
            await audit_of([suites.OccuGender()], backend, tmp_path).run()


async def test_what_no_chat_shows_is_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probability of a whole sentence."""
    use(monkeypatch, _folder(tmp_path, "data"))
    async with PROVIDERS["o-series"](_folder(tmp_path, "probes"), monkeypatch) as backend:
        with pytest.raises(ConfigError, match=r"cannot do what suites\..* asks: score_alone"):
            await audit_of([suites.CrowSPairs()], backend, tmp_path).run()


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder
