"""Where one token covers the prompt's end and the continuation's start, a server's score is a bound."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from backends.openai.capabilities import ServerCapabilities
from backends.openai.scoring import RemoteTokenizer, lists
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

PIECES = [b"a", b"\n", b"\nMan", b"Man", b"ly"]
LATER = math.log(0.3)


class Tokenizer(RemoteTokenizer):
    """Of "a", a line break and "Manly" it makes two tokens and a third that begins with the line break."""

    def __init__(self) -> None: ...

    async def pieces(self, text: str) -> Any:
        ids = {"a": [0], "a\n": [0, 1], "a\nManly": [0, 2, 4]}[text]
        return tuple(lists.Piece(i, PIECES[i]) for i in ids)


@pytest.mark.parametrize(("prompt", "rest"), [("a\n", "Manly"), ("a", "\nManly")])
async def test_a_straddling_token_counts_as_certain(prompt: str, rest: str) -> None:
    async def after(_: object, ids: tuple[int, ...], k: int) -> TopLogprobs:
        return TopLogprobs(tuple(ListedToken("", LATER, i, data) for i, data in enumerate(PIECES)), k, "", "ids")

    api = SimpleNamespace(found=ServerCapabilities(text_route="top_k_ids", largest_k=20))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lists, "next_tokens", after)
        (score,) = await lists.score_by_lists(api, prompt, [rest], Tokenizer())  # type: ignore[arg-type]
    if prompt == "a":
        assert (score.exactness, score.logprob) == ("exact", pytest.approx(2 * LATER))
    else:
        assert (score.exactness, score.boundary, score.logprob) == ("bounded", "straddled", None)
        assert score.high == pytest.approx(LATER)
        assert [(token.text, token.start, token.end) for token in score.tokens] == [("ly", 3, 5)]
