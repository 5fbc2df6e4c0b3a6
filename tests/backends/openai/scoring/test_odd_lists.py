"""Honest servers that show their lists oddly are read; a response whose parts contradict each other is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backends.errors import BackendError
from backends.openai.scoring.censoring import upper_bound
from backends.openai.scoring.top_logprobs import MASS_SLACK, read_top_logprobs

SHE, HE, THEY = math.log(0.4), math.log(0.3), math.log(0.05)


def chat(listed: list[dict[str, Any]], drawn: dict[str, Any]) -> dict[str, Any]:
    content = [{**drawn, "top_logprobs": listed}]
    return {"choices": [{"index": 0, "message": {"content": ""}, "logprobs": {"content": content}}]}


def legacy(listed: dict[str, float], drawn: str, value: float | None) -> dict[str, Any]:
    logprobs = {"tokens": [drawn], "token_logprobs": [value], "top_logprobs": [listed], "text_offset": [0]}
    return {"choices": [{"index": 0, "text": drawn, "logprobs": logprobs, "finish_reason": "length"}]}


@pytest.mark.parametrize("mark", ["Ġ", "▁"])
@pytest.mark.parametrize("with_bytes", [True, False])
def test_the_vocabularys_mark_for_a_space_is_a_space(mark: str, with_bytes: bool) -> None:
    def entry(word: str, value: float) -> dict[str, Any]:
        return {"token": mark + word, "logprob": value} | ({"bytes": list(f" {word}".encode())} if with_bytes else {})

    top = read_top_logprobs(chat([entry("she", SHE), entry("he", HE)], entry("she", SHE)), 2)
    assert [token.text for token in top.tokens] == [" she", " he"]
    assert [entry.logprob for entry in top.by_bytes(b" he")] == [HE]
    assert read_top_logprobs(legacy({f"{mark}she": SHE, f"{mark}he": HE}, f"{mark}she", SHE), 2).sampled == " she"


def test_a_letter_that_is_no_mark_stays() -> None:
    top = read_top_logprobs(legacy({" she": SHE, "Ġurġa": THEY}, " she", SHE), 2)
    assert [token.text for token in top.tokens] == [" she", "Ġurġa"]


def test_bytes_alone_are_read() -> None:
    def entry(word: str, value: float) -> dict[str, Any]:
        return {"token": "", "bytes": list(word.encode()), "logprob": value}

    top = read_top_logprobs(chat([entry(" she", SHE), entry(" he", HE)], entry(" she", SHE)), 2)
    assert [token.text for token in top.tokens] == [" she", " he"]


def test_a_drawn_token_beside_its_list_has_its_own_value() -> None:
    # "he" was bounded at -4.30 by such a list, although its own entry said -2.46.
    listed = [{"token": " she", "logprob": SHE}, {"token": " they", "logprob": THEY}]
    for answer in (
        chat(listed, {"token": " he", "logprob": HE}),
        legacy({" she": SHE, " they": THEY}, " he", HE),
    ):
        top = read_top_logprobs(answer, 2)
        assert [token.logprob for token in top.by_bytes(b" he")] == [HE]
        assert upper_bound(top) <= HE


@pytest.mark.parametrize("value", [None])
def test_without_a_value_the_mass_alone_bounds_what_is_not_listed(value: None) -> None:
    top = read_top_logprobs(legacy({" she": SHE, " they": THEY}, " he", value), 2)
    assert not top.complete
    assert upper_bound(top) == pytest.approx(math.log(1 - 0.45 + MASS_SLACK))


def test_two_values_of_one_token_are_refused() -> None:
    listed = [
        {"token": " she", "bytes": list(b" she"), "logprob": SHE},
        {"token": " he", "bytes": list(b" he"), "logprob": HE},
    ]
    with pytest.raises(BackendError, match="beside its list") as caught:
        read_top_logprobs(chat(listed, {**listed[1], "logprob": HE - 0.5}), 2)
    assert caught.value.kind == "inconsistent"
    read_top_logprobs(chat(listed, {**listed[1], "logprob": round(HE, 3)}), 2)
