"""The texts of requests, as estimates count them."""

from __future__ import annotations

from backends.base import GenerateRequest, Request, ScoreRequest

CHARACTERS_PER_TOKEN = 4


def prompt_text(request: Request) -> str:
    """A request's prompt as one text: messages are joined by newlines."""
    prompt = request.prompt if isinstance(request, (ScoreRequest, GenerateRequest)) else request.text
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


def shared_length(a: str, b: str) -> int:
    """The length of the longest common prefix of two texts."""
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
