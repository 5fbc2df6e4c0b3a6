"""From logits on a device to what a sampler takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from backends.local.generation import Text
from backends.local.sampling import Logits


def next_tokens(texts: Sequence[Text], logits: torch.Tensor) -> list[tuple[Text, Logits | int]]:
    """Each text with its row of logits (texts, vocabulary); a greedy one with the arg max alone, if all are finite."""
    # NaN and +inf are the maximum of their row; -inf only excludes a token. One transfer for both results.
    finite = logits.amax(-1).isfinite()
    likeliest, are_finite = torch.stack([logits.argmax(-1), finite.long()]).tolist()
    host: Logits | None = None
    outputs: list[tuple[Text, Logits | int]] = []
    for row, text in enumerate(texts):
        if text.sampler.is_greedy and are_finite[row]:
            outputs.append((text, int(likeliest[row])))
        else:
            if host is None:
                host = logits.float().cpu().numpy()
            outputs.append((text, np.asarray(host[row])))
    return outputs
