"""Honest servers with the oddities of real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tests.backends.openai.lies.server import HONEST, LONGEST, Asked, Lie, Listed, Style, WordServer, refusal
from tests.backends.openai.raw_server import Reply


def _lists(reply: Reply) -> Iterator[tuple[Any, list[Any]]]:
    """Each list of a reply, as (where it is, its entries)."""
    for choice in reply.body.get("choices", []):
        logprobs = choice.get("logprobs") or {}
        for one in logprobs.get("content") or []:
            yield one, one["top_logprobs"]
        for top in logprobs.get("top_logprobs") or []:
            if top:
                yield top, list(top.items())


def _each_value(change: Callable[[float], float]) -> Callable[[Reply, Asked], None]:
    def says(reply: Reply, asked: Asked) -> None:
        for one, entries in _lists(reply):
            if "top_logprobs" in one:
                one["logprob"] = change(one["logprob"])
                for entry in entries:
                    entry["logprob"] = change(entry["logprob"])
            else:
                one.update({word: change(value) for word, value in entries})

    return says


def _noisy(size: float) -> Lie:
    """Whole lists move together with what else the server is doing."""
    random = np.random.default_rng(0)

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        moved = values + random.normal(0, size, len(values))
        return np.asarray(moved - np.log(np.exp(moved).sum()))

    return Lie(lists=lists)


def _without_usage(reply: Reply, asked: Asked) -> None:
    reply.body.pop("usage", None)


def _sampled_beside(reply: Reply, asked: Asked) -> None:
    """The drawn token is left out of its list; its own entry stands beside it."""
    for one, entries in _lists(reply):
        if "top_logprobs" in one:
            one["top_logprobs"] = [entry for entry in entries if entry["token"] != one["token"]]


def _unknown_unless_listed(reply: Reply, asked: Asked) -> None:
    """OpenAI's chats: a drawn token that is not among the 20 likeliest has the value -9999."""
    for one, entries in _lists(reply):
        if "top_logprobs" in one and one["token"] not in [entry["token"] for entry in entries]:
            one["logprob"] = -9999.0


def _spaces_marked(reply: Reply, asked: Asked) -> None:
    for one, entries in _lists(reply):
        if "top_logprobs" in one:
            for entry in (one, *entries):
                entry["token"] = entry["token"].replace(" ", "Ġ")
                entry.pop("bytes", None)
        else:
            for word, _ in entries:
                one[word.replace(" ", "Ġ")] = one.pop(word)


def _bytes_only(reply: Reply, asked: Asked) -> None:
    for one, entries in _lists(reply):
        for entry in (one, *entries) if "top_logprobs" in one else ():
            entry["token"] = ""


class Refusing(WordServer):
    """Refuses what ``refuses`` names in a request."""

    status = 400

    def __init__(self, style: Style, seed: int, refuses: Callable[[dict[str, Any]], str], lie: Lie = HONEST) -> None:
        super().__init__(style, seed, lie)
        self.refuses = refuses

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path.endswith("completions") and (message := self.refuses(sent)):
            return refusal(self.status, message)
        return super().reply(path, sent)


def _few_tokens(sent: dict[str, Any]) -> str:
    limit = sent.get("max_tokens") or sent.get("max_completion_tokens") or 16
    return "Invalid 'max_tokens': integer below minimum value. Expected a value >= 16" if limit < 16 else ""


def _other_temperature(sent: dict[str, Any]) -> str:
    return "Unsupported value: 'temperature' does not support other than the default (1)" * (
        sent.get("temperature", 1) != 1
    )


def _short_lists(sent: dict[str, Any]) -> str:
    k = sent.get("top_logprobs") or (sent.get("logprobs") if "prompt" in sent else 0) or 0
    return "logprobs must be at most 5" * (k > 5)


def _nothing_listed(reply: Reply, asked: Asked) -> None:
    for choice in reply.body.get("choices", []):
        choice["logprobs"] = None


class LlamaCppPython(WordServer):
    """As llama-cpp-python's: a tokenizer, whole vocabularies by string, one answer a request, no prompts as ids.

    ``listed``: lists that were made, one for each word that was drawn; each sorts the vocabulary.
    """

    def __init__(self, seed: int = 1) -> None:
        super().__init__("lists", seed)
        self.listed = 0

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path == "/extras/tokenize":
            return Reply({"tokens": [self._id(token) for token in self.tokens(sent["input"])]})
        if path == "/extras/detokenize":
            return Reply({"text": "".join(self._vocabulary[i] for i in sent["tokens"])})
        if isinstance(sent.get("prompt"), list):
            return refusal(500, "1 validation error for Request")
        self.listed += sent.get("max_tokens", 16) if sent.get("logprobs") else 0
        return super().reply(path, sent)

    def _longest(self, sent: dict[str, Any]) -> int:
        return 0 if "messages" in sent else min(super()._longest(sent), LONGEST)

    def _listed(self, values: np.ndarray, k: int) -> Listed:
        return super()._listed(values, len(values))


ODD: Mapping[str, Callable[[Style, int], WordServer]] = {
    "four decimals": lambda style, seed: WordServer(style, seed, Lie(says=_each_value(lambda v: round(v, 4)))),
    "five listed": lambda style, seed: Refusing(style, seed, _short_lists),
    "bfloat16 noise": lambda style, seed: WordServer(style, seed, _noisy(0.02)),
    "batching noise": lambda style, seed: WordServer(style, seed, _noisy(0.005)),
    "no usage": lambda style, seed: WordServer(style, seed, Lie(says=_without_usage)),
    "drawn token beside its list": lambda style, seed: WordServer(style, seed, Lie(says=_sampled_beside)),
    "-9999 for a drawn token that is not listed": lambda style, seed: WordServer(
        style, seed, Lie(says=_unknown_unless_listed)
    ),
    "bytes only": lambda style, seed: WordServer(style, seed, Lie(says=_bytes_only)),
    "Ġ for a space": lambda style, seed: WordServer(style, seed, Lie(says=_spaces_marked)),
    "at least 16 tokens": lambda style, seed: Refusing(style, seed, _few_tokens),
    "temperature 1 alone": lambda style, seed: Refusing(style, seed, _other_temperature),
}
#: Of which no list can be had: texts alone.
TEXTS_ALONE = {
    "at least 16 tokens, no lists": lambda style, seed: Refusing(style, seed, _few_tokens, Lie(says=_nothing_listed)),
}
