"""What a look asks of drawn answers: how many a request gives, whether a seed determines them, whether they vary."""

from __future__ import annotations

from typing import Any

from backends.base import Message
from backends.errors import BackendError
from backends.openai.look.session import Looking
from backends.openai.scoring.next_tokens import ask
from backends.reading.reasoning import text_of

#: Answers asked for at once: Google's servers give 8 at most.
_CHOICES = (20, 8, 1)
#: What is drawn. Three such answers are alike by chance once in ten million looks: SmolLM2 gives the likeliest eight
#: tokens a probability of e^-8, and a surer model's opening words leave sixteen.
_RANDOM = "Ten random letters and digits:"
_TOKENS = 24


async def draws_together(look: Looking) -> None:
    """How many answers one request gives by ``n``, whether a seed determines them, and whether they vary at all."""
    if look.found.family in ("llama.cpp", "llama-cpp-python"):  # of these it is known
        look.update(seed_works=True)
        return
    first: list[str] = []
    for n in _CHOICES:
        if not first and look.has_room(3):
            first = await _drawn(look, 7, n)
    n = len(first)
    look.update(choices=max(n, 1))
    if not first or not look.has_room(2):
        return
    few = min(n, 2)
    again, other = await _drawn(look, 7, few), await _drawn(look, 8, few)
    if n == 1 and first == again == other and look.has_room():
        other += await _drawn(look, 9, 1)
    said = [text for text in (*first, *again, *other) if text]  # a thought alone says nothing
    if len(said) > 1 and len(set(said)) == 1:
        look.copies = "drawn answers to one question are all the same: a cache answers, or the likeliest word is taken"
    look.update(seed_works=again == first[:few] != other)


async def _drawn(look: Looking, seed: int, n: int) -> list[str]:
    """The texts of one request for ``n`` answers; empty if it is refused."""
    prompt = _RANDOM if look.found.completions else (Message("user", _RANDOM),)
    options: dict[str, Any] = {"max_tokens": _TOKENS, "temperature": 1.0, "top_p": 1.0, "seed": seed}
    answer = await look.ask(ask, look.api, prompt, **options, **({"n": n} if n > 1 else {}))
    choices = None if isinstance(answer, BackendError) else answer.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return []
    return [text_of(choice) or "" for choice in choices]
