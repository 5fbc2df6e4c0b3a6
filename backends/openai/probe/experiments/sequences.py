"""Experiments with the log-probabilities of whole texts, compared with lists token by token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from backends.errors import BackendError
from backends.openai.capabilities import TextRoute
from backends.openai.probe.experiments.draws import DECIDED, settle
from backends.openai.probe.session import (
    MAX_NOISE,
    NEGLIGIBLE,
    NotTestedError,
    Outcome,
    ProbeSession,
    experiment,
)
from backends.openai.scoring.prompt_logprobs import echoed, prompt_logprobs

#: (text before, token, its log-probability)
Row = tuple[str, str, float]
ReadRows = Callable[[str], Awaitable[list[Row]]]
#: Predictable texts: a short list holds their tokens, and a shifted row is obvious.
_SEQUENCES = ("Monday, Tuesday, Wednesday, Thursday", "Paris is the capital of France, Rome is the capital of Italy")
#: Longer than two of vLLM's cache blocks of 16 tokens: shorter texts are not served from the cache.
_LONG = ", ".join(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday") * 3)
_OTHER_END = _LONG.removesuffix("Sunday") + "Tuesday"
_MAX_COMPARED, _MIN_COMPARED = 5, 3
#: Some 180 tokens of few distinct words, and the same with another first word: rows that ignore it do not change.
_TOLD = " ".join(
    f"On {day} {who} told {whom}." + f" {_SEQUENCES[0]}." * (day == "Wednesday")
    for day, who, whom in zip(
        ("Friday", "Monday", "Sunday", "Tuesday", "Thursday", "Saturday", "Wednesday") * 3,
        ("Anna", "Ben", "Clara", "Ben", "Anna") * 6, ("David", "Clara", "Anna") * 10, strict=False,
    )
)  # fmt: skip
_STORY = f"The password is apple. {_TOLD} The password is apple"
_OTHER_START = _STORY.replace("apple", "stone", 1)
#: Parts of the long text, as shares of its rows, and how many rows of each are compared with lists.
_ZONES = ((0.3, 0.5), (0.5, 0.75), (0.75, 1.0))
_OF_A_ZONE = 3
#: Nats. A token likelier than this has nearly the same value after any text.
_CERTAIN = -0.03
#: Nats. In half precision, a long text's rows and the list after the same text are rounded differently.
_LONG_NOISE = 0.05
_REFUSED = ("bad_request", "not_found", "unsupported", "server")


async def text_route(session: ProbeSession) -> None:
    """Choose the best route for texts whose numbers agree with lists token by token."""
    if session.capabilities.repeat_noise > MAX_NOISE:
        return
    await by_prompt_logprobs(session)
    await by_echo(session)
    if "text" in session.untrusted:
        return
    agrees = {check.name for check in session.checks if check.passed}
    route: TextRoute = "top_k_ids" if session.tokenizer and session.capabilities.takes_ids else "top_k"
    if "prompt_logprobs" in agrees:
        route = "prompt_logprobs"
    elif "echo" in agrees and not session.by_ids:
        route = "echo"
    session.update(text_route=route)


@experiment("prompt_logprobs")
async def by_prompt_logprobs(session: ProbeSession) -> Outcome:
    """Whether the log-probabilities of a prompt's token ids are true."""
    tokenizer = session.tokenizer
    if tokenizer is None or not session.capabilities.takes_ids:
        raise NotTestedError("not tried: needs prompts as token ids")

    async def read(text: str) -> list[Row]:
        pieces = await tokenizer.pieces(text)
        values = await prompt_logprobs(session.api, [p.token_id for p in pieces])
        rows, before = [], ""
        for piece, value in zip(pieces, values, strict=True):
            token = piece.data.decode()
            if value is not None and before and token.strip().isalpha():
                rows.append((before, token, value))
            before += token
        return rows

    return await _compared(session, read, "prompt_logprobs")


@experiment("echo")
async def by_echo(session: ProbeSession) -> Outcome:
    """Whether the log-probabilities of an echoed prompt are true."""
    readable = False

    async def read(text: str) -> list[Row]:
        nonlocal readable
        tokens = await echoed(session.api, text)
        readable = True
        return [
            (text[: t.start], t.text, t.logprob)
            for t in tokens
            if t.logprob is not None and t.start > 0 and t.text.strip().isalpha()
        ]

    outcome = await _compared(session, read, "echo")
    if readable:
        session.record("echoed rows", Outcome(True, "tokens and offsets give the text back; only the first is null"))
    return outcome


@dataclass
class _Found:
    """How far rows are from the lists after the same text, in nats, and where the probabilities differ most."""

    compared: int = 0
    diff: float = 0.0
    farthest: tuple[float, str, str, float, float] | None = None

    async def compare(self, session: ProbeSession, rows: Sequence[Row]) -> None:
        """Add these rows, as far as the list identifies their tokens."""
        for before, token, value in rows:
            top = await session.next_tokens(before, min(session.capabilities.largest_k, 1000))
            if isinstance(top, BackendError):
                continue
            entries = top.by_bytes(token.encode())
            if len(entries) == 1 and top.identifies(entries[0]):
                self.compared += 1
                listed = entries[0].logprob
                self.diff = max(self.diff, abs(listed - value))
                apart = abs(math.exp(listed) - math.exp(value))
                self.farthest = max(self.farthest or (-1.0, "", "", 0.0, 0.0), (apart, before, token, listed, value))


def _likeliest(rows: Sequence[Row]) -> list[Row]:
    """Rows of whole words that a short list will probably hold, and that are not certain."""
    open_rows = [row for row in rows if row[1].startswith(" ") and row[2] < _CERTAIN]
    return sorted(open_rows, key=lambda row: -row[2])[:_OF_A_ZONE]


def _unmoved(story: Sequence[Row], other: Sequence[Row], tolerance: float) -> str:
    """The part of the rows that stay the same although the text's start differs; empty if there is none."""
    if len(story) != len(other):
        return ""
    for start, end in _ZONES:
        pairs = list(zip(story, other, strict=True))[int(start * len(story)) : int(end * len(story))]
        if pairs and all(abs(a[2] - b[2]) <= tolerance for a, b in pairs):
            return f"{100 * start:.0f} to {100 * end:.0f} %"
    return ""


async def _compared(session: ProbeSession, read: ReadRows, route: str) -> Outcome:
    """Whether a route over whole texts agrees with lists token by token, and is repeatable.

    If they disagree, draws decide between the two; without a decision, no score of a text is trusted.
    """
    found = _Found()
    first: list[Row] = []
    for text in _SEQUENCES:
        rows = await session.ask(read, text)
        if isinstance(rows, BackendError):
            return Outcome(None if rows.kind in _REFUSED else False, str(rows))
        first += rows
        await found.compare(session, rows[-_MAX_COMPARED:])
    if found.diff > session.tolerance():
        return Outcome(False, await _refuted(session, route, found, "tokens"))
    story, other = [await session.ask(read, text) for text in (_STORY, _OTHER_START)]
    if isinstance(story, BackendError) or isinstance(other, BackendError):
        return Outcome(False, f"failed on a long text: {story if isinstance(story, BackendError) else other}")
    if unmoved := _unmoved(story, other, session.tolerance()):
        return Outcome(False, f"{unmoved} of a long text's rows do not depend on its start")
    long = _Found()
    for start, end in _ZONES:
        await long.compare(session, _likeliest(story[int(start * len(story)) : int(end * len(story))]))
    first += story
    if long.diff > max(session.tolerance(), _LONG_NOISE):
        return Outcome(False, await _refuted(session, route, long, "of a long text's tokens"))
    if not long.compared:
        return Outcome(False, "no row of a long text could be compared")
    message = f"differs by {found.diff:.2g} nats from asking token by token, over {found.compared} tokens"
    if found.compared < _MIN_COMPARED:
        return Outcome(False, message if found.compared else "could not be compared")
    noise = await _noise(session, read, first)
    if isinstance(noise, BackendError):
        return Outcome(False, f"{message}; failed when repeated: {noise}")
    message = f"{message}, by {long.diff:.2g} over {long.compared} of a long text; by {noise:.2g} when repeated"
    if noise > session.tolerance():
        return Outcome(False, message)
    return Outcome(True, message, repeat_noise=max(session.capabilities.repeat_noise, noise, long.diff))


async def _refuted(session: ProbeSession, route: str, found: _Found, what: str) -> str:
    """The message for rows that disagree with the lists."""
    assert found.farthest is not None
    verdict = await _settled(session, route, found.diff, found.farthest)
    return f"differs by {found.diff:.2g} nats from asking token by token, over {found.compared} {what}; {verdict}"


async def _settled(
    session: ProbeSession, route: str, diff: float, farthest: tuple[float, str, str, float, float]
) -> str:
    """Let draws decide between the lists and another route, at the token where they differ most."""
    _, before, token, listed, value = farthest
    try:
        evidence, n = await settle(session, before, token, listed, value)
    except NotTestedError as reason:
        evidence, n = 0.0, 0
        session.distrust("text", f"{route} is {diff:.2g} nats from its lists, and {reason}")
    if evidence >= DECIDED:
        session.statements.append(
            f"{route} is up to {diff:.2g} nats from its lists. {n} draws after {before[-30:]!r} decided for the lists, "
            f"at odds of more than 1000 to 1; {route} is not used"
        )
        return f"{n} draws decided for the lists"
    verdict = "decided against the lists" if evidence <= -DECIDED else "did not decide"
    session.distrust("text", f"{route} is {diff:.2g} nats from its lists, and {n} draws {verdict}")
    return f"{n} draws {verdict}"


async def _noise(session: ProbeSession, read: ReadRows, first: list[Row]) -> float | BackendError:
    """How far the values move when texts are repeated, or sent beside one that begins the same way."""
    readings = [await session.ask(read, text) for text in (*_SEQUENCES, _LONG)]
    readings += await asyncio.gather(*(session.ask(read, text) for text in (_LONG, _OTHER_END)))
    first_values = {(before, token): value for before, token, value in first}
    largest = 0.0
    for rows in readings:
        if isinstance(rows, BackendError):
            return rows
        for before, token, value in rows:
            then = first_values.setdefault((before, token), value)
            if max(then, value) > NEGLIGIBLE:
                largest = max(largest, abs(then - value))
    return largest
