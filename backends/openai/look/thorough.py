"""A long look, for whoever wants it: minutes and some hundred requests, for what the everyday checks do not see.

More near twins find what overlooks or rewrites parts of prompts; draws find lists of another model than the one that
draws. That a server repeats itself, and that scores and lists fit, a run checks on its own questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from backends.base import GenerateRequest, Message, Prompt, Sampling
from backends.errors import BackendError
from backends.openai.api import ServerApi
from backends.openai.generation import draws
from backends.openai.look.draw_test import LEVEL, Place, surprise
from backends.openai.look.first import BASE
from backends.openai.look.session import Kind, Look, Looking, alike
from backends.openai.scoring.top_logprobs import TopLogprobs

_MOST = 1000
_TOLD = 'Yesterday Anna told Ben: "The nurse found 17 letters & keys 😀 – in Zürich." Who found them?\nThe answer is'
_LONG = f"{BASE.removesuffix('Then she said that the')}\n" + BASE
_END = "Who found the letter? The answer:"
#: Prompts, and what is replaced in their twins: caches and gateways were met that overlook each.
_TWINS: Mapping[str, Sequence[tuple[str, str]]] = {
    _TOLD: (
        *(("Anna", "Clara"), ("nurse", "pilot"), ("Anna told Ben", "Ben told Anna"), ("17", "71"), ("Who", "who")),
        *((".", "!"), ("\n", " "), ("\n", "\n\n"), ("\n", "\\n"), ("ü", "ö"), ("ü", "u"), ("–", "-"), ("&", "and")),
        *(('"', "&quot;"), ('"', "“"), ("😀", "😢")),
    ),
    _LONG: (("Wednesday the nurse", "Wednesday the guard"), ("Friday the pilot", "Friday the guard")),
    _END: (("answer:", "answer:\n"),),
}
_ASKED = Message("user", "Was it a man or a woman? Answer with one word.")
_NAMED, _OTHER = Message("user", "My friend is called Anna."), Message("user", "My friend is called David.")
_HEARD, _NOT_HEARD = Message("assistant", "That is a good name."), Message("assistant", "Tomorrow it will rain.")
_MANY = (_HEARD, *(Message("user", "Go on."), Message("assistant", "I am listening.")) * 5, _ASKED)
_TURNS: Mapping[str, tuple[Prompt, Prompt]] = {
    "an earlier answer": ((_NAMED, _HEARD, _ASKED), (_NAMED, _NOT_HEARD, _ASKED)),
    "the first of many turns": ((_NAMED, *_MANY), (_OTHER, *_MANY)),
}
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
    looking.noise = look.capabilities.repeat_noise
    found: list[Experiment] = []
    for kind in (kind for kind in get_args(Kind) if kind in look.lists):
        for make in (_compare_twins, _compare_draws):
            found.append(await make(looking, kind))
            say(str(found[-1]))
    return found


def _prompt(kind: Kind, text: str) -> Prompt:
    return text if kind == "text" else (Message("user", text),)


def _groups(kind: Kind) -> Iterator[tuple[Prompt, Mapping[str, Prompt]]]:
    """Prompts and their twins by what differs."""
    for text, twins in _TWINS.items():
        yield _prompt(kind, text), {f"{a!r} and {b!r}": _prompt(kind, text.replace(a, b, 1)) for a, b in twins}
    if kind == "chat":
        yield from ((turns, {name: twin}) for name, (turns, twin) in _TURNS.items())


async def _compare_twins(look: Looking, kind: Kind) -> Experiment:
    compared, same = 0, list[str]()
    for prompt, twins in _groups(kind):
        base = await look.listed(kind, prompt)
        if isinstance(base, TopLogprobs):
            others = await look.lists_after(kind, twins)
            compared, same = compared + len(others), same + alike(base, others, look.noise)
    name = f"near twins of {kind}s"
    if same:
        return Experiment(name, False, f"prompts that differ by {', '.join(same)} got one list")
    return Experiment(name, True if compared else None, f"{compared} pairs of prompts got different lists")


async def _compare_draws(look: Looking, kind: Kind) -> Experiment:
    places, count = list[Place](), _DRAWS if look.found.choices > 1 else _ONE_BY_ONE
    for one in _PLACES:
        prompt = _prompt(kind, _PLACE.format(one))
        top = await look.listed(kind, prompt)
        if isinstance(top, BackendError):
            continue
        request = GenerateRequest(prompt, Sampling(temperature=1.0, max_tokens=1))
        drawn = await look.ask(draws, look.api, request, count)
        if not isinstance(drawn, BackendError):
            places.append(Place.of(top, [one.text for one in drawn if one is not None]))
    name, n = f"draws of {kind}s", sum(len(place.drawn) for place in places)
    if not n:
        return Experiment(name, None, "it draws no single words")
    chance, too_likely = surprise(places)
    fit = "fit its lists" if chance > LEVEL else f"are too {'likely' if too_likely else 'unlikely'} by its lists"
    return Experiment(name, chance > LEVEL, f"{n} words drawn without lists {fit}")
