"""Responses that arrive in any order, are replaced, and are taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.analysis.rows.responses import Responses
from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError
from suites.base import IdentifiedInterval, Item, Row, Suite


class Asking(Suite):
    """One question about each text that is not about a text."""

    name = "asking"
    needs = frozenset({"generate"})

    def items(self):
        return iter(())

    def signature(self):
        return {}

    def read(self, item, response):
        return Row(item.id, item.factors, {"length": IdentifiedInterval.exact(float(len(response.text)))})

    def follow_ups(self, item, response):
        if "#" not in item.id:
            yield Item(f"{item.id}#more", GenerateRequest(response.text), {})

    def measures(self, rows):
        return iter(())


def item(number: int) -> Item:
    return Item(f"i{number}", GenerateRequest(f"prompt {number}"), {})


def text(words: str) -> GenerateResponse:
    return GenerateResponse(words, "stop")


def record(responses: Responses, number: int, answer: GenerateResponse | BackendError | None) -> None:
    """Record an item's answer, and its own text as the answer to what follows."""
    for follow in responses.record((number,), item(number), (f"k{number}",), answer):
        responses.record((number, 0), follow, (f"k{number}#",), text("follow"))


def test_rows_stand_in_item_order_follow_ups_after_each_block() -> None:
    responses = Responses(Asking())
    for number in (513, 2, 0, 512, 1):
        record(responses, number, text("x" * number))
    expected = ["i0", "i1", "i2", "i0#more", "i1#more", "i2#more", "i512", "i513", "i512#more", "i513#more"]
    assert [row.item_id for row in responses.parsed().rows] == expected


def test_later_answer_replaces_a_failure() -> None:
    responses = Responses(Asking())
    record(responses, 0, BackendError("timeout", "slow"))
    record(responses, 1, None)
    assert responses.parsed().failures == {"timeout": 1, "not asked": 1}
    record(responses, 0, text("four"))
    parsed = responses.parsed()
    assert (parsed.failures, parsed.rows[0].values["length"].value) == ({"not asked": 1}, 4)


def test_retracted_answer_is_not_asked_and_drops_follow_ups() -> None:
    responses = Responses(Asking())
    for number in range(3):
        record(responses, number, text("word"))
    assert set(responses.retract(["k1", "k2#", "unknown"])) == {(1,), (2, 0)}
    parsed = responses.parsed()
    assert list(parsed.by_item) == ["i0", "i1", "i2", "i0#more", "i2#more"]
    assert [item for item, found in parsed.by_item.items() if found.failure == "not asked"] == ["i1", "i2#more"]
    assert parsed.failures == {"not asked": 2}


@pytest.mark.parametrize(
    ("boundaries", "expected"),
    [(("clean", "merged"), "no"), (("clean", "straddled"), "in part"), (("straddled", "straddled"), "all")],
)
def test_continuations_that_share_a_token_in_part_are_marked(boundaries, expected) -> None:
    class Scored(Asking):
        def read(self, item, response):
            return Row(item.id, item.factors, {})

    scores = [replace(ContinuationScore.exact([TokenLogprob("x", 0, 1, -1.0)]), boundary=one) for one in boundaries]
    responses = Responses(Scored())
    responses.record((0,), Item("i#", ScoreRequest("p", ("x", "y")), {}), ("a", "b"), ScoreResponse(tuple(scores)))
    assert responses.parsed().by_item["i#"].straddled == expected
