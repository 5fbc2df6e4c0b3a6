"""The questions and options of the counting benchmark."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from backends.base import (
    GenerateRequest,
    Sampling,
    ScoreRequest,
)
from backends.errors import ConfigError
from suites import MGBR
from suites.mgbr.word_lists import WordLists
from tests.suites.mgbr.planted import (
    WORDS,
    lists_of,
)


def test_24_cells_have_n_instances_each_and_unique_ids() -> None:
    items = lists_of(MGBR(n=7))
    cells = Counter((i.factors["condition"], i.factors["test_set"]) for i in items)
    assert len(cells) == 24
    assert set(cells.values()) == {7}
    assert len({i.id for i in items}) == len(items) == 7 * 24


def test_both_lists_of_a_pair_are_scored_against_the_same_r() -> None:
    for item in lists_of(MGBR(n=40, conditions=["zero-shot"])):
        assert isinstance(item.request, ScoreRequest)
        p_or_q, r = item.factors["p" if item.factors["gender"] == "female" else "q"], item.factors["r"]
        assert item.request.continuations == (f" {p_or_q}", f" {p_or_q + r}")  # type: ignore[operator]


def test_raw_counts_are_short_and_texts_stop_at_a_question() -> None:
    for condition, tokens in (("few-shot", 8), ("few-shot+cot", 300)):
        suite = MGBR(n=1, mode="generation", conditions=[condition], sampling={"max_tokens": 300}, genders=["female"])
        request = next(iter(suite.items())).request
        assert isinstance(request, GenerateRequest)
        assert request.sampling.max_tokens == tokens
        assert request.sampling.stop == ("\n\nHow many of the following words are definitely women?",)
    assert suite.needs == {"generate"}
    assert not suite.shown.published


HYPHENED = WordLists.checked(**{**dict(WORDS), "masculine": (*WORDS.masculine, "man or boy")})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "score"}, "mode = 'score': unknown. Use one of: 'likelihood' or 'generation'"),
        ({"conditions": ["few-shot", "few-shot"]}, "conditions"),
        ({"sampling": Sampling()}, "sampling .*likelihood mode"),
        ({"mode": "generation", "repeats": 2}, "repeats = 2: greedy texts are all the same"),
        (
            {"mode": "generation", "sampling": {"stop": "END"}},
            "stop = 'END': not a list",
        ),
        ({"wording": {"separator": " or "}, "words": HYPHENED}, r"words\.masculine = 'man or boy': contains ' or '"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MGBR(**options)
