"""A long look, for whoever wants it: minutes and some hundred requests, for what the everyday checks do not see.

Near twins find what overlooks or rewrites parts of prompts; draws find lists of another model than the one that draws.
That a server repeats itself, and that scores and lists of longer answers fit, a run checks on its own questions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, get_args

from backends.base import GenerateRequest, Message, Sampling
from backends.errors import BackendError
from backends.openai.generation import draws
from backends.openai.look.draw_test import LEVEL, Place, surprise
from backends.openai.look.first import Look
from backends.openai.look.session import Kind, Looking, are_equal
from backends.openai.look.texts import BASE, COMPARED
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.next_tokens import next_chat_tokens, next_tokens
from backends.openai.scoring.top_logprobs import TopLogprobs

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
_ENDS = (("a line break at the end", "Who found the letter? The answer:", "Who found the letter? The answer:\n"),)
_PLACES = ("doctor", "nurse", "pilot", "baker", "teacher", "driver", "farmer", "cook", "guard", "painter")
_PLACE = "Q: Picture a {0}. What does the {0} see first?\nA:"
#: Draws at each place, in requests of 20 or one by one.
_DRAWS, _ONE_BY_ONE = 60, 12


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


async def _twins(look: Looking, kind: Kind) -> Outcome:
    pairs: list[tuple[str, Any, Any]] = [(name, _TOLD, _TOLD.replace(old, new, 1)) for name, old, new in _TWINS]
    pairs += [(name, _LONG, _LONG.replace(old, new)) for name, old, new in _LONG_TWINS]
    pairs += _TURNS if kind == "chat" else _ENDS
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
    ("draws", _drawn),
)
