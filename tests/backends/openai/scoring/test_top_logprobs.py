"""Lists of next tokens: what is read exactly, and what is only bounded."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import BackendError
from backends.openai.scoring.lists import score_by_first_token, starts_a_token
from backends.openai.scoring.top_logprobs import (
    MASS_SLACK,
    ListedToken,
    NothingDrawnError,
    TopLogprobs,
    count_placeholders,
    read_top_logprobs,
    upper_bound,
)

SHE, HE, THEY = math.log(0.4), math.log(0.3), math.log(0.05)


def legacy(entries: dict[str, float], drawn: str, value: float | None = None) -> dict[str, object]:
    values = [entries.get(drawn, value)]
    logprobs = {"tokens": [drawn], "token_logprobs": values, "top_logprobs": [entries], "text_offset": [0]}
    return {"choices": [{"index": 0, "text": drawn, "logprobs": logprobs, "finish_reason": "length"}]}


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=60), st.data())
def test_no_unlisted_token_is_above_its_bound(weights: list[float], data: st.DataObject) -> None:
    total = math.fsum(weights)
    true = sorted((math.log(w / total) for w in weights), reverse=True)
    # A sum in float32 may come out too small, and everything listed too large by the same factor.
    too_much = math.log1p(data.draw(st.sampled_from([0.0, 0.002, MASS_SLACK])))
    values = [min(v + too_much, 0.0) for v in true]
    k = data.draw(st.integers(1, len(values) - 1))
    drawn = data.draw(st.integers(0, len(values) - 1))
    listed = [ListedToken(f"t{i}", v, i) for i, v in enumerate(values) if i < k or i == drawn]
    # A server that caps the list may keep k entries in all: k - 1 likeliest and the drawn one.
    if data.draw(st.booleans()) and len(listed) > k > 1:
        listed = [*listed[: k - 1], listed[-1]]
    top = TopLogprobs(tuple(listed), k, f"t{drawn}", "ids")
    names = {t.token_id for t in listed}
    unlisted = [v for i, v in enumerate(true) if i not in names]
    assert all(v <= upper_bound(top) + 1e-12 for v in unlisted)


def test_a_whole_vocabulary_adds_up_to_about_1() -> None:
    size = 200_000  # tokens of one weight each, as llama.cpp gives them: ids and bytes

    def answer(total: float) -> dict[str, object]:
        entries = [{"id": i, "token": "x", "bytes": [120], "logprob": math.log(total / size)} for i in range(size)]
        content = [{"token": "x", "logprob": entries[0]["logprob"], "top_logprobs": entries}]
        return {"choices": [{"index": 0, "text": "x", "logprobs": {"content": content}}]}

    for total in (0.97, 0.995, 1.01):
        assert read_top_logprobs(answer(total), 10**6).mass == pytest.approx(total)
    with pytest.raises(BackendError, match=r"add up to 1\.02"):
        read_top_logprobs(answer(1.02), 10**6)


def test_a_string_out_of_order_identifies_no_token() -> None:
    # " M" was listed first with -1 and, as another token of the same string, last with -9.
    top = read_top_logprobs(legacy({" F": -0.9, " M": -9.0, " x": -2.0}, " F"), 3)
    names = {t.text: top.identifies(t) for t in top.tokens}
    assert names == {" F": True, " M": False, " x": True}


@pytest.mark.parametrize("text", [" ", "", "\n", " �"])
def test_blanks_and_broken_characters_identify_no_token(text: str) -> None:
    top = read_top_logprobs(legacy({" F": -0.9, text: -2.0}, " F"), 2)
    assert not top.identifies(top.tokens[1])


def chat_list(*entries: tuple[str, bytes | None, float]) -> dict[str, object]:
    tops = [{"token": t, "bytes": None if data is None else list(data), "logprob": v} for t, data, v in entries]
    return {"choices": [{"index": 0, "logprobs": {"content": [{**tops[0], "top_logprobs": tops}]}}]}


def test_drawn_part_of_a_character_without_a_list_is_known() -> None:
    half = " \N{REPLACEMENT CHARACTER}"
    choice = {"index": 0, "text": half, "logprobs": None, "finish_reason": "length"}
    for one in (choice, {**choice, "text": None, "message": {"role": "assistant", "content": half}}):
        with pytest.raises(NothingDrawnError, match="a character's part"):
            read_top_logprobs({"choices": [one]}, 5)
    with pytest.raises(BackendError, match="no log-probabilities") as whole:
        read_top_logprobs({"choices": [{**choice, "text": " x"}]}, 5)
    assert not isinstance(whole.value, NothingDrawnError)


def test_bytes_of_another_tokens_text_are_refused() -> None:
    # The texts, which are calibrated, are right; the bytes, which are scored, are shifted below the first rank.
    answer = chat_list((" he", b" he", -0.5), (" she", b" it", -1.5), (" it", b" she", -2.5))
    with pytest.raises(BackendError, match="' she' has the bytes of ' it'") as caught:
        read_top_logprobs(answer, 3)
    assert caught.value.kind == "inconsistent"


def test_bytes_that_no_text_shows_are_believed() -> None:
    half, end = "é".encode()[:1], "<|end|>"
    top = read_top_logprobs(chat_list(("\\xc3", half, -0.5), ("�", half, -1.5), (" é", " é".encode(), -2.0)), 3)
    assert [t.data for t in top.tokens] == [half, half, " é".encode()]
    # A special token may have none; a broken text has no whole characters' bytes.
    top = read_top_logprobs(chat_list((" he", b" he", -0.5), (end, b"", -1.5), ("�", b" she", -2.5)), 3)
    assert [t.data for t in top.tokens] == [b" he", b"", None]


def test_a_list_beside_which_no_drawn_token_stands_is_whole() -> None:
    top = read_top_logprobs({"choices": [{"text": " a", "logprobs": {"top_logprobs": [{" a": -0.5, " b": -3.0}]}}]}, 2)
    assert (len(top.tokens), top.complete) == (2, True)


def test_a_drawn_token_that_stands_first_is_put_at_its_rank() -> None:
    top = read_top_logprobs(legacy({" far": -8.0, " a": -0.5, " b": -3.0}, " far"), 2)
    assert [t.text for t in top.tokens] == [" a", " b", " far"]
    assert upper_bound(top) == pytest.approx(-3.0)


@pytest.mark.parametrize(
    ("value", "says"),
    [(math.nan, "nan"), (-math.inf, "inf"), (0.5, "positive"), (None, "None"), ("-1", "'-1'"), (True, "True")],
)
def test_a_value_that_is_not_a_log_probability_is_refused(value: object, says: str) -> None:
    with pytest.raises(BackendError, match=says) as caught:
        read_top_logprobs(legacy({" a": value}, " a"), 1)  # type: ignore[dict-item]
    assert caught.value.kind == "inconsistent"


@pytest.mark.parametrize(
    ("before", "text", "edge"),
    [
        *(("A:", "\nMale", False), ("yes", "\nMale", True), ("...", " Male", True)),
        ("A:", " Male", True),
        ("A: ", "Male", False),
        ("A:", "Male", False),
        ("A:\n", "Male", True),
        ("", "Male", True),
    ],
)
def test_where_a_token_boundary_is_certain(before: str, text: str, edge: bool) -> None:
    assert starts_a_token(before, text) is edge


HONEST_TAIL = [-0.5, -1.2, -2.9, -4.1, -5.25, -5.25, -6.5]


@pytest.mark.parametrize(
    ("values", "placeholders"),
    [
        ([-0.5, -1.2, -100.5], 0),
        ([-0.5, -1.2, -100.5, -100.5], 2),
        ([*HONEST_TAIL, *[-7.0] * 6], 6),
        ([*HONEST_TAIL, *[-7.0] * 3], 0),
        ([-1.6] * 5, 0),
        ([-0.001, -21.3, -24.0], 0),
    ],
)
def test_one_number_for_many_unknown_values_is_found(values: list[float], placeholders: int) -> None:
    assert count_placeholders(values) == placeholders


@pytest.mark.parametrize(("reason", "kind"), [("content_filter", "bad_request"), ("tool_calls", "malformed")])
def test_a_list_of_an_answer_that_was_stopped_is_no_score(reason: str, kind: str) -> None:
    answer = legacy({" a": -0.5, " b": -1.0}, " a")
    answer["choices"][0]["finish_reason"] = reason  # type: ignore[index]
    with pytest.raises(BackendError) as caught:
        read_top_logprobs(answer, 2)
    assert (caught.value.kind, caught.value.retryable) == (kind, False)


def test_a_list_of_reasoning_is_no_score() -> None:
    with pytest.raises(BackendError, match="reasons before it answers"):
        read_top_logprobs(legacy({"<think>": -0.01, "Male": -5.0}, "<think>"), 2)


def test_a_refusal_is_no_score() -> None:
    entry = {"token": "I", "bytes": [73], "logprob": -0.1}
    choice = {"index": 0, "message": {"content": None, "refusal": "I cannot"}, "finish_reason": "stop"}
    with pytest.raises(BackendError, match="declines"):
        read_top_logprobs({"choices": [{**choice, "logprobs": {"content": [{**entry, "top_logprobs": [entry]}]}}]}, 1)


@given(st.permutations(range(5)))
def test_no_order_of_a_list_makes_a_false_bound(order: list[int]) -> None:
    values = {f" w{at}": -1.7 - 0.1 * at for at in range(5)}
    listed = {f" w{at}": values[f" w{at}"] for at in order}
    top = read_top_logprobs(legacy(listed, f" w{order[0]}"), 5)
    for word, true in values.items():
        score = score_by_first_token(top, "The", word, "top_k", 0.0)
        assert score.high >= true - 1e-9
        assert score.logprob is None or score.logprob == pytest.approx(true)


def chat(listed: list[dict[str, Any]], drawn: dict[str, Any]) -> dict[str, Any]:
    content = [{**drawn, "top_logprobs": listed}]
    return {"choices": [{"index": 0, "message": {"content": ""}, "logprobs": {"content": content}}]}


@pytest.mark.parametrize("mark", ["Ġ", "▁"])
@pytest.mark.parametrize("with_bytes", [True, False])
def test_the_vocabularys_mark_for_a_space_is_a_space(mark: str, with_bytes: bool) -> None:
    def entry(word: str, value: float) -> dict[str, Any]:
        return {"token": mark + word, "logprob": value} | ({"bytes": list(f" {word}".encode())} if with_bytes else {})

    top = read_top_logprobs(chat([entry("she", SHE), entry("he", HE)], entry("she", SHE)), 2)
    assert [token.text for token in top.tokens] == [" she", " he"]
    assert [entry.logprob for entry in top.entries(b" he")] == [HE]
    assert read_top_logprobs(legacy({f"{mark}she": SHE, f"{mark}he": HE}, f"{mark}she"), 2).sampled == " she"


def test_a_letter_that_is_no_mark_stays() -> None:
    top = read_top_logprobs(legacy({" she": SHE, "Ġurġa": THEY}, " she"), 2)
    assert [token.text for token in top.tokens] == [" she", "Ġurġa"]


def test_a_drawn_token_beside_its_list_has_its_own_value() -> None:
    # "he" was bounded at -4.30 by such a list, although its own entry said -2.46.
    listed = [{"token": " she", "logprob": SHE}, {"token": " they", "logprob": THEY}]
    for answer in (
        chat(listed, {"token": " he", "logprob": HE}),
        legacy({" she": SHE, " they": THEY}, " he", HE),
    ):
        top = read_top_logprobs(answer, 2)
        assert [token.logprob for token in top.entries(b" he")] == [HE]
        assert upper_bound(top) <= HE


def test_without_a_value_the_mass_alone_bounds_what_is_not_listed() -> None:
    top = read_top_logprobs(legacy({" she": SHE, " they": THEY}, " he"), 2)
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
