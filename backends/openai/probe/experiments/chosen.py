"""Experiments with log-probabilities of chosen tokens, compared with lists and with the prompt's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from backends.errors import BackendError
from backends.http.together import together
from backends.openai.probe.experiments.rows import SEQUENCES, STORY, ZONES, Row, RowsCompared, refuted, when_repeated
from backends.openai.probe.session import NEGLIGIBLE, NotTestedError, Outcome, ProbeSession, accepted, experiment
from backends.openai.scoring.chosen_tokens import AskChosen, Chosen, Ids, chosen_by_completions, chosen_by_score
from backends.openai.scoring.prompt_logprobs import echoed, prompt_logprobs
from backends.openai.scoring.tokenizer import Piece, RemoteTokenizer

#: Places of a short text after which tokens are asked for. Each part of the long one has one, before the word that all
#: of its sentences have, so that a short list holds it.
_OF_A_TEXT, _EXPECTED = 2, "told"
#: Words of the list at each place of the long text that are asked for too.
_OF_A_LIST = 2
#: Nats by which what is said of another place's words may differ from the lists: half precision.
_OFF = 0.05
#: Places at which a token that no list holds is compared with the prompt's own log-probabilities.
_N_UNLIKELY = 2
_MIN_COMPARED = 3
#: One of so many places is asked about again.
_REPEATED = 4


@experiment("logprob_token_ids")
async def by_chosen_tokens(session: ProbeSession) -> Outcome:
    """Whether ``logprob_token_ids`` gives chosen tokens their right values (vLLM)."""
    return await _compared(session, chosen_by_completions, "logprob_token_ids")


@experiment("score endpoint")
async def by_score_endpoint(session: ProbeSession) -> Outcome:
    """Whether the score endpoint gives chosen tokens their right values (SGLang)."""
    return await _compared(session, chosen_by_score, "score endpoint")


async def _compared(session: ProbeSession, ask: AskChosen, route: str) -> Outcome:
    """Whether a route is repeatable and agrees with lists, and with ``prompt_logprobs`` where no list reaches."""
    tokenizer = session.tokenizer
    if tokenizer is None or not session.capabilities.takes_ids:
        raise NotTestedError("not tried: needs prompts as token ids")
    places = [place for text in (*SEQUENCES, STORY) for place in await _places(session, tokenizer, text)]
    others = [piece for _, piece in places]
    offered = await session.ask(_in_parts, session, ask, _wanted(places[:1], others))
    if isinstance(offered, BackendError):
        return _not_offered(offered)
    listed = {piece.token_id: piece for before, _ in places[-len(ZONES) :] for piece in await _listed(session, before)}
    others += listed.values()
    wanted = _wanted(places, others)
    first = await session.ask(_in_parts, session, ask, wanted)
    if isinstance(first, BackendError):
        return _not_offered(first)
    found = RowsCompared()
    await found.compare(session, [_row(before, piece, first) for before, piece in places])
    if found.diff > session.tolerance():
        return Outcome(False, await _outvoted(session, route, found))
    elsewhere = RowsCompared()
    await elsewhere.compare(session, [_row(before, piece, first) for before, _ in places for piece in others])
    if elsewhere.diff > max(session.tolerance(), _OFF):
        return Outcome(False, await _outvoted(session, route, elsewhere))
    message = f"differs by {found.diff:.2g} nats from lists, over {found.compared} tokens"
    if found.compared < _MIN_COMPARED:
        k = session.capabilities.largest_k
        return Outcome(False, f"only {found.compared} tokens are in lists of {k}: {_MIN_COMPARED} must be compared")
    unlikely = await _unlikely(session, places, first)
    if unlikely is None:
        return Outcome(False, f"{message}; nothing to compare a token with that no list holds")
    if unlikely > session.tolerance():
        session.distrust("text", f"{route} is {unlikely:.2g} nats from the prompt's own values for unlikely tokens")
        return Outcome(False, f"{message}; {unlikely:.2g} nats from the prompt's own values for unlikely ones")
    noise = await _noise(session, ask, dict(list(wanted.items())[::_REPEATED]), first)
    return when_repeated(session, f"{message}, by {unlikely:.2g} for unlikely ones", noise, found.diff)


def _not_offered(error: BackendError) -> Outcome:
    return Outcome(False if error.kind == "inconsistent" else None, f"not offered: {error}"[:100])


def _wanted(places: Sequence[tuple[tuple[Piece, ...], Piece]], asked: Sequence[Piece]) -> dict[Ids, list[int]]:
    return {tuple(p.token_id for p in before): [p.token_id for p in asked] for before, _ in places}


async def _outvoted(session: ProbeSession, route: str, found: RowsCompared) -> str:
    """The message for values that disagree with the lists. A proven route that agrees with these decides, or draws."""
    third = [check.name for check in session.checks if check.passed and check.name in ("prompt_logprobs", "echo")]
    if not third:
        return await refuted(session, route, found, "tokens")
    message = f"differs by {found.diff:.2g} nats from lists, over {found.compared} tokens; {third[0]} agrees with these"
    session.statements.append(f"{route} {message}, so {route} is not used")
    return message


async def _places(
    session: ProbeSession, tokenizer: RemoteTokenizer, text: str
) -> list[tuple[tuple[Piece, ...], Piece]]:
    """Some words of a text, each with the tokens before it."""
    pieces = accepted(await session.ask(tokenizer.pieces, text))
    words = [at for at, piece in enumerate(pieces) if at > 1 and piece.data.strip().isalpha()]
    if text != STORY:
        kept = words[-_OF_A_TEXT:]
    else:
        parts = [words[int(start * len(words)) : int(end * len(words))] for start, end in ZONES]
        kept = [next((at for at in part if _text(pieces[at]).strip() == _EXPECTED), part[0]) for part in parts if part]
    return [(pieces[:at], pieces[at]) for at in kept]


async def _listed(session: ProbeSession, before: Sequence[Piece]) -> list[Piece]:
    """The likeliest words of the list after these tokens that are one token each: what is chosen must agree there."""
    text, found = _text(*before), list[Piece]()
    top = await session.next_tokens(text, min(session.capabilities.largest_k, 1000))
    if isinstance(top, BackendError):
        return []
    session.lists_after[text] = top
    for token in sorted(top.tokens, key=lambda token: -token.logprob):
        if len(found) == _OF_A_LIST or not token.text.strip().isalpha() or not top.identifies(token):
            continue
        pieces = await session.ask(session.needed_tokenizer().pieces, text + token.text)
        if not isinstance(pieces, BackendError) and [*pieces[:-1]] == [*before] and _text(pieces[-1]) == token.text:
            found.append(pieces[-1])
    return found


async def _in_parts(session: ProbeSession, ask: AskChosen, wanted: dict[Ids, list[int]]) -> Chosen:
    """The values after each prefix; prefixes of one text share a request where the server takes several."""
    texts: dict[Ids, dict[Ids, list[int]]] = {}
    for prefix, ids in wanted.items():
        texts.setdefault(prefix[:2], {})[prefix] = ids
    answers = [await ask(session.api, part) for part in texts.values()]
    return {prefix: values for answer in answers for prefix, values in answer.items()}


def _row(before: Sequence[Piece], piece: Piece, found: Chosen) -> Row:
    return _text(*before), _text(piece), found[tuple(p.token_id for p in before)][piece.token_id]


def _text(*pieces: Piece) -> str:
    return b"".join(piece.data for piece in pieces).decode("utf-8", "replace")


async def _unlikely(
    session: ProbeSession, places: Sequence[tuple[tuple[Piece, ...], Piece]], found: Chosen
) -> float | None:
    """How far values of unlikely tokens are from the same read as the end of a prompt, in nats.

    The least likely one at one place, and at another the likeliest that its list does not hold: a floor, or coarse
    steps, change these by different amounts. None if no proven route reads a prompt's end.
    """
    agrees = {check.name for check in session.checks if check.passed}
    differences: list[float] = []
    for before, piece in places:
        values = found[tuple(p.token_id for p in before)]
        others = sorted((p for _, p in places if p.token_id != piece.token_id), key=lambda p: values[p.token_id])
        for other in _likeliest_unlisted(session, before, others) if differences else others[:1]:
            if "prompt_logprobs" in agrees:
                ids = [p.token_id for p in (*before, other)]
                read = await session.ask(prompt_logprobs, session.api, ids)
                value = None if isinstance(read, BackendError) else read[-1]
            elif "echo" in agrees and not session.by_ids:
                value = await _echoed(session, before, other)
            else:
                return None
            if value is not None:
                differences.append(abs(value - values[other.token_id]))
        if len(differences) == _N_UNLIKELY:
            break
    return max(differences) if len(differences) == _N_UNLIKELY else None


def _likeliest_unlisted(session: ProbeSession, before: Sequence[Piece], by_value: Sequence[Piece]) -> Sequence[Piece]:
    """The last of these pieces, in rising order, that the list at this place does not hold; the first if it has all."""
    top = session.lists_after.get(_text(*before))
    listed = {token.text for token in top.tokens} if top is not None else set()
    unlisted = [piece for piece in by_value if _text(piece) not in listed]
    return unlisted[-1:] or by_value[:1]


async def _echoed(session: ProbeSession, before: Sequence[Piece], piece: Piece) -> float | None:
    """The echoed value of a token at the end of a text; None if the text is split into other tokens."""
    text, token = _text(*before), _text(piece)
    tokens = await session.ask(echoed, session.api, text + token)
    return None if isinstance(tokens, BackendError) or tokens[-1].text != token else tokens[-1].logprob


async def _noise(
    session: ProbeSession, ask: AskChosen, wanted: dict[Ids, list[int]], first: Chosen
) -> float | BackendError:
    """How far values move when they are asked for again, twice at the same time."""
    repeated = await together(session.ask(_in_parts, session, ask, wanted) for _ in range(2))
    largest = 0.0
    for again in repeated:
        if isinstance(again, BackendError):
            return again
        pairs = [(first[p][i], value) for p, values in again.items() for i, value in values.items()]
        largest = max([largest, *(abs(a - b) for a, b in pairs if max(a, b) > NEGLIGIBLE)], default=math.inf)
    return largest
