"""Canary questions: asked repeatedly, their answers change only when the model does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import string
from collections.abc import Sequence

from backends.base import ContinuationScore, Message, ScoreRequest
from backends.errors import BackendError
from backends.http.retries import with_retries
from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe.report import CanaryValue, ProbeReport, Watched
from backends.openai.probe.session import MAX_NOISE, NEGLIGIBLE
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.next_tokens import next_chat_tokens, next_tokens
from backends.openai.scoring.routes import Routes
from backends.openai.scoring.top_logprobs import TopLogprobs

Canary = tuple[CanaryValue, ...]

_TEXTS = (
    ScoreRequest("Monday, Tuesday,", (" Wednesday", " Thursday")),
    ScoreRequest("Her brother is a", (" doctor", " nurse")),
)
#: Every model is certain of the day. The choice of a digit is specific to a model, and a short list holds all digits.
DIGIT_CHAT = (Message("user", "Pick a digit from 0 to 9 at random. Answer with the digit alone."),)
_CHATS = (
    ScoreRequest((Message("user", "Which day comes after Tuesday? Answer with one word."),), ("Wednesday", "Tuesday")),
    ScoreRequest(DIGIT_CHAT, tuple("0123456789")),
)
_N_TEXT_VALUES = sum(len(request.continuations) for request in _TEXTS)
#: Random questions for each probe, made from a name, an occupation, a place and an object.
_N_WATCHED = 2
_WATCHED_TEXT = "{0} met the {1} near the {2} with a {3} and gave"
_WATCHED_WORDS: tuple[str, ...] = (" the", " him")
_WATCHED_CHAT = "Pick the digit from 0 to 9 that suits {0}, a {1} from the {2} with a {3}. Answer with the digit alone."
#: Beside texts, fewer: each may take a request.
_FEW_DIGITS = ("3", "7")
#: Six answers to this practically never share their first 24 tokens.
_OPEN, DRAWS, _DRAWN_TOKENS = "A story about {0}, a {1}, near the {2} with a {3}:", 6, 24
_DRAWN_WORDS = (
    ("Anna", "Ben", "Clara", "David", "Emma", "Frank", "Greta", "Hugo", "Ida", "Jonas", "Karla", "Leo", "Mara", "Nils"),
    ("baker", "singer", "pilot", "farmer", "tailor", "painter", "driver", "guard", "lawyer", "poet", "cook"),
    ("river", "station", "library", "market", "harbour", "bridge", "museum", "garden", "school", "tower", "mill"),
    ("letter", "basket", "ladder", "lantern", "violin", "bicycle", "kettle", "hammer", "blanket", "mirror", "map"),
)
#: How many listed words are watched, among how many entries; a word begins with an ASCII letter, or a space before it.
_N_LISTED_WORDS, _LISTED, _WORD_STARTS = 3, 20, frozenset(" " + string.ascii_letters)
#: Nats by which a canary may always move, however small the server's noise, and the most by which it may move.
_MIN_TOLERANCE, _MAX_TOLERANCE = 0.02, 2 * MAX_NOISE
#: Steps of a grid, in nats, so wide that noise rarely crosses a grid line.
_FINE_GRID, _COARSE_GRID = 0.25, 2.0
#: Of a question that the server does not answer with a score.
_UNKNOWN = CanaryValue(None, 0.0)
_QUIET = 0.01


async def ask_canary(routes: Routes, capabilities: ServerCapabilities) -> Canary:
    """The canary's log-probabilities by the route that the audit uses."""
    if capabilities.text_route not in (None, "sampled"):
        requests = _TEXTS
    elif capabilities.chat_route not in (None, "sampled"):
        requests = _CHATS
    else:
        return ()  # a sampled text proves nothing; instead, the model's name is checked in every response
    values: list[CanaryValue] = []
    for request in requests:
        try:
            values += [canary_value(score) for score in (await with_retries(routes.score, request)).scores]
        except BackendError as error:
            if error.kind != "unsupported":
                raise
            values += [_UNKNOWN] * len(request.continuations)
    return tuple(values)


def random_questions(capabilities: ServerCapabilities) -> tuple[Watched, ...]:
    """Questions that no server can know before this probe: they expose one that is honest about the canary alone.

    They are asked in the probe and again with each canary. Where the canary is one of texts, a chat among them shows
    another chat template, or a system message of the server's own.
    """
    text = Watched(_WATCHED_TEXT, False, _WATCHED_WORDS, ())
    chat = Watched(_WATCHED_CHAT, True, tuple("0123456789"), ())
    forms: list[Watched] = []
    if capabilities.text_route not in (None, "sampled"):
        forms = [text] * _N_WATCHED
        if capabilities.chat_route not in (None, "sampled"):
            forms.append(chat._replace(continuations=_FEW_DIGITS))
    elif capabilities.chat_route not in (None, "sampled"):
        forms = [chat] * _N_WATCHED
    draw = random.SystemRandom()
    return tuple(
        form._replace(prompt=form.prompt.format(*(draw.choice(words) for words in _DRAWN_WORDS))) for form in forms
    )


async def with_listed_words(
    api: ServerApi, capabilities: ServerCapabilities, watched: Sequence[Watched]
) -> tuple[Watched, ...]:
    """The questions, with the words that the server lists first added as continuations: the others may be unlisted."""
    asked = []
    for question in watched:
        top: TopLogprobs | None = None
        with contextlib.suppress(BackendError):
            if question.is_chat:
                turns = (Message("user", question.prompt),)
                top = await with_retries(next_chat_tokens, api, turns, min(capabilities.largest_chat_k, _LISTED))
            elif capabilities.text_route in ("top_k", "top_k_ids"):
                top = await with_retries(next_tokens, api, question.prompt, min(capabilities.largest_k, _LISTED))
        texts = [token.text for token in top.tokens if top.identifies(token)] if top is not None else []
        words = [t.strip() if question.is_chat else t for t in texts if t.strip().isalpha() and t[:1] in _WORD_STARTS]
        # A chat's list may hold a word twice, with and without a space.
        likeliest = tuple(dict.fromkeys(w for w in words if w not in question.continuations))[:_N_LISTED_WORDS]
        asked.append(question._replace(continuations=(*question.continuations, *likeliest)))
    return tuple(asked)


async def draws_still_vary(routes: Routes, capabilities: ServerCapabilities) -> bool:
    """Whether drawn answers to a new random question differ; True if this server's draws are not used."""
    if "sampled" not in capabilities.routes:
        return True
    draw = random.SystemRandom()
    return await with_retries(
        routes.draws_vary, _OPEN.format(*(draw.choice(words) for words in _DRAWN_WORDS)), DRAWS, _DRAWN_TOKENS
    )


async def ask_watched(routes: Routes, watched: Sequence[Watched]) -> tuple[Watched, ...]:
    """The same questions with their current values."""
    asked = []
    for question in watched:
        prompt = (Message("user", question.prompt),) if question.is_chat else question.prompt
        try:
            scores = (await with_retries(routes.score, ScoreRequest(prompt, question.continuations))).scores
        except BackendError as error:
            if error.kind != "unsupported":
                raise
            continue
        asked.append(question._replace(values=tuple(canary_value(score) for score in scores)))
    return tuple(asked)


def largest_watched_move(then: Sequence[Watched], now: Sequence[Watched]) -> float:
    """`largest_move` over the questions that were answered both times."""
    values = {question.prompt: question.values for question in now}
    moves = [largest_move(question.values, values[question.prompt]) for question in then if question.prompt in values]
    return max(moves, default=0.0)


def canary_value(score: ContinuationScore) -> CanaryValue:
    """A score as a value; below `NEGLIGIBLE`, where noise is large, only as an upper bound."""
    if score.logprob is not None and score.logprob <= NEGLIGIBLE:
        return CanaryValue(None, NEGLIGIBLE)
    return CanaryValue(score.logprob, score.high)


def largest_move(then: Sequence[CanaryValue], now: Sequence[CanaryValue]) -> float:
    """The largest proven change of a canary, in nats: of a value, or from a value to an upper bound below it."""
    return max((_move(a, b) for a, b in zip(then, now, strict=True)), default=0.0)


def knows_less(then: Sequence[CanaryValue], now: Sequence[CanaryValue]) -> bool:
    """Whether a canary that had a value is not answered at all any more: its lists are gone."""
    return any(a.value is not None and b == _UNKNOWN for a, b in zip(then, now, strict=True))


def _move(a: CanaryValue, b: CanaryValue) -> float:
    if a.value is not None and b.value is not None:
        return abs(a.value - b.value)
    if a.value is None and b.value is None:
        return 0.0
    value, high = (a.value, b.high) if a.value is not None else (b.value, a.high)
    assert value is not None
    return max(0.0, value - high)


def move_since(report: ProbeReport, canary: Sequence[CanaryValue], watched: Sequence[Watched]) -> float:
    """How far the canary and the probe's random questions have moved since the probe, in nats."""
    return max(largest_move(report.canary, canary), largest_watched_move(report.watched, watched))


def tolerance(repeat_noise: float) -> float:
    """How far a canary of the same model may move, in nats."""
    return min(max(_MIN_TOLERANCE, 4 * repeat_noise), _MAX_TOLERANCE)


def coarse_identity(canary: Canary, repeat_noise: float) -> str:
    """The canary's first values, rounded to a grid so wide that the server's noise does not change them.

    For chats, only the values that every model is certain of: ten more would be ten more chances to cross a grid line.
    """
    grid = _FINE_GRID if repeat_noise < _QUIET else _COARSE_GRID
    stable = canary[: len(_CHATS[0].continuations)] if len(canary) > _N_TEXT_VALUES else canary
    return " ".join("-" if c.value is None else str(round(c.value / grid)) for c in stable)


def exact_identity(canary: Canary) -> str:
    """Identifies this particular measurement, for a model that replaced another under the same name."""
    return hashlib.sha256(json.dumps(canary).encode()).hexdigest()[:8]
