"""Try once how far a loaded engine's log-probabilities move that should not move at all.

The same texts are scored by next tokens in one call, again with the prefix cache warm, and as whole prompts, one at a
time and without a cache. What these differ by is the engine's own noise.
"""

from __future__ import annotations

import numpy as np

from backends.errors import BackendError
from backends.local.scoring import logprobs
from backends.local.trie import Floats, Path
from backends.vllm.engine import BLOCK_TOKENS, VLLMEngine
from backends.vllm.scoring import NextTokenScorer, prompt_logprobs

_STEM = 2 * BLOCK_TOKENS + 5  # tokens that the trial's texts share: two whole blocks and a part of one
_ENDS = (6, 9, 4, 12)
#: Nats by which the mean token may move where nothing rounds more than float32 does, and in 16 bits.
_ROUNDING, _ROUNDING_OF_16_BITS = 1e-4, 0.1


def tried(engine: VLLMEngine, scorer: NextTokenScorer, *, is_precise: bool) -> str:
    """The engine's noise, for reports. The prefix cache is read no more if it moves numbers by more than rounding.

    Raises
    ------
    BackendError
        ``unsupported``, for an engine whose two ways to one number disagree.
    """
    random = np.random.default_rng(3)
    most = min(engine.vocabulary, 1000)
    room = max(2, min(_STEM, engine.context - max(_ENDS)))
    stem = tuple(random.integers(3, most, room).tolist())
    lines = [stem + tuple(random.integers(3, most, n).tolist()) for n in _ENDS]
    whole = prompt_logprobs(engine, lines)
    rounding = _ROUNDING if is_precise else _ROUNDING_OF_16_BITS
    moved = _moved(scorer, lines, whole)
    cache = "prefix cache"
    if not moved.mean() <= rounding:
        scorer.reads_cache, cache = False, "no prefix cache, which changes the numbers"
        moved = _moved(scorer, lines, whole)
    if not moved.mean() <= rounding:  # NaN is neither
        raise BackendError(
            "unsupported",
            f"this engine's log-probabilities of next tokens and of prompts differ by {moved.mean():.2g} nats",
            hint="use HFBackend, or another version of vLLM",
        )
    return f"one request for each position; {cache}; repeated scores were up to {moved.max():.2g} nats apart"


def _moved(scorer: NextTokenScorer, lines: list[tuple[int, ...]], whole: list[Floats]) -> Floats:
    """|difference| of every token, scored by next tokens twice, from the whole prompts' values and from each other."""
    paths = [Path(line, 1) for line in lines]
    first, again = (np.concatenate([*map(_values, logprobs(scorer, paths))]) for _ in range(2))
    usual = np.concatenate(whole)
    return np.concatenate([np.abs(first - usual), np.abs(again - usual), np.abs(first - again)])


def _values(found: Floats | BackendError) -> Floats:
    if isinstance(found, BackendError):
        raise found
    return found
