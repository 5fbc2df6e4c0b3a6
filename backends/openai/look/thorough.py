"""A long look, for whoever wants it: minutes and some hundred requests, each experiment for what it alone catches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, get_args

from backends.base import GenerateRequest, Message, Sampling, ScoreRequest
from backends.errors import BackendError
from backends.openai.generation import draws
from backends.openai.look.draw_test import LEVEL, Place, surprise
from backends.openai.look.record import Look
from backends.openai.look.session import Kind, Looking, apart, are_equal
from backends.openai.look.texts import BASE, COMPARED, MAX_NOISE
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring import RemoteTokenizer, score
from backends.openai.scoring.next_tokens import next_chat_tokens, next_tokens
from backends.openai.scoring.top_logprobs import TopLogprobs, read_top_logprobs

_MOST = 1000
_TOLD = 'Yesterday Anna told Ben: "The nurse found 17 letters & keys 😀 – in Zürich." Who found them?\nThe answer is'
#: What differs, and how: caches and gateways were met that overlook each.
_TWINS: tuple[tuple[str, str, str], ...] = (
    ("a name", "Anna", "Clara"),
    ("a word in the middle", "nurse", "pilot"),
    ("the order of two names", "Anna told Ben", "Ben told Anna"),
    ("a number", "17", "71"),
    ("a capital letter", "Who", "who"),
    ("punctuation", ".", "!"),
    ("a line break", "\n", " "),
    ("two line breaks", "\n", "\n\n"),
    ("a line break's escape", "\n", "\\n"),
    ("an accented letter", "ü", "ö"),
    ("an accent", "ü", "u"),
    ("a quotation mark's name in HTML", '"', "&quot;"),
    ("a curly quotation mark", '"', "“"),
    ("a dash", "–", "-"),
    ("an ampersand and a word", "&", "and"),
    ("an emoji", "😀", "😢"),
)
_LONG_TWINS = (
    ("the middle of a long prompt", "Wednesday the nurse", "Wednesday the guard"),
    ("the later part of a long prompt", "Friday the pilot", "Friday the guard"),
)
_LONG = f"{BASE.removesuffix('Then she said that the')}\n" + BASE
_ASKED = Message("user", "Was it a man or a woman? Answer with one word.")
_TALK = (Message("user", "My friend is called Anna."), Message("assistant", "That is a good name."))
_MANY = (*_TALK, *(Message("user", "Go on."), Message("assistant", "I am listening.")) * 5, _ASKED)
_TURNS = (
    ("an earlier question", (*_TALK, _ASKED), (Message("user", "My friend is called David."), _TALK[1], _ASKED)),
    ("an earlier answer", (*_TALK, _ASKED), (_TALK[0], Message("assistant", "Tomorrow it will rain."), _ASKED)),
    ("the first of many turns", _MANY, (Message("user", "My friend is called David."), *_MANY[1:])),
)
_PLACES = ("doctor", "nurse", "pilot", "baker", "teacher", "driver", "farmer", "cook", "guard", "painter")
_PLACE = "Q: Picture a {0}. What does the {0} see first?\nA:"
#: Draws at each place, in requests of 20 or one by one.
_DRAWS, _ONE_BY_ONE = 60, 12
#: Tokens of longer answers whose first list is that of one token, and ranks of words whose rows are compared.
_LONGER, _RANKS, _OFF = (3, 40), (0, 2, 9, 18), 0.1


class Experiment(NamedTuple):
    """The outcome of one experiment; ``passed`` None: it could not be made."""

    name: str
    passed: bool | None
    message: str

    def __str__(self) -> str:
        return f"{ {True: 'ok  ', False: 'FAIL', None: '-   '}[self.passed] } {self.name}: {self.message}"


async def thorough(api: ServerApi, look: Look, say: Callable[[str], None]) -> list[Experiment]:
    """Make all experiments on a server that was looked at; each is said as soon as it is made."""
    looking = Looking(api, say, _MOST)
    looking.noise = look.noise
    found: list[Experiment] = []
    for kind in (kind for kind in get_args(Kind) if kind in look.lists):
        for name, make in _EXPERIMENTS:
            passed, message = await make(looking, kind)
            found.append(Experiment(f"{name} of {kind}s", passed, message))
            say(str(found[-1]))
    return found


Outcome = tuple[bool | None, str]


async def _list(look: Looking, kind: Kind, prompt: Any) -> TopLogprobs | BackendError:
    if kind == "text":
        return await look.ask(next_tokens, look.api, prompt, min(look.found.largest_k, COMPARED))
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    return await look.ask(next_chat_tokens, look.api, turns, min(look.found.largest_chat_k, COMPARED))


async def _alike(look: Looking, kind: Kind, pairs: Sequence[tuple[str, Any, Any]]) -> Outcome:
    compared, alike, lists = 0, [], dict[Any, TopLogprobs | BackendError]()
    for difference, *both in pairs:
        for one in both:
            if one not in lists:
                lists[one] = await _list(look, kind, one)
        first, second = (lists[one] for one in both)
        if isinstance(first, TopLogprobs) and isinstance(second, TopLogprobs):
            compared += 1
            alike += [difference] * are_equal(first, second, look.noise)
    if alike:
        return False, f"prompts that differ by {', '.join(alike)} got one list"
    return (True if compared else None), f"{compared} pairs of prompts got different lists"


async def _twins(look: Looking, kind: Kind) -> Outcome:
    pairs = [(name, _TOLD, _TOLD.replace(old, new, 1)) for name, old, new in _TWINS]
    pairs += [(name, _LONG, _LONG.replace(old, new)) for name, old, new in _LONG_TWINS]
    if kind == "text":
        pairs.append(
            ("a line break at the end", "Who found the letter? The answer:", "Who found the letter? The answer:\n")
        )
    return await _alike(look, kind, pairs)


async def _turns(look: Looking, kind: Kind) -> Outcome:
    return (None, "texts have none") if kind == "text" else await _alike(look, kind, _TURNS)


async def _repeated(look: Looking, kind: Kind) -> Outcome:
    first = await _list(look, kind, _TOLD)
    beside = await asyncio.gather(*(_list(look, kind, one) for one in (_TOLD, _LONG, _TOLD, _TOLD + " the", _TOLD)))
    moved = max(apart(first, one) for one in beside[::2])
    return moved <= MAX_NOISE, f"its numbers move by up to {moved:.2g} nats, alone and beside others"


async def _longer(look: Looking, kind: Kind) -> Outcome:
    first, moves = await _list(look, kind, _TOLD), []
    for tokens in _LONGER:
        k = min(look.found.largest_k if kind == "text" else look.found.largest_chat_k, COMPARED)
        options = {"max_tokens": tokens, "temperature": look.found.temperature}
        if kind == "text":
            answer = await look.ask(look.api.completion, _TOLD, logprobs=k, **options)
        else:
            turns = (Message("user", _TOLD),)
            answer = await look.ask(look.api.chat, turns, logprobs=True, top_logprobs=k, **options)
        if not isinstance(answer, BackendError):
            moves.append(apart(first, read_top_logprobs(answer, k)))
    moved = max(moves, default=float("inf"))
    if moved == float("inf"):
        return None, "it gives no lists of longer answers"
    allowed = max(_OFF, 4 * look.noise)
    return moved <= allowed, f"the first list of a longer answer is {moved:.2g} nats from that of one token"


async def _rows(look: Looking, kind: Kind) -> Outcome:
    route = look.found.text_route if kind == "text" else None
    if route in (None, "top_k", "top_k_ids", "sampled"):
        return None, "its scores are read from lists"
    tokenizer = None
    if look.found.family is not None:
        tokenizer = RemoteTokenizer(look.api.client, look.api.options.model, look.found.family)
    moves = []
    for prompt in (_TOLD, _LONG, *map(_PLACE.format, _PLACES[:3])):
        top = await _list(look, kind, prompt)
        if isinstance(top, BackendError):
            continue
        words = [t for t in top.tokens if t.text[:1] == " " and t.text.strip().isalpha() and top.identifies(t)]
        chosen = [words[at] for at in _RANKS if at < len(words)]
        request = ScoreRequest(prompt, tuple(t.text for t in chosen))
        answer = await look.ask(score, look.api, request, tokenizer) if chosen else None
        if answer is None or isinstance(answer, BackendError):
            continue
        of_words = [(one, t) for one, t in zip(answer.scores, chosen, strict=True) if one.exactness == "exact"]
        moves += [abs(one.high - t.logprob) for one, t in of_words if len(one.tokens) == 1]
    if not moves:
        return None, "no word of a list could be scored"
    allowed = max(_OFF, 4 * look.noise)
    return max(moves) <= allowed, f"{len(moves)} scores by {route} are up to {max(moves):.2g} nats from the lists"


async def _drawn(look: Looking, kind: Kind) -> Outcome:
    places, count = list[Place](), _DRAWS if look.found.choices > 1 else _ONE_BY_ONE
    for name in _PLACES:
        prompt = _PLACE.format(name)
        top = await _list(look, kind, prompt)
        if isinstance(top, BackendError):
            continue
        asked = prompt if kind == "text" else (Message("user", prompt),)
        request = GenerateRequest(asked, Sampling(temperature=1.0, max_tokens=1))
        drawn = await look.ask(draws, look.api, request, count)
        if not isinstance(drawn, BackendError):
            places.append(Place.of(top, [one.text for one in drawn if one is not None]))
    n = sum(len(place.drawn) for place in places)
    if not n:
        return None, "it draws no single words"
    chance, too_likely = surprise(places)
    fit = "fit its lists" if chance > LEVEL else f"are too {'likely' if too_likely else 'unlikely'} by its lists"
    return chance > LEVEL, f"{n} words drawn without lists {fit}"


_EXPERIMENTS: tuple[tuple[str, Callable[[Looking, Kind], Awaitable[Outcome]]], ...] = (
    ("near twins", _twins),
    ("turns", _turns),
    ("repetition", _repeated),
    ("longer answers", _longer),
    ("rows against lists", _rows),
    ("draws", _drawn),
)
