"""Experiments with the log-probabilities of whole texts, compared with lists token by token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

from backends.errors import BackendError
from backends.openai.capabilities import TextRoute
from backends.openai.probe.experiments.chosen import by_chosen_tokens, by_score_endpoint
from backends.openai.probe.experiments.rows import SEQUENCES, STORY, ZONES, Row, RowsCompared, refuted, when_repeated
from backends.openai.probe.session import (
    MAX_NOISE,
    NEGLIGIBLE,
    NotTestedError,
    Outcome,
    ProbeSession,
    experiment,
)
from backends.openai.scoring.prompt_logprobs import echoed, prompt_logprobs

ReadRows = Callable[[str], Awaitable[list[Row]]]
#: Words that do not follow from each other: most are below the likeliest that a short list holds.
_RARE = (
    "The copper midwife Thursday window careful seven river apple secretary quiet Berlin November meeting blue pilot"
)
#: Longer than two of vLLM's cache blocks of 16 tokens: shorter texts are not served from the cache.
_LONG = ", ".join(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday") * 3)
_OTHER_END = _LONG.removesuffix("Sunday") + "Tuesday"
_MAX_COMPARED, _MIN_COMPARED = 5, 3
_OTHER_START = STORY.replace("apple", "stone", 1)
#: How many rows of each part of the long text are compared with lists.
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
    await by_chosen_tokens(session)
    await by_score_endpoint(session)
    if "text" in session.untrusted:
        return
    agrees = {check.name for check in session.checks if check.passed}
    route: TextRoute = "top_k_ids" if session.tokenizer and session.capabilities.takes_ids else "top_k"
    if "logprob_token_ids" in agrees:
        route = "logprob_token_ids"
    elif "score endpoint" in agrees:
        route = "score_endpoint"
    elif "prompt_logprobs" in agrees:
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


def _too_certain(rows: Sequence[Row]) -> str:
    """What is wrong with the rows of unrelated words, few of which a model can expect; empty if nothing is."""
    expected = sum(value > math.log(0.5) for *_, value in rows)
    return f"{expected} of {len(rows)} are said to be expected" if expected > len(rows) / 3 else ""


def _likeliest(rows: Sequence[Row]) -> list[Row]:
    """Rows of whole words that a short list will probably hold, and that are not certain."""
    open_rows = [row for row in rows if row[1].startswith(" ") and row[2] < _CERTAIN]
    return sorted(open_rows, key=lambda row: -row[2])[:_OF_A_ZONE]


def _unmoved(story: Sequence[Row], other: Sequence[Row], tolerance: float) -> str:
    """The part of the rows that stay the same although the text's start differs; empty if there is none."""
    if len(story) != len(other):
        return ""
    for start, end in ZONES:
        pairs = list(zip(story, other, strict=True))[int(start * len(story)) : int(end * len(story))]
        if pairs and all(abs(a[2] - b[2]) <= tolerance for a, b in pairs):
            return f"{100 * start:.0f} to {100 * end:.0f} %"
    return ""


async def _compared(session: ProbeSession, read: ReadRows, route: str) -> Outcome:
    """Whether a route over whole texts agrees with lists token by token, and is repeatable.

    If they disagree, draws decide between the two; without a decision, no score of a text is trusted.
    """
    found = RowsCompared()
    first: list[Row] = []
    for text in SEQUENCES:
        rows = await session.ask(read, text)
        if isinstance(rows, BackendError):
            return Outcome(None if rows.kind in _REFUSED else False, str(rows))
        first += rows
        await found.compare(session, rows[-_MAX_COMPARED:])
    if found.diff > session.tolerance():
        return Outcome(False, await refuted(session, route, found, "tokens"))
    rare = await session.ask(read, _RARE)
    if isinstance(rare, BackendError) and rare.kind != "inconsistent":
        return Outcome(False, f"failed on unrelated words: {rare}")
    if problem := str(rare) if isinstance(rare, BackendError) else _too_certain(rare):
        session.distrust("text", f"{route} of unrelated words: {problem}")
        return Outcome(False, f"unrelated words: {problem}")
    story, other = [await session.ask(read, text) for text in (STORY, _OTHER_START)]
    if isinstance(story, BackendError) or isinstance(other, BackendError):
        return Outcome(False, f"failed on a long text: {story if isinstance(story, BackendError) else other}")
    if unmoved := _unmoved(story, other, session.tolerance()):
        return Outcome(False, f"{unmoved} of a long text's rows do not depend on its start")
    long = RowsCompared()
    for start, end in ZONES:
        await long.compare(session, _likeliest(story[int(start * len(story)) : int(end * len(story))]))
    first += story
    if long.diff > max(session.tolerance(), _LONG_NOISE):
        return Outcome(False, await refuted(session, route, long, "of a long text's tokens"))
    if not long.compared:
        return Outcome(False, "no row of a long text could be compared")
    if (compared := found.compared + long.compared) < _MIN_COMPARED:
        k = session.capabilities.largest_k
        return Outcome(False, f"only {compared} of its tokens are in lists of {k}: {_MIN_COMPARED} must be compared")
    message = f"differs by {found.diff:.2g} nats from asking token by token, over {found.compared} tokens"
    message = f"{message}, by {long.diff:.2g} over {long.compared} of a long text"
    return when_repeated(session, message, await _noise(session, read, first), long.diff)


async def _noise(session: ProbeSession, read: ReadRows, first: list[Row]) -> float | BackendError:
    """How far the values move when texts are repeated, or sent beside one that begins the same way."""
    readings = [await session.ask(read, text) for text in (*SEQUENCES, _LONG)]
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
