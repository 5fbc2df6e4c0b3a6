"""How fast a model answered each kind of request, measured from the times at which its answers were stored."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audit.collect.items import CHARACTERS_PER_TOKEN, PROMPT_TOKENS_PER_GENERATED, shared_length
from audit.store import Store, StoredAnswer
from backends.base import GenerateRequest, GenerateResponse, Request, ScoreRequest

MOST_ANSWERS = 4000  # latest answers that a pace is measured from
FEWEST_BATCHES = 3  # with fewer, the time to load the model may be all that is measured
_IDLE = 20  # a gap of more than this many median gaps is no work: another run, or a pause


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds for a token, read (kind ``score``) or generated (kind ``generate``).

    ``length`` is the mean length of the texts, as a share of the most tokens they were allowed; 1 for scores.
    """

    seconds_per_token: float
    length: float
    source: str


def tokens_of(request: Request, shared_characters: int = 0) -> float:
    """Tokens that set a request's time: those generated at most, or those of its texts that are not shared."""
    match request:
        case GenerateRequest():
            return float(request.sampling.max_tokens)
        case ScoreRequest(prompt, continuations):
            text = prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)
            characters = max(1, len(text) - shared_characters) + sum(map(len, continuations))
        case _:
            characters = len(request.text)
    return characters / CHARACTERS_PER_TOKEN


def measure_paces(store: Store, fingerprint: str) -> dict[str, Pace]:
    """The pace of each kind of request that a model has answered often enough; where one is, the other follows.

    A generated token takes about as long as `PROMPT_TOKENS_PER_GENERATED` tokens that are read.
    """
    batches: dict[str, list[tuple[float, list[StoredAnswer]]]] = defaultdict(list)
    answers = store.answers.latest(fingerprint, MOST_ANSWERS)
    previous: float | None = None
    for at, group in itertools.groupby(answers, key=lambda answer: answer.at):
        batch = list(group)
        if previous is not None and len({answer.request_kind for answer in batch}) == 1:
            batches[batch[0].request_kind].append((at - previous, batch))
        previous = at
    paces = {kind: pace for kind, of_kind in batches.items() if (pace := _pace(of_kind)) is not None}
    for known, other, factor in (
        ("score", "generate", PROMPT_TOKENS_PER_GENERATED),
        ("generate", "score", 1 / PROMPT_TOKENS_PER_GENERATED),
    ):
        if known in paces and other not in paces:
            source = f"guessed from the pace of its {known} requests"
            paces[other] = Pace(paces[known].seconds_per_token * factor, 1.0, source)
    return paces


def _pace(batches: Sequence[tuple[float, list[StoredAnswer]]]) -> Pace | None:
    if len(batches) < FEWEST_BATCHES:
        return None
    longest = _IDLE * statistics.median(gap for gap, _ in batches)
    worked = [(gap, batch) for gap, batch in batches if gap <= longest]
    answers = [answer for _, batch in worked for answer in batch]
    seconds, (done, allowed) = sum(gap for gap, _ in worked), _tokens(answers)
    if not done or not seconds:
        return None
    return Pace(seconds / done, done / allowed, f"from its last {len(answers):,} answers")


def _tokens(answers: Sequence[StoredAnswer]) -> tuple[float, float]:
    """Tokens of the answers, and the most there could have been."""
    done = allowed = 0.0
    previous, shared = "", ""
    for answer in answers:
        request = answer.request
        if isinstance(request, GenerateRequest) and isinstance(answer.answer, GenerateResponse):
            done += answer.answer.completion_tokens
            allowed += request.sampling.max_tokens
        elif isinstance(request, ScoreRequest):
            text = request.prompt if isinstance(request.prompt, str) else str(request.prompt)
            if text != previous:  # one row for each continuation of the same prompt
                shared, previous = previous, text
                tokens = tokens_of(request, shared_length(shared, text))
            else:
                tokens = sum(map(len, request.continuations)) / CHARACTERS_PER_TOKEN
            done, allowed = done + tokens, allowed + tokens
    return done, allowed


def seconds_of(tokens: Mapping[str, float], paces: Mapping[str, Pace]) -> float | None:
    """Seconds that these tokens of each kind take; None where a kind has no pace."""
    if any(count and kind not in paces for kind, count in tokens.items()):
        return None
    return sum(count * paces[kind].seconds_per_token * paces[kind].length for kind, count in tokens.items() if count)
