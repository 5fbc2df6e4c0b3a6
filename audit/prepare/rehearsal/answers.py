"""Made-up answers: those that a suite plants, or else random ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from audit.analysis.rows.response_blocks import Place
from audit.analysis.rows.responses import ParsedResponses, Responses
from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Response,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from suites.base import Item, Row, Suite
from suites.own_attributes import called, returned

#: Follow-ups of follow-ups are answered to this depth, since a suite could ask for ever.
_MAX_DEPTH = 6


class _Tried:
    """A suite that reads answers as in a run. A method that fails or returns another type is reported with its line."""

    def __init__(self, suite: Suite, *, checked: bool) -> None:
        self._suite = suite
        self._result = returned if checked else called

    def read(self, item: Item, response: Response) -> Row:
        row: Row = self._result(self._suite, "read", item, response)
        return row

    def follow_ups(self, item: Item, response: Response) -> Iterable[Item]:
        found: Iterable[Item] = self._result(self._suite, "follow_ups", item, response)
        return found

    def planted(self, item: Item, bias: float, draw: int) -> Response | None:
        found: Response | None = self._result(self._suite, "planted", item, bias, draw)
        return found

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        found: Sequence[Row] = self._result(self._suite, "derive", rows)
        return found


def rehearse(
    suite: Suite,
    items: Iterable[Item],
    bias: float = 0.0,
    draw: int = 0,
    *,
    checked: bool = True,
    silent: Collection[str] = (),
) -> ParsedResponses:
    """The answers of a made-up model to a suite. ``bias`` (0 to 1) is the planted bias, ``draw`` the seed.

    ``silent``: ids of items that it does not answer.

    Raises
    ------
    ConfigError
        Where a method of the suite fails or, if ``checked`` (it takes half of the time), returns another type.
    """
    tried = _Tried(suite, checked=checked)
    responses = Responses(cast(Any, tried))
    for number, item in enumerate(items):
        if item.id in silent:
            responses.record((number,), item, (), None)
        else:
            _answer(tried, responses, (number,), item, bias, draw)
    return responses.parsed()


def plants(suite: Suite, item: Item) -> bool:
    """Whether the suite plants an answer."""
    return _Tried(suite, checked=True).planted(item, 0.0, 0) is not None


def _answer(tried: _Tried, responses: Responses, place: Place, item: Item, bias: float, draw: int) -> None:
    response = tried.planted(item, bias, draw) or random_answer(item, draw)
    follow_ups = responses.record(place, item, (), response)
    for number, follow_up in enumerate(follow_ups if len(place) < _MAX_DEPTH else ()):
        _answer(tried, responses, (*place, number), follow_up, bias, draw)


def random_answer(item: Item, draw: int) -> Response | None:
    """A meaningless answer; None for classifiers, whose labels are unknown."""
    match item.request:
        case ScoreRequest(continuations=texts):
            return ScoreResponse(tuple(_score(text, item.id, draw, len(texts)) for text in texts))
        case GenerateRequest():
            return GenerateResponse(" This is a made-up text.", "stop")
        case _:
            return None


def _score(text: str, item_id: str, draw: int, of: int) -> ContinuationScore:
    digest = hashlib.sha256(f"{draw}\n{item_id}\n{text}".encode("utf-8", "surrogatepass")).digest()
    share = 0.1 + 0.8 * int.from_bytes(digest[:8], "big") / 2**64
    return ContinuationScore.exact([TokenLogprob(text, 0, len(text), math.log(share / of))], route="planted")
