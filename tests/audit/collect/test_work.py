"""The work of a request, relative to others."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from audit.collect.work import estimate_work
from backends.base import ClassifyRequest, GenerateRequest, Message, Sampling, ScoreRequest


@given(st.lists(st.text(alphabet="ab", max_size=12), max_size=8))
def test_a_prompt_counts_as_far_as_the_one_before_does_not_share_it(prompts: list[str]) -> None:
    pairs = list(zip(["", *prompts], prompts, strict=False))
    shared = [len(list(takewhile(lambda both: both[0] == both[1], zip(a, b, strict=False)))) for a, b in pairs]
    expected = [max(1, len(b) - common + len(" yes")) for (_, b), common in zip(pairs, shared, strict=True)]
    assert list(estimate_work(ScoreRequest(prompt, (" yes",)) for prompt in prompts)) == expected


def test_what_may_be_written_counts_more_than_what_is_read() -> None:
    short, long = (
        GenerateRequest((Message("user", "Count them."),), Sampling(max_tokens=tokens)) for tokens in (8, 512)
    )
    first, second, third = estimate_work([short, long, ClassifyRequest("Some text.")])
    assert second > 20 * first
    assert third == len("Some text.")
