"""How much work each request is for a local model, so that the time left can be told.

Prompts of one suite may differ tenfold in length. What a prompt shares with the one before it is
read once, so only the rest counts. A written token takes about as long as four read ones in a
batch; how many will be written is not known, so the most allowed is taken.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from backends.base import GenerateRequest, Prompt, Request, ScoreRequest

CHARACTERS_A_TOKEN = 4
READ_TOKENS_A_WRITTEN_ONE = 4


def estimate_work(requests: Iterable[Request]) -> array[int]:
    """The work of each request, in characters that are read; at least 1."""
    work = array("L")
    before = ""
    for request in requests:
        match request:
            case ScoreRequest(prompt, continuations):
                text, more = _text(prompt), sum(map(len, continuations))
            case GenerateRequest(prompt, sampling):
                text, more = _text(prompt), sampling.max_tokens * READ_TOKENS_A_WRITTEN_ONE * CHARACTERS_A_TOKEN
            case _:
                text, more = request.text, 0
        work.append(max(1, len(text) - _shared(before, text) + more))
        before = text
    return work


def _text(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


def _shared(a: str, b: str) -> int:
    """How many characters two texts have in common at their beginning."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] is shared, a[:high] is not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
