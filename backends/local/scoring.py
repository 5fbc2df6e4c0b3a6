"""Score requests on a model in this process: text to token paths, and their log-probabilities back to scores.

The engine supplies its tokenizer and a function that scores a trie of paths; everything in between is the same
for transformers, llama.cpp and vLLM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from backends.base import Answer, Boundary, OnResponse, ScoreRequest
from backends.errors import BackendError, StoppedError
from backends.local.backend import discard_response
from backends.local.encoder import TextEncoder
from backends.local.plans import Limits, Plan, encode, locate_all, make_plans
from backends.local.scores import answer_of
from backends.local.trie import Branches, Floats, Ints, Path, Trie


@dataclass(frozen=True, slots=True)
class Known:
    """The values (nats) of some asks of a trie, or why they have none."""

    asks: Ints
    values: Floats | BackendError


class Computes(Protocol):
    """Computes tries on one loaded model."""

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        """Compute a trie pass by pass, and give what each pass answers: every ask once. May be closed between two."""


class Scorer(Computes, Limits, Protocol):
    """Scores token paths on one loaded model."""

    @property
    def route(self) -> str:
        """How it computes; stored with each score."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests ready to be scored: the plan of each, the places of those that can be, and their trie."""

    plans: list[Plan]
    places: list[int]
    trie: Trie


def prepare(requests: Sequence[ScoreRequest], encoder: TextEncoder, scorer: Scorer) -> Batch:
    """Plan requests. The model computes nothing."""
    return _batch_of(make_plans(requests, encoder, scorer))


def _batch_of(plans: list[Plan], places: Sequence[int] | None = None) -> Batch:
    among = range(len(plans)) if places is None else places
    sound = [i for i in among if plans[i].ending is not None]
    groups = [(plan.head, plan.ending.branches) for i in sound if (plan := plans[i]).ending is not None]
    return Batch(plans, sound, Trie(groups))


def score_batch(
    batch: Batch,
    scorer: Scorer,
    on_response: OnResponse = discard_response,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Answer]:
    """One answer for each request of a batch; ``on_response`` is called with each as soon as it is known.

    ``is_stopped`` is asked after each pass; once it says so, no other is begun, and the requests left are answered
    with `StoppedError`. A request that fails does not fail the others: one that fails alone among sound ones is odd
    itself, but several may have been spoilt by one, since a NaN reaches its neighbours in the same pass even through
    masked attention. They are tried again in halves until the odd ones are alone.
    """
    answers: dict[int, Answer] = {}

    def tell(i: int, found: Answer) -> None:
        answers[i] = found
        on_response(i, found)

    for i, plan in enumerate(batch.plans):
        if plan.error is not None:
            tell(i, plan.error)
    waiting = [batch]
    while waiting:
        failed = {} if is_stopped() else _score_once(waiting.pop(), scorer, tell, is_stopped)
        again = [i for i, error in failed.items() if error.kind == "internal"]
        halves = [again[: len(again) // 2], again[len(again) // 2 :]] if len(again) > 1 else []
        waiting += [_batch_of(batch.plans, half) for half in halves]
        for i, error in failed.items():
            if not (halves and i in again):
                tell(i, error)
        if is_stopped():
            break
    return [answers[i] if i in answers else StoppedError() for i in range(len(batch.plans))]


def _score_once(
    batch: Batch, scorer: Scorer, tell: OnResponse, is_stopped: Callable[[], bool]
) -> dict[int, BackendError]:
    """Score a batch, and tell the answers. Returns the errors of those that have none; nothing of those stopped."""
    trie, plans = batch.trie, batch.plans
    values = np.full(len(trie.ask_nodes), np.nan)
    left = np.bincount(trie.group_of_ask, minlength=len(batch.places))
    errors: dict[int, BackendError] = {}
    untold = set(range(len(batch.places)))

    def answer(group: int) -> None:
        untold.discard(group)
        plan = plans[batch.places[group]]
        assert plan.ending is not None
        found: Answer | None = errors.get(batch.places[group])
        if found is None:
            found = answer_of(plan.ending, plan.prompt_tokens, values[trie.asks_of(group)], scorer.route)
        if isinstance(found, BackendError):
            errors[batch.places[group]] = found
        else:
            tell(batch.places[group], found)

    try:
        for group in np.flatnonzero(left == 0).tolist():  # nothing is asked of the model
            answer(group)
        with contextlib.closing(scorer.passes(trie)) as passes:
            for known in passes:
                groups = trie.group_of_ask[known.asks]
                if isinstance(known.values, BackendError):
                    errors |= {batch.places[group]: known.values for group in set(groups.tolist())}
                else:
                    values[known.asks] = known.values
                left -= np.bincount(groups, minlength=len(left))
                for group in np.unique(groups[left[groups] == 0]).tolist():
                    answer(group)
                if is_stopped():
                    return errors
    except Exception as error:  # foreign code: it may fail in any way
        failure = BackendError.of(error)
        errors |= {batch.places[group]: failure for group in untold}
    return errors


def logprobs(engine: Computes, paths: Sequence[Path]) -> list[Floats | BackendError]:
    """For each path the log-probabilities (nats) of its scored tokens, then of its token set; or the error."""
    branches = Branches(paths)
    trie = Trie([((), branches)])
    values = np.full(len(trie.ask_nodes), np.nan)
    errors: dict[int, BackendError] = {}
    for known in engine.passes(trie):
        if isinstance(known.values, BackendError):
            errors |= dict.fromkeys(known.asks.tolist(), known.values)
        else:
            values[known.asks] = known.values
    asks_of = [trie.asks_of(0)[asks] for asks in branches.asks_of]
    return [next((errors[ask] for ask in asks.tolist() if ask in errors), values[asks]) for asks in asks_of]


def boundaries(requests: Sequence[ScoreRequest], encoder: TextEncoder) -> list[tuple[Boundary, ...] | BackendError]:
    """How prompt and continuations of each request meet, or why it cannot be scored; the model is not needed."""
    found: list[tuple[Boundary, ...] | BackendError] = []
    for request, encoded in encode(requests, encoder):
        try:
            splits = list(locate_all(request, encoded, encoder))
            for remainder in {split.remainder for split in splits if split.remainder}:
                encoder.vocabulary.tokenizations(remainder)  # refuses what has too many
        except Exception as error:
            found.append(BackendError.of(error))
        else:
            found.append(tuple(split.boundary for split in splits))
    return found
