"""Plan requests for scores: the tokens of their texts, where the continuations begin, and the paths to score.

Prompts of a suite end alike. Where the tokenizer allows a text to be cut (`TextEncoder.cut`), what follows the cut is
planned once for all prompts with this end and these continuations: its tokens, boundaries, paths, and their part of
the trie. Of each prompt only the head before the cut is left. A new end is compared with the tokens of the first whole
texts that have it. Whatever is unusual about a request (its tokens do not spell its text, it is too long, the model
lacks a token) is planned from its whole texts, which says what is wrong.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from backends.base import Boundary, Prompt, ScoreRequest
from backends.errors import BackendError
from backends.local.boundary import SplitTokens, locate_continuation
from backends.local.encoder import TextEncoder, refuse_halves
from backends.local.generation import check_known
from backends.local.trie import Branches, Ints, Path, common_start


class Limits(Protocol):
    """What a scorer can read."""

    @property
    def context(self) -> int | None:
        """Maximum tokens that the model may read for one path; None: no limit."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model has a logit for."""


@dataclass(frozen=True, slots=True)
class PlannedScores:
    """The scores of a request in columns: what its answers have in common with those of other requests.

    Attributes
    ----------
    texts, starts, ends, ids : lists
        Text, first and last character, and id of all scored tokens, one continuation after the other.
    asks : int64 array
        The ask of each of them.
    stops : list of int
        The number of scored tokens up to the end of each continuation.
    boundaries : list of Boundary
    straddled : list of (int, list of arrays)
        The first tokens of which the prompt's part is divided out, and the asks of each of that part's paths.
    """

    texts: list[str]
    starts: list[int]
    ends: list[int]
    ids: list[int]
    asks: Ints
    stops: list[int]
    boundaries: list[Boundary]
    straddled: list[tuple[int, list[Ints]]]


@dataclass(frozen=True, slots=True)
class Ending:
    """What follows a request's head: the same for all prompts that end alike.

    Attributes
    ----------
    texts : list of lists
        The tokens, behind the head, of the prompt's own end, and of it with each continuation.
    scores : PlannedScores
    branches : Branches
        All paths, behind the head.
    longest, largest : int
        How many tokens a path has to read behind the head at most, and the largest token of all.
    """

    texts: list[list[int]]
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


_Encoded = tuple[str, list[list[int]]] | BackendError
"""A prompt's text, and the tokens of the prompt alone and with each continuation; or why there are none."""


def make_plans(requests: Sequence[ScoreRequest], encoder: TextEncoder, limits: Limits) -> list[Plan]:
    """A plan for each request."""
    endings: dict[Hashable, Ending | None] = {}
    plans = _short_plans(requests, encoder, limits, endings)
    encoder.kept_endings = endings  # the next batch has the same ends; all of a run would fill the memory
    rest = [i for i in range(len(requests)) if i not in plans]
    for i, (request, encoded) in zip(rest, encode([requests[i] for i in rest], encoder), strict=True):
        plans[i] = _whole_plan(request, encoded, encoder, limits)
    return [plans[i] for i in range(len(requests))]


# -- from ends that prompts share -----------------------------------------------------------------


def _short_plans(
    requests: Sequence[ScoreRequest],
    encoder: TextEncoder,
    limits: Limits,
    used: dict[Hashable, Ending | None],
) -> dict[int, Plan]:
    """Plans of those requests that can be cut, whose end others have too, and of which nothing is unusual."""
    alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    prompts: dict[int, str] = {}
    for i, request in enumerate(requests):
        try:
            prompt = encoder.text(request.prompt)
        except BackendError:  # said where the request is planned from its whole texts
            continue
        if cut := encoder.cut(prompt):
            prompts[i] = prompt
            alike.setdefault((prompt[cut:], request.continuations), []).append(i)
    endings: dict[int, Ending] = {}
    for (tail, continuations), places in alike.items():
        key = (tail, continuations, limits.vocabulary)
        if key in encoder.kept_endings:
            used[key] = encoder.kept_endings[key]
        elif len(places) > 1:  # a single one takes less time whole
            used[key] = _new_ending(tail, continuations, prompts[places[0]], encoder, limits)
        if (ending := used.get(key)) is not None:
            endings |= dict.fromkeys(places, ending)
    if not endings:
        return {}
    try:
        encoded = encoder.encode_alike([prompts[i] for i in endings])
    except Exception:  # said where the requests are planned from their whole texts
        return {}
    plans = {}
    for (i, ending), tokens in zip(endings.items(), encoded, strict=True):
        head = tuple(tokens[: len(tokens) - len(ending.texts[0])])
        fits = limits.context is None or len(head) + ending.longest <= limits.context
        usual = encoder.keeps_head(head) and tokens[len(head) :] == ending.texts[0]
        if usual and fits and max(ending.largest, *head) < limits.vocabulary:
            plans[i] = Plan(head, ending, len(tokens))
    return plans


def _new_ending(
    tail: str, continuations: tuple[str, ...], prompt: str, encoder: TextEncoder, limits: Limits
) -> Ending | None:
    """What follows the heads of prompts that end in ``tail``; None where such prompts have to be planned whole."""
    added = ("", *continuations)
    try:
        texts = encoder.encode_endings([tail + text for text in added])
        for text, tokens in zip(added, texts, strict=True):
            # What the boundary depends on may otherwise lie before the cut.
            if not tokens or b"".join(map(encoder.piece, tokens)) != (tail + text).encode():
                return None
        whole = encoder.encode([prompt + text for text in added])
        head = whole[0][: len(whole[0]) - len(texts[0])]
        if any(tokens != head + mine for tokens, mine in zip(whole, texts, strict=True)):
            return None
        prompt_tokens, *joint = texts
        splits = []
        for continuation, tokens in zip(continuations, joint, strict=True):
            # One token stands for all of the head: it always has one.
            pieces = [b"x", *map(encoder.piece, tokens)]
            before = [-1, *prompt_tokens]
            splits.append(locate_continuation(f"x{tail}", continuation, before, [-1, *tokens], pieces, 1))
        return _ending(splits, 1, texts, encoder, limits.vocabulary)
    except Exception:  # said where the request is planned from its whole texts
        return None


def _ending(
    splits: Sequence[SplitTokens], above: int, texts: list[list[int]], encoder: TextEncoder, vocabulary: int
) -> Ending:
    """The ending behind the first ``above`` tokens, which all splits share."""
    paths: list[Path] = []
    parts: dict[tuple[tuple[int, ...], bytes], range] = {}  # the paths of a prompt's part
    scored: list[int] = []  # the path of each continuation that has one
    straddled: list[tuple[int, range]] = []
    stops = [*itertools.accumulate(len(split.spans) for split in splits)]
    for split, stop in zip(splits, stops, strict=True):
        if not split.spans:  # a single token, which is given
            continue
        scored.append(len(paths))
        paths.append(Path(split.tokens, split.first))
        if not split.remainder:
            continue
        part = (split.tokens[: split.first], split.remainder)
        if part not in parts:
            first = len(paths)
            for way in encoder.vocabulary.tokenizations(split.remainder):
                if max(way.tokens, default=0) < vocabulary:  # else the model never predicts it
                    paths.append(Path(part[0] + way.tokens, split.first, way.rest))
            parts[part] = range(first, len(paths))
        straddled.append((stop - len(split.spans), parts[part]))
    branches = Branches(paths, above)
    of_part = {places: [np.array(branches.asks_of[at]) for at in places] for places in parts.values()}
    asks = [ask for path in scored for ask in branches.asks_of[path]]
    spans = [span for split in splits for span in split.spans]
    scores = PlannedScores(
        [span.text for span in spans],
        [span.start for span in spans],
        [span.end for span in spans],
        [token for split in splits for token in split.tokens[split.first :]],
        np.array(asks, dtype=np.int64),
        stops,
        [split.boundary for split in splits],
        [(first, of_part[places]) for first, places in straddled],
    )
    longest = max((len(path.computed) - above for path in paths), default=0)
    largest = max(0, *(token for split in splits for token in split.tokens[above:]))
    return Ending(texts, scores, branches, longest, largest)


# -- from whole texts -----------------------------------------------------------------------------


def _whole_plan(request: ScoreRequest, encoded: _Encoded, encoder: TextEncoder, limits: Limits) -> Plan:
    try:
        if not isinstance(encoded, BackendError):
            check_known(list(set().union(*encoded[1][1:])), limits.vocabulary, encoder.piece)
        splits = [*locate_all(request, encoded, encoder)]
        prompt_tokens = 0 if isinstance(encoded, BackendError) else len(encoded[1][0])
        # As long as all paths have it in common, and each reads it: shared with the heads of other requests.
        above = min(len(split.tokens) - 1 for split in splits)
        for split in splits:
            above = min(above, common_start(split.tokens, splits[0].tokens))
            above = min(above, split.first) if split.remainder else above
        ending = _ending(splits, above, [], encoder, limits.vocabulary)
        if limits.context is not None and (read := above + ending.longest) > limits.context:
            problem = f"{read} tokens of prompt and continuation to read, and the model reads {limits.context}"
            raise BackendError("context_length", problem, hint="shorten the prompt")
        return Plan(splits[0].tokens[:above], ending, prompt_tokens)
    except Exception as error:
        return Plan(error=BackendError.of(error))


def locate_all(request: ScoreRequest, encoded: _Encoded, encoder: TextEncoder) -> Iterator[SplitTokens]:
    """Each continuation's tokens, split at the boundary."""
    if isinstance(encoded, BackendError):
        raise encoded
    prompt, (prompt_tokens, *joint) = encoded
    prompt_pieces = [encoder.piece(token) for token in prompt_tokens]
    is_altered = _is_altered(request.prompt, prompt_pieces)
    for continuation, tokens in zip(request.continuations, joint, strict=True):
        added = encoder.added(tokens, prompt + continuation)
        same = common_start(tokens, prompt_tokens)
        pieces = prompt_pieces[:same] + [encoder.piece(token) for token in tokens[same:]]
        given = request.first_given
        split = locate_continuation(prompt, continuation, prompt_tokens, tokens, pieces, added, first_given=given)
        yield replace(split, boundary="altered") if is_altered and not split.remainder else split


def _is_altered(prompt: Prompt, pieces: Sequence[bytes]) -> bool:
    """Whether a tokenizer that drops case, accents or spaces has changed a prompt; another Unicode form is none."""
    read = unicodedata.normalize("NFC", b"".join(pieces).decode("utf-8", "replace"))
    if isinstance(prompt, str):
        letters = iter(read)  # some put a space in front of a text, and behind each special token
        return not all(letter in letters for letter in unicodedata.normalize("NFC", prompt))
    asked = [turn.content.strip() for turn in prompt if turn.role == "user"]
    return any(unicodedata.normalize("NFC", text) not in read for text in asked)


def encode(requests: Sequence[ScoreRequest], encoder: TextEncoder) -> Iterator[tuple[ScoreRequest, _Encoded]]:
    """Each request with its prompt's text, and the tokens of the prompt alone and with each continuation."""
    encoded: dict[int, _Encoded] = {}
    texts: dict[int, list[str]] = {}
    for i, request in enumerate(requests):
        try:
            prompt = encoder.text(request.prompt)
            refuse_halves("".join(request.continuations))
        except BackendError as error:
            encoded[i] = error
        else:
            texts[i] = [prompt + continuation for continuation in ("", *request.continuations)]
    for i, tokens in _tokens(texts, encoder).items():
        encoded[i] = tokens if isinstance(tokens, BackendError) else (texts[i][0], tokens)
    for i, request in enumerate(requests):
        yield request, encoded[i]


def _tokens(texts: dict[int, list[str]], encoder: TextEncoder) -> dict[int, list[list[int]] | BackendError]:
    """Tokens of each request's texts: encoded in one call, or one call per request if that fails."""
    try:
        tokens = iter(encoder.encode([text for some in texts.values() for text in some]) if texts else ())
        return {i: [next(tokens) for _ in some] for i, some in texts.items()}
    except Exception as failure:
        if len(texts) > 1:
            return {i: _tokens({i: some}, encoder)[i] for i, some in texts.items()}
        return dict.fromkeys(texts, BackendError.of(failure))
