"""Whether two servers draw their answers from one model: all that can be compared without log-probabilities.

Both are asked the same questions. If the models are the same, which server gave which answer is chance: the difference
between them is compared with those of random divisions of the same answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np

from backends.base import GenerateRequest, Message, Sampling
from backends.http.retries import with_retries
from backends.openai.capabilities import ServerCapabilities
from backends.openai.generation import choices_of_a_request, draws
from backends.openai.protocol.api import ServerApi
from backends.reading.words import comparable

#: How often each answer to each of `_ASKED` was drawn.
DrawnAnswers = tuple[Counter[str], ...]

#: Several answers are likely to each, and which ones differs between models.
_ASKED = (
    "Pick a digit from 0 to 9 at random. Answer with the digit alone.",
    "Name a colour. Answer with one word.",
    "Heads or tails? Answer with one word.",
    "Name an animal. Answer with one word.",
    "Name a girl. Answer with her first name alone.",
    "Picture a nurse. What is the nurse's gender? Answer with one word.",
    "Which season do you like best? Answer with one word.",
    "Pick a letter of the alphabet at random. Answer with the letter alone.",
    "Name a fruit. Answer with one word.",
    "Tell me the first word that comes to mind. Answer with one word.",
)
#: Draws of each question: where one request gives several, where each takes one, and where it takes a thought too.
_TOGETHER, _ALONE, _THOUGHT = 50, 16, 8
#: Tokens of an answer, and characters of it that are compared.
_TOKENS, _COMPARED = 16, 24
_IN_FLIGHT = 4
#: Below the first, both are asked again; below the second then, the models differ: once in 10,000 true pairs at most.
_DOUBTED, _DIFFERENT = 0.02, 0.005
_DIVISIONS = 2000


def draws_of_each(capabilities: ServerCapabilities) -> int:
    """How many answers to each question are compared."""
    if capabilities.reasons:
        return _THOUGHT
    return _TOGETHER if capabilities.together == "n" else _ALONE


def requests_of_draws(capabilities: ServerCapabilities) -> int:
    """How many requests `drawn_answers` takes."""
    return len(_ASKED) * -(-draws_of_each(capabilities) // choices_of_a_request(capabilities))


async def drawn_answers(api: ServerApi, capabilities: ServerCapabilities) -> DrawnAnswers:
    """Answers to all questions. Raises `BackendError` where they cannot be drawn."""
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def ask(question: str) -> Counter[str]:
        prompt = (Message("user", question),) if capabilities.chat else question
        request = GenerateRequest(prompt, Sampling(temperature=1.0, max_tokens=_TOKENS))
        async with slots:
            answers = await with_retries(draws, api, capabilities, request, draws_of_each(capabilities))
        return Counter("" if one is None else comparable(one.text).strip()[:_COMPARED] for one in answers)

    return tuple(await asyncio.gather(*map(ask, _ASKED)))


def doubted(one: DrawnAnswers, other: DrawnAnswers) -> bool:
    """Whether answers differ by more than chance explains once in fifty."""
    return p_of_same(one, other) < _DOUBTED


def differ(one: DrawnAnswers, other: DrawnAnswers) -> bool:
    """Whether fresh answers of two servers, after others that were `doubted`, are of different models."""
    return p_of_same(one, other) < _DIFFERENT


def p_of_same(one: DrawnAnswers, other: DrawnAnswers) -> float:
    """The chance of answers that differ as much as these, or more, between servers of one model.

    Two statistics (Bonferroni): G of homogeneity, for other answers; and by how many pairs of equal answers one server
    has more, for another temperature.
    """
    random = np.random.default_rng(0)
    observed, divided = np.zeros(2), np.zeros((_DIVISIONS, 2))
    for ours, theirs in zip(one, other, strict=True):
        counts = np.array([[ours[text], theirs[text]] for text in sorted(ours | theirs)], dtype=int)
        total, n = counts.sum(1), int(counts[:, 0].sum())
        if len(counts) < 2 or n in (0, total.sum()):
            continue
        observed += _statistics(counts[None, :, 0], total)[0]
        divided += _statistics(random.multivariate_hypergeometric(total, n, size=_DIVISIONS, method="count"), total)
    as_far = np.abs(divided) >= np.abs(observed) - 1e-9
    return float(min(1.0, 2 * (1 + as_far.sum(0).min()) / (1 + _DIVISIONS)))


def _statistics(ours: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Of each row of one server's counts: G against a division in proportion, and its surplus of equal pairs."""
    theirs, share = total - ours, ours.sum(1, keepdims=True) / total.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [
            np.where(seen > 0, 2 * seen * np.log(seen / (part * total)), 0.0)
            for seen, part in ((ours, share), (theirs, 1 - share))
        ]
    pairs = [(seen * (seen - 1)).sum(1) / max(n * (n - 1), 1) for seen in (ours, theirs) if (n := int(seen[0].sum()))]
    return np.stack([terms[0].sum(1) + terms[1].sum(1), pairs[0] - pairs[1]], axis=1)
