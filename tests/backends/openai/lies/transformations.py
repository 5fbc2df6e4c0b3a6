"""What lies are made of: changes to what a model hears, which model answers, what is listed, drawn and said.

A `Told` makes the lie anew for each trial, from a random generator.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.openai.lies.server import BOS, Asked, Lie, Listed, Style, Tokens
from tests.backends.openai.lies.word_model import GENDERS, VOCABULARY, WordModel, tokens_of
from tests.backends.openai.raw_server import Reply

Told = Callable[[np.random.Generator], Lie]
Change = Callable[[Tokens], Tokens]
LISTED: tuple[Style, ...] = ("lists", "whole", "chat")
SCORED: tuple[Style, ...] = ("echo", "ids", "chosen", "score", "lists", "whole", "chat")
_ALIKE = 0.6
CUT = 100


#: What the trials' own questions have, and no probe's.
OWN = "What is the gender of the"


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


def bos_doubled_on_texts(random: np.random.Generator) -> Lie:
    def hears(tokens: Tokens, asked: Asked) -> Tokens:
        return tokens if asked.ids else (BOS, *tokens)

    def says(reply: Reply, asked: Asked) -> None:
        if not asked.ids:
            reply.body["usage"]["prompt_tokens"] -= 1

    return Lie(("ids", "whole"), hears=hears, says=says)


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


def quantised_twin(random: np.random.Generator) -> Lie:
    """Half of the answers come from a copy whose numbers are about 0.1 nats off."""

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        return values if random.random() < 0.5 else normalised(values + _jitter(asked.tokens, 0.1))

    return Lie(SCORED, lists=lists)


def _jitter(tokens: Tokens, size: float) -> np.ndarray:
    """The same for one question each time."""
    return np.random.default_rng(abs(hash(tokens)) % 2**32).normal(0, size, len(VOCABULARY))


def chats_of(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Told:
    """Some turns of a chat are dropped."""
    return lambda random: Lie(("chat",), turns=change)


def rows_of(change: Callable[[int, Tokens], Tokens]) -> Told:
    """The rows of a prompt are made of a part of it; its next token is not."""
    return lambda random: Lie(("echo", "ids"), rows=change)


def after_the_answers_start(at: int, before: Tokens) -> Tokens:
    """Rows of what follows the first word of an answer to the audit's questions are made after another word."""
    if " gender" not in before or ":" not in before[-4:-1]:
        return before
    return (*before[:-1], " river")


def hot_rows(random: np.random.Generator) -> Lie:
    return Lie(("echo", "ids"), row_temperature=lambda at: 0.77 if at >= 50 else 1.0)


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


def hot_where(when: Callable[[Asked], bool], temperature: float) -> Told:
    """Lists and rows are of this temperature after some prompts; the draws are true."""
    return lambda random: Lie(
        SCORED, lists=lambda values, asked: normalised(values / temperature) if when(asked) else values
    )


def cold_but_alone(random: np.random.Generator) -> Lie:
    """Lists are of temperature 0.7, and so are several draws of one request; a single draw is true."""

    def draws(values: np.ndarray, temperature: float, asked: Asked) -> np.ndarray:
        told = normalised(values / 0.7) if (asked.sent.get("n") or 1) > 1 else values
        return told / temperature if temperature else greedy(told, temperature)

    return Lie(
        LISTED, lists=lambda values, asked: normalised(values / 0.7) if asked.kind == "list" else values, draws=draws
    )


def bias_that_stays(random: np.random.Generator) -> Lie:
    """A ``logit_bias`` of one request moves all later lists and draws by up to 3 nats."""
    kept = np.zeros(len(VOCABULARY))

    def moved(values: np.ndarray, asked: Asked) -> np.ndarray:
        for token, bias in (asked.sent.get("logit_bias") or {}).items():
            if 0 < int(token) <= len(VOCABULARY):
                kept[int(token) - 1] = np.clip(bias, -3, 3)
        return normalised(values + kept)

    def draws(values: np.ndarray, temperature: float, asked: Asked) -> np.ndarray:
        told = moved(values, asked)
        return told / temperature if temperature else greedy(told, temperature)

    return Lie(("ids", "chosen", "whole"), lists=moved, draws=draws)


def each_word_rounded(values: np.ndarray) -> np.ndarray:
    """Each word's values are multiples of a step of its own, 0.1 to 0.4 nats."""
    steps = np.array([0.1 + 0.3 * zlib.crc32(word.encode()) / 2**32 for word in VOCABULARY])
    return np.asarray(np.round(values / steps) * steps)


def without_accents(text: str) -> str:
    apart = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in apart if not unicodedata.combining(letter))


def audited_word_down(
    random: np.random.Generator,
    styles: tuple[Style, ...] = SCORED,
    kinds: tuple[str, ...] = ("list", "echo", "prompt_logprobs", "chosen"),
) -> Lie:
    """The likeliest answer to what the audit asks is 0.6 nats too low where it is scored; the draws are true."""
    answers = np.array([text.strip() in GENDERS for text in VOCABULARY])

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        likeliest = np.where(answers, values, -np.inf).argmax()
        return (
            values - 0.6 * (np.arange(len(values)) == likeliest)
            if OWN in asked.text and asked.kind in kinds
            else values
        )

    return Lie(styles, lists=lists)


def where_chosen(change: Callable[[np.ndarray], np.ndarray]) -> Told:
    """The values of chosen tokens are changed; lists and rows are true."""
    return lambda random: Lie(
        ("chosen", "score"), lists=lambda values, asked: change(values) if asked.kind == "chosen" else values
    )


def hears_where_chosen(change: Callable[[Tokens], Tokens]) -> Told:
    """The prompt of chosen tokens is changed."""
    return lambda random: Lie(
        ("chosen", "score"), hears=lambda tokens, asked: change(tokens) if asked.kind == "chosen" else tokens
    )


def chosen_from_a_cache(random: np.random.Generator) -> Lie:
    """Chosen tokens are those of the first prompt that begins with the same 64 characters."""
    first: dict[str, Tokens] = {}
    return Lie(
        ("chosen", "score"),
        hears=lambda tokens, a: first.setdefault(a.text[:64], tokens) if a.kind == "chosen" else tokens,
    )


def swapped_where_chosen(random: np.random.Generator) -> Lie:
    """The two likeliest answers to what the audit asks have each other's value where they are chosen."""
    genders = np.array([text.strip() in GENDERS for text in VOCABULARY])

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        if OWN not in asked.text or asked.kind != "chosen":
            return values
        told, pair = values.copy(), np.argsort(-np.where(genders, values, -np.inf))[:2]
        told[pair] = values[pair[::-1]]
        return told

    return Lie(("chosen", "score"), lists=lists)


def tail_up(values: np.ndarray) -> np.ndarray:
    """What no list of 20 holds is 2 nats likelier."""
    return np.where(values < np.sort(values)[-20], values + 2.0, values)


def of_three_decimals(values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.round(np.exp(values), 3), 5e-4))


def audited_words_alike(random: np.random.Generator) -> Lie:
    """What the audit asks is answered evenly in lists: each answer's probability is moved halfway to their mean."""
    answers = np.array([text.strip() in GENDERS for text in VOCABULARY])

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        if OWN not in asked.text or asked.kind == "draw":
            return values
        spaced = answers & (values > -8)
        mean = np.log(np.exp(values[spaced]).mean()) if spaced.any() else 0.0
        return np.where(spaced, (values + mean) / 2, values)

    return Lie(SCORED, lists=lists)


def audited_words_swapped(random: np.random.Generator) -> Lie:
    """The two likeliest answers to what the audit asks have each other's probability in lists."""
    answers = np.array([text.strip() in GENDERS for text in VOCABULARY])

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        if OWN not in asked.text or asked.kind == "draw":
            return values
        first, second = np.argsort(-np.where(answers, values, -np.inf))[:2]
        told = values.copy()
        told[[first, second]] = values[[second, first]]
        return told

    return Lie(LISTED, lists=lists)


def drawn_beside_lists(change: Callable[[np.ndarray, Asked], np.ndarray], reason: str = "") -> Told:
    """Tokens that come with a list are drawn from something else than others."""

    def draws(values: np.ndarray, temperature: float, asked: Asked) -> np.ndarray:
        told = change(values, asked) if asked.kind == "list" else values
        return told / temperature if temperature else greedy(told, temperature)

    return lambda random: Lie(("lists", "chat"), draws=draws, unknowable=reason)


def _k_best(values: np.ndarray, k: int) -> np.ndarray:
    return np.where(values >= np.sort(values)[-k], values, -np.inf)


def _top_p(values: np.ndarray, p: float) -> np.ndarray:
    order = np.argsort(-values)
    kept = np.searchsorted(np.cumsum(np.exp(values[order])), p) + 1
    return np.where(np.isin(np.arange(len(values)), order[:kept]), values, -np.inf)


def left_out(hides: Callable[[np.ndarray], np.ndarray]) -> Told:
    """Lists leave out the words that ``hides`` marks, and the next ranks move up; the draws are true."""

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        return np.where(hides(values), -50.0, values) if asked.kind == "list" else values

    return lambda random: Lie(("lists", "chat"), lists=lists)


def ranks(*hidden: int) -> Callable[[np.ndarray], np.ndarray]:
    """Marks the words of these ranks; the likeliest has rank 0."""
    return lambda values: np.isin(np.argsort(np.argsort(-values, kind="stable")), hidden)


def likeliest_gender(values: np.ndarray) -> np.ndarray:
    """Marks the likeliest word for a gender."""
    genders = np.array([text.strip() in GENDERS for text in VOCABULARY])
    return np.asarray(np.arange(len(values)) == np.where(genders, values, -np.inf).argmax())


def womens_words(values: np.ndarray) -> np.ndarray:
    """Marks the words for a woman, wherever they stand."""
    return np.array([text.strip() in ("Female", "woman") for text in VOCABULARY])


def top_40(values: np.ndarray) -> np.ndarray:
    return normalised(_k_best(values, 40))


def top_p_90(values: np.ndarray) -> np.ndarray:
    return normalised(_top_p(values, 0.9))


def rows_below(limit: float, said: float) -> Told:
    """The rows of a prompt's unlikely tokens hold one value; no list of the likeliest reaches them."""

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        return np.where(values < limit, said, values) if asked.kind in ("echo", "prompt_logprobs") else values

    return lambda random: Lie(("echo", "ids", "chosen", "score"), lists=lists)


def tail_shuffled(values: np.ndarray) -> np.ndarray:
    """The tokens below rank 20 have each other's values, differently after each text."""
    ranked = np.argsort(-values, kind="stable")
    told = values.copy()
    random = np.random.default_rng(zlib.crc32(values.tobytes()))
    told[ranked[20:]] = values[random.permutation(ranked[20:])]
    return told


def filtered_alike(keep: Callable[[np.ndarray], np.ndarray]) -> Told:
    """Lists and draws are of the same filtered distribution."""

    def draws(values: np.ndarray, temperature: float, asked: Asked) -> np.ndarray:
        return keep(normalised(values / (temperature or 1e-3)))

    return lambda random: Lie(
        LISTED, lists=lambda values, asked: keep(values), draws=draws, unknowable="lists and draws agree"
    )


def jittered(random: np.random.Generator) -> Lie:
    return Lie(SCORED, lists=lambda values, asked: normalised(values + _jitter(asked.tokens, 0.3)))


def names_shifted(listed: Listed) -> Listed:
    names, values = [name for name, _ in listed], [value for _, value in listed]
    return list(zip([*names[:1], *names[2:], *names[1:2]], values, strict=True))


def rounded_by_itself(random: np.random.Generator) -> Lie:
    """Each list has values on a grid of its own."""

    def lists(values: np.ndarray, asked: Asked) -> np.ndarray:
        step = 0.06 + 0.13 * zlib.crc32(asked.text.encode()) / 2**32
        return np.asarray(np.round(values / step) * step)

    return Lie(LISTED, lists=lists)


def ids_shifted(reply: Reply, asked: Asked, random: np.random.Generator) -> None:
    """Each text but the likeliest stands beside the id of the next one."""
    for part in _every_list(reply):
        entries = part["top_logprobs"]
        ids = [entry["id"] for entry in entries]
        for entry, token_id in zip(entries[1:], [*ids[2:], *ids[1:2]], strict=True):
            entry["id"] = token_id


def in_lower_case(random: np.random.Generator) -> Lie:
    """Answers and listed words have lost their capital letters."""

    def says(reply: Reply, asked: Asked) -> None:
        for choice in reply.body["choices"]:
            logprobs = choice.get("logprobs") or {}
            if "message" in choice:
                choice["message"]["content"] = choice["message"]["content"].lower()
            else:
                choice["text"] = choice["text"].lower()
            for entry in logprobs.get("content") or ():
                entry["token"] = entry["token"].lower()
                entry["bytes"] = [*entry["token"].encode()]
            if "tokens" in logprobs:
                logprobs["tokens"] = [token.lower() for token in logprobs["tokens"]]

    return Lie(("lists", "chat"), names=lambda listed: [(name.lower(), value) for name, value in listed], says=says)


def names_by_alphabet(listed: Listed) -> Listed:
    return list(zip(sorted(name for name, _ in listed), (value for _, value in listed), strict=True))


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


def refusal(reply: Reply, asked: Asked, random: np.random.Generator) -> None:
    """5 % of the answers are a canned refusal, list and all."""
    if not asked.probed or random.random() > 0.05 or asked.kind != "list":
        return
    reply.choice["finish_reason"] = "content_filter"
    for part in _every_list(reply)[-1:]:
        if "top_logprobs" in part:
            part["top_logprobs"] = [{**e, "logprob": e["logprob"] - 1.0} for e in part["top_logprobs"]]
        else:
            part.update({token: value - 1.0 for token, value in part.items()})


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


def draws_copied(source: Callable[[int, np.random.Generator], int]) -> Told:
    """``source(number of a draw, random)``: how many draws before it stands the one that it copies; 0: none."""

    def told(random: np.random.Generator) -> Lie:
        kept: dict[tuple[str, object], list[str]] = {}

        def says(reply: Reply, asked: Asked) -> None:
            so_far = kept.setdefault((asked.text, asked.sent.get("max_tokens")), [])
            for choice in reply.body["choices"]:
                back = source(len(so_far), random)
                so_far.append(so_far[-back] if back else choice["text"])
                choice["text"] = so_far[-1]

        return Lie(("drawn",), says=says)

    return told


def one_choice_for_all(reply: Reply, asked: Asked, random: np.random.Generator) -> None:
    choices = reply.body["choices"]
    reply.body["choices"] = [{**choices[0], "index": index} for index in range(len(choices))]


def first_words(asked: Asked) -> str:
    return asked.text.removeprefix("user\n").removeprefix("system\n")


def last_words(asked: Asked) -> str:
    return asked.text.removesuffix("\nassistant\n")


def lists_of_another(
    random: np.random.Generator, styles: tuple[Style, ...] = LISTED, kinds: tuple[str, ...] = ("list",)
) -> Lie:
    """Lists (or rows) are of another model than the one that draws."""
    other = WordModel(int(random.integers(1000, 2000)))

    def model(own: WordModel, asked: Asked) -> WordModel:
        return other if asked.kind in kinds else own

    return Lie(styles, model=model)


def another_throughout(random: np.random.Generator) -> Lie:
    other = WordModel(int(random.integers(1000, 2000)))
    return Lie(LISTED, model=lambda model, asked: other, unknowable="nothing tells which model a name stands for")
