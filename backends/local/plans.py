"""Plan requests for scores: the tokens of their texts, where the continuations begin, and the paths to score.

Prompts of a suite end alike. Where the tokenizer allows a text to be cut (`TextEncoder.cut`), what follows the cut is
planned once for all prompts with this end and these continuations: its tokens, boundaries, paths, and their part of
the trie. Of each prompt only the head before the cut is left. Whatever is unusual about a request (its tokens do not
spell its text, it is too long, the model lacks a token) is planned from its whole texts, which says what is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from backends.base import Boundary, ScoreRequest
from backends.errors import BackendError
from backends.local.boundary import SplitTokens, locate_continuation
from backends.local.encoder import TextEncoder
from backends.local.generation import check_known
from backends.local.trie import Branch, Branches, common_start


class Limits(Protocol):
    """What a scorer can read."""

    @property
    def context(self) -> int | None:
        """Maximum tokens that the model may read for one path; None: no limit."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model has a logit for."""


@dataclass(frozen=True, slots=True)
class PlannedScore:
    """One continuation: its scored tokens, and the numbers of its paths among those of its request.

    ``tokens``: text, first and last character, and id of each. ``path`` is None if there is no token to score.
    ``prompt_paths`` are those of a straddling token's prompt part.
    """

    boundary: Boundary
    tokens: tuple[tuple[str, int, int, int], ...]
    path: int | None
    prompt_paths: range


class PlannedScores(Sequence[PlannedScore]):
    """The scores of a request; what its answers have in common with those of other requests stands in columns.

    Attributes
    ----------
    paths : list of int
        The path of each continuation that has one.
    texts, starts, ends, ids : lists
        Of all scored tokens.
    stops : list of int
        The number of scored tokens up to the end of each continuation.
    straddled : list of (int, range)
        The first tokens of which the prompt's part is divided out, and its paths.
    """

    def __init__(self, scores: Sequence[PlannedScore]) -> None:
        self._scores = tuple(scores)
        self.paths = [score.path for score in scores if score.path is not None]
        tokens = [token for score in scores for token in score.tokens]
        self.texts, self.starts, self.ends, self.ids = ([token[i] for token in tokens] for i in range(4))
        self.boundaries = [score.boundary for score in scores]
        self.stops = list(itertools.accumulate(len(score.tokens) for score in scores))
        firsts = zip([0, *self.stops][:-1], scores, strict=True)
        self.straddled = [(first, score.prompt_paths) for first, score in firsts if score.prompt_paths]

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, at: int) -> PlannedScore: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[PlannedScore, ...]: ...
    def __getitem__(self, at: int | slice) -> PlannedScore | tuple[PlannedScore, ...]:
        return self._scores[at]


@dataclass(frozen=True, slots=True)
class Ending:
    """What follows a request's head: the same for all prompts that end alike.

    Attributes
    ----------
    prompt_tokens : list of int
        The prompt's own tokens behind the head.
    scores : PlannedScores
        One for each continuation.
    branches : Branches
        All paths, behind the head.
    longest, largest : int
        How many tokens a path has to read behind the head at most, and the largest token of all.
    """

    prompt_tokens: list[int]
    scores: PlannedScores
    branches: Branches
    longest: int
    largest: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A request's paths (each is its head and a branch of its ending), or why it has none."""

    head: tuple[int, ...] = ()
    ending: Ending | None = None
    prompt_tokens: int = 0
    error: BackendError | None = None

    @property
    def first(self) -> tuple[int, ...]:
        """The tokens of its first path; empty if it has none."""
        branches = () if self.ending is None else self.ending.branches
        return self.head + branches[0].tokens if branches else ()


_Encoded = tuple[str, list[list[int]]] | BackendError
"""A prompt's text, and the tokens of the prompt alone and with each continuation; or why there are none."""


def make_plans(requests: Sequence[ScoreRequest], encoder: TextEncoder, limits: Limits) -> list[Plan]:
    """A plan for each request."""
    plans = _short_plans(requests, encoder, limits)
    rest = [i for i in range(len(requests)) if i not in plans]
    for i, (request, encoded) in zip(rest, encode([requests[i] for i in rest], encoder), strict=True):
        plans[i] = _whole_plan(request, encoded, encoder, limits)
    return [plans[i] for i in range(len(requests))]


# -- from ends that prompts share -----------------------------------------------------------------


def _short_plans(requests: Sequence[ScoreRequest], encoder: TextEncoder, limits: Limits) -> dict[int, Plan]:
    """Plans of those requests that can be cut, and of which nothing is unusual."""
    plans: dict[int, Plan] = {}
    for chat in (False, True):
        prompts: dict[int, str] = {}
        endings: dict[int, Ending] = {}
        for i, request in enumerate(requests):
            if isinstance(request.prompt, str) == chat:
                continue
            try:
                prompt = encoder.text(request.prompt)
                cut = encoder.cut(prompt)
                ending = _kept_ending(prompt[cut:], request.continuations, encoder, limits) if cut else None
            except Exception:  # said where the request is planned from its whole texts
                continue
            if ending is not None:
                prompts[i], endings[i] = prompt, ending
        if not prompts:
            continue
        try:
            encoded = encoder.encode(list(prompts.values()), chat=chat)
        except Exception:
            continue
        for (i, ending), tokens in zip(endings.items(), encoded, strict=True):
            head = tuple(tokens[: len(tokens) - len(ending.prompt_tokens)])
            usual = encoder.keeps_head(head) and tokens[len(head) :] == ending.prompt_tokens
            fits = limits.context is None or len(head) + ending.longest <= limits.context
            if usual and fits and max(ending.largest, *head) < limits.vocabulary:
                plans[i] = Plan(head, ending, len(tokens))
    return plans


def _kept_ending(tail: str, continuations: tuple[str, ...], encoder: TextEncoder, limits: Limits) -> Ending | None:
    """What follows the heads of prompts that end in ``tail``; None where such prompts have to be planned whole."""
    key = (tail, continuations, limits.vocabulary)
    found: tuple[Ending | None] | None = encoder.kept_endings.get(key)
    if found is None:
        found = (_new_ending(tail, continuations, encoder, limits),)
        encoder.kept_endings.keep(key, found, len(tail) + sum(map(len, continuations)) + _size(found[0]))
    return found[0]


def _size(ending: Ending | None) -> int:
    """About how many tokens an ending holds: a token that straddles the boundary may make it thousands of paths."""
    return 0 if ending is None else sum(8 + len(branch.tokens) for branch in ending.branches)


def _new_ending(tail: str, continuations: tuple[str, ...], encoder: TextEncoder, limits: Limits) -> Ending | None:
    texts = [tail + continuation for continuation in ("", *continuations)]
    try:
        prompt_tokens, *joint = encoder.encode_endings(texts)
        splits = []
        for text, tokens in zip(texts, (prompt_tokens, *joint), strict=True):
            # What the boundary depends on may then lie before the cut.
            if b"".join(map(encoder.piece, tokens)) != text.encode() or not tokens:
                return None
        for continuation, tokens in zip(continuations, joint, strict=True):
            pieces = [encoder.piece(token) for token in tokens]
            splits.append(_locate_behind_head(tail, continuation, prompt_tokens, tokens, pieces))
        return _ending(splits, 1, prompt_tokens, encoder, limits.vocabulary)
    except Exception:  # said where the request is planned from its whole texts
        return None


def _locate_behind_head(
    tail: str, continuation: str, prompt_tokens: list[int], tokens: list[int], pieces: list[bytes]
) -> SplitTokens:
    """Where a continuation begins, counted with one token that stands for all of the head: it always has one."""
    return locate_continuation(f"x{tail}", continuation, [-1, *prompt_tokens], [-1, *tokens], [b"x", *pieces], 1)


def _ending(
    splits: Sequence[SplitTokens], above: int, prompt_tokens: list[int], encoder: TextEncoder, vocabulary: int
) -> Ending:
    """The ending behind the first ``above`` tokens, which all splits share."""
    scores: list[PlannedScore] = []
    branches: list[Branch] = []
    prompt_paths: dict[tuple[tuple[int, ...], bytes], range] = {}
    longest = largest = 0
    for split in splits:
        tokens, first = split.tokens[above:], split.first - above
        longest, largest = max(longest, len(tokens) - 1), max((largest, *tokens))
        scored = tuple(
            (span.text, span.start, span.end, token)
            for span, token in zip(split.spans, split.tokens[split.first :], strict=True)
        )
        if not scored:  # a single token, which is given
            scores.append(PlannedScore(split.boundary, (), None, range(0)))
            continue
        path, part = len(branches), (tokens[:first], split.remainder)
        branches.append(Branch(tokens, first))
        if split.remainder and part not in prompt_paths:
            for tokenization in encoder.vocabulary.tokenizations(split.remainder):
                if max(tokenization.tokens, default=0) >= vocabulary:  # the model never predicts it
                    continue
                before = tokens[:first] + tokenization.tokens
                longest = max(longest, len(before))
                branches.append(Branch(before, first, tokenization.rest))
            prompt_paths[part] = range(path + 1, len(branches))
        scores.append(PlannedScore(split.boundary, scored, path, prompt_paths.get(part, range(0))))
    return Ending(prompt_tokens, PlannedScores(scores), Branches(branches), longest, largest)


# -- from whole texts -----------------------------------------------------------------------------


def _whole_plan(request: ScoreRequest, encoded: _Encoded, encoder: TextEncoder, limits: Limits) -> Plan:
    try:
        if not isinstance(encoded, BackendError):
            check_known(list(set().union(*encoded[1][1:])), limits.vocabulary, encoder.piece)
        splits = []
        for split in locate_all(request, encoded, encoder):
            _check_length(split, encoder, limits)
            splits.append(split)
        prompt_tokens = 0 if isinstance(encoded, BackendError) else len(encoded[1][0])
        tokens = splits[0].tokens
        scored = [split for split in splits if split.first < len(split.tokens)]
        above = min((min(split.first, common_start(split.tokens, tokens)) for split in scored), default=0)
        return Plan(tokens[:above], _ending(splits, above, [], encoder, limits.vocabulary), prompt_tokens)
    except Exception as error:
        return Plan(error=BackendError.of(error))


def _check_length(split: SplitTokens, encoder: TextEncoder, limits: Limits) -> None:
    """Raise `BackendError` where a continuation's paths are longer than the model reads."""
    if (context := limits.context) is None:
        return
    # The model predicts the last token but does not read it.
    if len(split.tokens) - 1 > context:
        raise _too_long(f"{len(split.tokens)} tokens of prompt and continuation", context)
    if split.first == len(split.tokens) or not split.remainder:
        return
    for tokenization in encoder.vocabulary.tokenizations(split.remainder):
        read = split.first + len(tokenization.tokens)
        # Short tokens spell it in more tokens than the prompt has.
        if max(tokenization.tokens, default=0) < limits.vocabulary and read > context:
            raise _too_long(f"{read} tokens of prompt, counting those needed at the boundary", context)


def _too_long(what: str, context: int) -> BackendError:
    return BackendError("context_length", f"{what}, and the model reads {context}", hint="shorten the prompt")


def locate_all(request: ScoreRequest, encoded: _Encoded, encoder: TextEncoder) -> Iterator[SplitTokens]:
    """Each continuation's tokens, split at the boundary."""
    if isinstance(encoded, BackendError):
        raise encoded
    prompt, (prompt_tokens, *joint) = encoded
    prompt_pieces = [encoder.piece(token) for token in prompt_tokens]
    for continuation, tokens in zip(request.continuations, joint, strict=True):
        added = encoder.added(tokens, prompt + continuation)
        same = common_start(tokens, prompt_tokens)
        pieces = prompt_pieces[:same] + [encoder.piece(token) for token in tokens[same:]]
        given = request.first_given
        yield locate_continuation(prompt, continuation, prompt_tokens, tokens, pieces, added, first_given=given)


def encode(requests: Sequence[ScoreRequest], encoder: TextEncoder) -> Iterator[tuple[ScoreRequest, _Encoded]]:
    """Each request with its prompt's text, and the tokens of the prompt alone and with each continuation."""
    encoded: dict[int, _Encoded] = {}
    for chat in (False, True):
        texts: dict[int, list[str]] = {}
        for i, request in enumerate(requests):
            if isinstance(request.prompt, str) == chat:
                continue
            try:
                prompt = encoder.text(request.prompt)
            except BackendError as error:
                encoded[i] = error
            else:
                texts[i] = [prompt + continuation for continuation in ("", *request.continuations)]
        for i, tokens in _tokens(texts, encoder, chat).items():
            encoded[i] = tokens if isinstance(tokens, BackendError) else (texts[i][0], tokens)
    for i, request in enumerate(requests):
        yield request, encoded[i]


def _tokens(texts: dict[int, list[str]], encoder: TextEncoder, chat: bool) -> dict[int, list[list[int]] | BackendError]:
    """Tokens of each request's texts: encoded in one call, or one call per request if that fails."""
    try:
        tokens = iter(encoder.encode([text for some in texts.values() for text in some], chat=chat) if texts else ())
        return {i: [next(tokens) for _ in some] for i, some in texts.items()}
    except Exception as failure:
        if len(texts) > 1:
            return {i: _tokens({i: some}, encoder, chat)[i] for i, some in texts.items()}
        error = BackendError.of(failure)
        if any("\ud800" <= character <= "\udfff" for some in texts.values() for text in some for character in text):
            error = BackendError("bad_request", "the text holds half a character (a lone surrogate)", hint="remove it")
        return dict.fromkeys(texts, error)
