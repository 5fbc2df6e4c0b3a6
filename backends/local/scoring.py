"""Score requests on a model in this process: text to token paths, and their log-probabilities back to scores.

The engine supplies its tokenizer and a function that scores paths; everything in between is the same
for transformers and llama.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backends.base import Answer, Boundary, OnResponse, ScoreRequest
from backends.errors import BackendError
from backends.local.backend import discard_response
from backends.local.encoder import TextEncoder
from backends.local.plans import Plan, encode, locate_all, make_plans
from backends.local.scores import Values, answer_of
from backends.local.trie import Path, Paths


class Scorer(Protocol):
    """Scores token paths on one loaded model."""

    @property
    def route(self) -> str:
        """How it computes; stored with each score."""

    @property
    def context(self) -> int | None:
        """Maximum tokens that the model may read for one path; None: no limit."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model has a logit for."""

    @property
    def pack_tokens(self) -> int:
        """Maximum tokens of one forward pass."""

    def logprobs(self, paths: Sequence[Path]) -> Values:
        """Log-probabilities (nats) of each path's scored tokens, then of its token set."""


#: Roughly the tokens that a request adds to a forward pass (an explicit prompt of OccuGender: 60).
_TOKENS_PER_REQUEST = 64


def score_requests(
    requests: Sequence[ScoreRequest],
    encoder: TextEncoder,
    scorer: Scorer,
    on_response: OnResponse = discard_response,
) -> list[Answer]:
    """One answer per request, in order; ``on_response`` is called with each as soon as it is known.

    About one forward pass of requests is scored at a time, sorted by tokens so that neighbours share
    prefixes. A request that fails does not fail the others.
    """
    plans = make_plans(requests, encoder, scorer)
    answers: list[Answer] = [plan.error or _UNSCORED for plan in plans]
    sound = [i for i, plan in enumerate(plans) if plan.error is None]
    sound.sort(key=lambda i: plans[i].first)
    size = max(1, scorer.pack_tokens // _TOKENS_PER_REQUEST)
    for start in range(0, len(sound), size):
        places = sound[start : start + size]
        for i, answer in zip(places, _answers([plans[i] for i in places], scorer), strict=True):
            answers[i] = answer
            on_response(i, answer)
    return answers


_UNSCORED = BackendError("internal", "its paths were not scored")


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


def _answers(plans: Sequence[Plan], scorer: Scorer) -> list[Answer]:
    """The plans' answers. If several fail together, they are tried again in halves until the odd ones are alone."""
    answers = _answers_together(plans, scorer)
    # One that fails alone among sound ones is odd itself. Several may have been spoilt by one: a NaN reaches its
    # neighbours in the same forward pass even through masked attention, since 0 times NaN is NaN.
    failed = [i for i, answer in enumerate(answers) if isinstance(answer, BackendError) and answer.kind == "internal"]
    if len(failed) > 1:
        middle = len(failed) // 2
        for half in (failed[:middle], failed[middle:]):
            for i, answer in zip(half, _answers([plans[i] for i in half], scorer), strict=True):
                answers[i] = answer
    return answers


def _answers_together(plans: Sequence[Plan], scorer: Scorer) -> list[Answer]:
    endings = [plan.ending for plan in plans if plan.ending is not None]
    try:
        paths = Paths([(plan.head, ending.branches) for plan, ending in zip(plans, endings, strict=True)])
        values = scorer.logprobs(paths) if paths else []
    except Exception as error:  # foreign code: it may fail in any way
        return [BackendError.of(error)] * len(plans)
    answers: list[Answer] = []
    end = 0
    for plan, ending in zip(plans, endings, strict=True):
        start, end = end, end + len(ending.branches)
        answers.append(answer_of(ending, plan.prompt_tokens, values[start:end], scorer.route))
    return answers
