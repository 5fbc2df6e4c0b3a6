"""Draw the next tokens of many texts on their device: Gumbel-max with random numbers keyed by the request.

A token's random number depends on the key of its text (seed and repeat), the step and the token alone: neither on the
other texts of a batch nor on how many there are. The numbers are those of Squares, a counter-based generator (Widynski
2020, arXiv:2004.06278). The largest of logit + Gumbel noise is a draw from the softmax of the logits; where logits move
by rounding, another token is drawn no more often than the softmax moved (twice its total variation).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from backends.base import Sampling

_LOW = 0xFFFFFFFF
_TOKEN_BITS = 24  # of a counter; the others count steps


class KeyedDraw(LogitsProcessor):  # type: ignore[misc]
    """Logits to scores whose arg max is the next token of each row.

    Parameters
    ----------
    sampling : Sampling
        Of all rows; temperature 0 takes the likeliest token.
    keys : sequence of int
        64 bits for each row.
    width : int
        Tokens of the prompts, padding included: the next one is step 0.

    Attributes
    ----------
    peaks : torch.Tensor
        The largest logit of each row at the newest step: NaN or infinite where the logits are no distribution.
    """

    def __init__(self, sampling: Sampling, keys: Sequence[int], width: int, device: torch.device) -> None:
        self._width = width
        signed = [key - 2**64 if key >= 2**63 else key for key in (key | 1 for key in keys)]
        self._keys = torch.tensor(signed, device=device).unsqueeze(1)
        self._is_greedy = sampling.temperature == 0
        self._filters = LogitsProcessorList(_filters(sampling))
        self.peaks = torch.zeros(len(keys), device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.peaks = scores.amax(-1)
        scores = self._filters(input_ids, scores)
        if self._is_greedy:
            return scores
        return scores - waiting_times(self._keys, input_ids.shape[1] - self._width, scores.shape[1]).log_()


def waiting_times(keys: torch.Tensor, step: int, count: int) -> torch.Tensor:
    """Independent exponential random numbers with mean 1 of ``count`` tokens: float32 of shape (rows, count).

    ``keys``: odd int64 of shape (rows, 1). Minus their logarithms are Gumbel noise.
    """
    uniform = squares(keys, step, count).float().add_(0.5).mul_(2.0**-32)
    # Precise where it matters: the token with the least time wins. Rounding to 1 would be an infinite time.
    return uniform.neg_().log1p_().neg_().clamp_(max=23.0)


def squares(keys: torch.Tensor, step: int, count: int) -> torch.Tensor:
    """32 random bits for each row and token, as int64: four rounds of squares, with the arithmetic of 64 bits."""
    counter = torch.arange(count, device=keys.device).add_(step << _TOKEN_BITS)
    first = counter * keys
    second = first + keys
    bits = first.clone()
    for added in (first, second, first):
        bits.mul_(bits).add_(added)
        upper = (bits >> 32).bitwise_and_(_LOW)
        bits.bitwise_left_shift_(32).bitwise_or_(upper)
    return bits.mul_(bits).add_(second).bitwise_right_shift_(32).bitwise_and_(_LOW)


def _filters(sampling: Sampling) -> list[LogitsProcessor]:
    """In the order of `Sampling`; transformers' own."""
    found: list[LogitsProcessor] = []
    if sampling.repetition_penalty != 1:
        found.append(RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty)))
    if sampling.temperature == 0:
        return found
    if sampling.temperature != 1:
        found.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(float(sampling.top_p)))
    return found
