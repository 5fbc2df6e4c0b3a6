"""Lies by name, those of real servers and gateways and others that are as large, and what they are made of.

Changes to what a model hears, which model answers, what is listed, drawn and said. A `Told` makes the lie anew for
each trial, from a random generator.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.backends.openai.lies.server import BOS, Asked, Lie, Listed, Style, Tokens
from tests.backends.openai.lies.word_model import WordModel, tokens_of
from tests.backends.openai.raw_server import Reply

Told = Callable[[np.random.Generator], Lie]
LISTED: tuple[Style, ...] = ("lists", "whole", "chat")
SCORED: tuple[Style, ...] = ("echo", "ids", "lists", "whole", "chat")
_ALIKE = 0.6
CUT = 100


def normalised(values: np.ndarray) -> np.ndarray:
    return np.asarray(values - np.log(np.exp(values - values.max()).sum()) - values.max())


# What the model is really asked.


def cached(key: Callable[[Asked], object], styles: tuple[Style, ...] = SCORED) -> Told:
    """The first question of a key is answered, and every later one of that key like it."""

    def told(random: np.random.Generator) -> Lie:
        first: dict[object, Tokens] = {}
        return Lie(styles, hears=lambda tokens, asked: first.setdefault((asked.kind, key(asked)), tokens))

    return told


def semantic_cache(random: np.random.Generator) -> Lie:
    """A question whose words are mostly those of an earlier one gets that one's answer."""
    earlier: list[tuple[str, frozenset[str], Tokens]] = []

    def hears(tokens: Tokens, asked: Asked) -> Tokens:
        words = frozenset(tokens)
        for kind, others, answered in reversed(earlier):
            if kind == asked.kind and len(words & others) >= _ALIKE * len(words | others):
                return answered
        earlier.append((asked.kind, words, tokens))
        return tokens

    return Lie(SCORED, hears=hears)


def hears(change: Callable[[Tokens], Tokens], styles: tuple[Style, ...] = SCORED, *, honest_usage: bool = True) -> Told:
    def says(reply: Reply, asked: Asked) -> None:
        if not honest_usage:
            reply.body["usage"]["prompt_tokens"] = len(asked.tokens)

    return lambda random: Lie(styles, hears=lambda tokens, asked: change(tokens), says=says)


def reads(change: Callable[[str], str], styles: tuple[Style, ...] = LISTED) -> Told:
    """The prompt's text is changed before it is read."""
    return hears(lambda tokens: (*tokens[: tokens.count(BOS)], *tokens_of(change("".join(tokens)))), styles)


SYSTEM = tokens_of("system\nYou are a careful and honest doctor. Answer in one word.\n")


# Which model answers, and when.


def another_model(when: Callable[[Asked, np.random.Generator], bool], styles: tuple[Style, ...] = SCORED) -> Told:
    def told(random: np.random.Generator) -> Lie:
        other = WordModel(int(random.integers(1000, 2000)))
        return Lie(styles, model=lambda model, asked: other if when(asked, random) else model)

    return told


def chats_of(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Told:
    """Some turns of a chat are dropped."""
    return lambda random: Lie(("chat",), turns=change)


def previous_answer(random: np.random.Generator) -> Lie:
    """5 % of the answers are the previous question's, under an id of their own."""
    last: dict[str, Tokens] = {}

    def hears(tokens: Tokens, asked: Asked) -> Tokens:
        before, last[asked.kind] = last.get(asked.kind, tokens), tokens
        return before if asked.probed and random.random() < 0.05 else tokens

    return Lie(SCORED, hears=hears)


# What is reported.


def lists(change: Callable[[np.ndarray], np.ndarray], styles: tuple[Style, ...] = SCORED) -> Told:
    return lambda random: Lie(styles, lists=lambda values, asked: change(values))


def without_accents(text: str) -> str:
    apart = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in apart if not unicodedata.combining(letter))


def _k_best(values: np.ndarray, k: int) -> np.ndarray:
    return np.where(values >= np.sort(values)[-k], values, -np.inf)


def _top_p(values: np.ndarray, p: float) -> np.ndarray:
    order = np.argsort(-values)
    kept = np.searchsorted(np.cumsum(np.exp(values[order])), p) + 1
    return np.where(np.isin(np.arange(len(values)), order[:kept]), values, -np.inf)


def top_40(values: np.ndarray) -> np.ndarray:
    return normalised(_k_best(values, 40))


def top_p_90(values: np.ndarray) -> np.ndarray:
    return normalised(_top_p(values, 0.9))


def names_shifted(listed: Listed) -> Listed:
    names, values = [name for name, _ in listed], [value for _, value in listed]
    return list(zip([*names[:1], *names[2:], *names[1:2]], values, strict=True))


def tail_of_one_value(value: float) -> Callable[[Listed], Listed]:
    """Below rank 8 the values are not known, and one number stands for them."""
    return lambda listed: [*listed[:8], *((name, value) for name, _ in listed[8:])]


def renormalised(listed: Listed) -> Listed:
    total = np.log(sum(np.exp(value) for _, value in listed)) if listed else 0.0
    return [(name, float(value - total)) for name, value in listed]


def named(change: Callable[[Listed], Listed], styles: tuple[Style, ...] = LISTED) -> Told:
    return lambda random: Lie(styles, names=change)


# What is said, and drawn.


def said(change: Callable[[Reply, Asked, np.random.Generator], None], styles: tuple[Style, ...] = SCORED) -> Told:
    return lambda random: Lie(styles, says=lambda reply, asked: change(reply, asked, random))


def _every_list(reply: Reply) -> list[Any]:
    """The parts of a reply that hold a list's tokens: legacy mappings, or entries of a chat."""
    logprobs = reply.choice.get("logprobs") or {}
    return logprobs.get("content") or logprobs.get("top_logprobs") or []


def spaces_lost(reply: Reply, asked: Asked, random: np.random.Generator) -> None:
    """No token has its leading space, in list and text alike."""
    for choice in reply.body["choices"]:
        if isinstance(choice.get("text"), str) and asked.kind != "echo":
            choice["text"] = choice["text"].lstrip(" ")
    logprobs = reply.choice.get("logprobs") or {}
    if "top_logprobs" in logprobs and asked.kind != "echo":
        logprobs["tokens"] = [t.lstrip(" ") for t in logprobs["tokens"]]
        logprobs["top_logprobs"] = [{t.lstrip(" "): v for t, v in logprobs["top_logprobs"][0].items()}]
    for entry in [e for first in logprobs.get("content") or () for e in (first, *first["top_logprobs"])]:
        entry["token"] = entry["token"].lstrip(" ")
        entry["bytes"] = list(entry["token"].encode())


def thinks_first(reply: Reply, asked: Asked, random: np.random.Generator) -> None:
    """The answer begins with reasoning; its first token is listed, and the others share what is left."""
    for choice in reply.body["choices"]:
        choice["message"]["content"] = "<think>" + choice["message"]["content"]
    for first in _every_list(reply):
        rest = [{**e, "logprob": e["logprob"] - 3.0} for e in first["top_logprobs"][:-1]]
        opening = {"token": "<think>", "bytes": list(b"<think>"), "logprob": float(np.log(1 - np.exp(-3.0)))}
        first.update(opening, top_logprobs=[opening, *rest])


def redrawn(change: Callable[[np.ndarray, float], np.ndarray], styles: tuple[Style, ...] = ("drawn",)) -> Told:
    return lambda random: Lie(styles, draws=lambda values, temperature, asked: change(values, temperature))


def greedy(values: np.ndarray, temperature: float) -> np.ndarray:
    return np.where(values == values.max(), 0.0, -np.inf)


def cached_draws(*, fresh_ids: bool) -> Told:
    def told(random: np.random.Generator) -> Lie:
        kept: dict[str, Any] = {}

        def says(reply: Reply, asked: Asked) -> None:
            first = kept.setdefault(asked.text, reply.body)
            number = reply.body["id"]
            reply.body = {**first, "id": number if fresh_ids else first["id"]}

        return Lie(("drawn",), says=says)

    return told


def first_words(asked: Asked) -> str:
    return asked.text.removeprefix("user\n").removeprefix("system\n")


def last_words(asked: Asked) -> str:
    return asked.text.removesuffix("\nassistant\n")


def lists_of_another(random: np.random.Generator) -> Lie:
    """Lists are of another model than the one that draws."""
    other = WordModel(int(random.integers(1000, 2000)))
    return Lie(LISTED, model=lambda own, asked: other if asked.kind == "list" else own)


def another_throughout(random: np.random.Generator) -> Lie:
    other = WordModel(int(random.integers(1000, 2000)))
    return Lie(LISTED, model=lambda model, asked: other)


LIES: Mapping[str, Told] = {
    "semantic cache": semantic_cache,
    "cache by the first 12 characters": cached(lambda asked: first_words(asked)[:12]),
    "cache by the last 12 characters": cached(lambda asked: last_words(asked)[-12:]),
    "cache without digits": cached(lambda asked: re.sub(r"\d", "", asked.text), LISTED),
    "cache by length": cached(lambda asked: len(asked.tokens), LISTED),
    "cache by 64 characters": cached(lambda asked: first_words(asked)[:64], LISTED),
    "prompt cut to its last 100 tokens": hears(lambda tokens: tokens[-CUT:]),
    "prompt cut to its first 60 tokens": hears(lambda tokens: tokens[:60], LISTED),
    "prompt cut in the middle": hears(
        lambda tokens: tokens if len(tokens) < 80 else (*tokens[:40], *tokens[-40:]), LISTED, honest_usage=False
    ),
    "prompt in lower case": reads(str.lower),
    "prompt without line breaks": reads(lambda text: text.replace("\n", " ")),
    "question marks for other characters": reads(lambda text: text.encode("ascii", "replace").decode()),
    "quotation marks as HTML": reads(lambda text: text.replace('"', "&quot;")),
    "UTF-8 read as Latin-1": reads(lambda text: text.encode().decode("latin-1")),
    "all of HTML escaped": reads(html.escape),
    "curly quotes made straight": reads(lambda text: text.translate(str.maketrans("“”‘’", "\"\"''"))),
    "emoji dropped": reads(lambda text: re.sub("[\U0001f300-\U0001faff]", "", text)),
    "letters without accents": reads(without_accents),
    "ampersands as words": reads(lambda text: text.replace("&", "and")),
    "line breaks as their escape": reads(lambda text: text.replace("\n", "\\n")),
    "system messages dropped": chats_of(lambda turns: [turn for turn in turns if turn["role"] != "system"]),
    "last turn alone": chats_of(lambda turns: turns[-1:]),
    "logarithms to base 2": lists(lambda values: values / np.log(2)),
    "logarithms to base 10": lists(lambda values: values / np.log(10)),
    "temperature 0.7 in lists": lists(lambda values: normalised(values / 0.7)),
    "temperature 1.5 in lists": lists(lambda values: normalised(values / 1.5)),
    "renormalised over the k listed": named(renormalised, ("lists", "chat")),
    "top-40 in lists": lists(top_40),
    "top-p 0.9 in lists": lists(top_p_90),
    "names shifted below rank 1": named(names_shifted),
    "values below the likeliest": lists(lambda values: values - values.max()),
    "values rounded to 0.5": lists(lambda values: np.round(2 * values) / 2, LISTED),
    "-100 as unknown": named(tail_of_one_value(-100.0)),
    "<think> before the answer": said(thinks_first, ("chat",)),
    "leading spaces lost": said(spaces_lost, ("lists", "whole")),
    "lists of another model": lists_of_another,
    "draws at temperature 0.7": redrawn(lambda values, t: values / (0.7 * t or 1e-3), LISTED),
    "5 % previous answers": previous_answer,
    "another model for requests 100 to 350": another_model(lambda asked, _: 100 <= asked.number < 350),
    "another model for 10 % after the probe": another_model(lambda a, r: a.probed and r.random() < 0.1),
    "another model for 2 % after the probe": another_model(lambda a, r: a.probed and r.random() < 0.02),
    "another model from the start": another_throughout,
    "hidden system prompt": hears(lambda tokens: (*tokens[:1], *SYSTEM, *tokens[1:])),
    "cached draws, same id": cached_draws(fresh_ids=False),
    "cached draws, fresh ids": cached_draws(fresh_ids=True),
    "greedy draws": redrawn(greedy),
}
#: Lies that begin after the look: they are told to more questions.
UNDER_WAY = frozenset(name for name in LIES if re.search("after the probe|requests 100 to 350|previous", name))
