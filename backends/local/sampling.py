"""Sample tokens from logits, the same way on every local engine.

The filters follow `Sampling`'s order: repetition penalty, temperature, top_k, top_p. Arithmetic is
float64 on the CPU, so that two engines with equal logits draw equal texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from backends.base import Sampling
from backends.errors import BackendError

Logits = npt.NDArray[np.floating]


class Sampler:
    """Samples one text's tokens.

    The random numbers depend on (seed, repeat) alone, one per token: the other texts of a batch, and
    the moment a text joins it, change nothing. The logits may still differ: engines round
    differently in batches of different sizes, which can decide a near tie.

    Parameters
    ----------
    sampling : Sampling
    seed, repeat : int
        As in `GenerateRequest`.
    prompt : iterable of int
        The prompt's tokens, to which the repetition penalty applies too, as in transformers
        (Keskar et al. 2019, equation 4, applied to positive logits by division and to
        negative ones by multiplication).
    """

    def __init__(self, sampling: Sampling, seed: int, repeat: int, prompt: Iterable[int]) -> None:
        self._sampling = sampling
        self._said = set(prompt) if sampling.repetition_penalty != 1 else None
        self._random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed % 2**64, repeat % 2**64))))

    @property
    def is_greedy(self) -> bool:
        """Whether the next token is simply the arg max, which an engine may take itself."""
        return self._sampling.temperature == 0 and self._said is None

    def draw(self, logits: Logits) -> int:
        """The next token, given logits of shape (vocabulary,).

        Raises
        ------
        BackendError
            ``internal``, when the logits are not a distribution: NaN or infinite.
        """
        likeliest = int(logits.argmax())  # the first NaN, if there is one
        if not np.isfinite(logits[likeliest]):
            raise BackendError(
                "internal",
                f"a logit of {logits[likeliest]}: the model's output is not a distribution over tokens",
                hint="try float32, or a GGUF file of another quantisation",
            )
        if self.is_greedy:
            return likeliest
        scores = logits.astype(np.float64)
        if self._said is not None:
            said = np.fromiter(self._said, np.intp, len(self._said))
            penalty = self._sampling.repetition_penalty
            scores[said] = np.where(scores[said] > 0, scores[said] / penalty, scores[said] * penalty)
        token = int(scores.argmax()) if self._sampling.temperature == 0 else self._draw(scores)
        if self._said is not None:
            self._said.add(token)
        return token

    def _draw(self, scores: npt.NDArray[np.float64]) -> int:
        weights = np.exp((scores - scores.max()) / self._sampling.temperature)
        kept = np.arange(len(weights))
        k, p = self._sampling.top_k, self._sampling.top_p
        if 0 < k < len(weights):
            least = np.partition(weights, -k)[-k]
            kept = _descending(weights, np.flatnonzero(weights >= least))[:k]
        if p < 1:
            kept = _nucleus(weights, kept, p)
        cumulated = np.cumsum(weights[kept])
        place = int(np.searchsorted(cumulated, self._random.random() * cumulated[-1], side="right"))
        # Rounding may put the random number at the very end.
        return int(kept[min(place, len(kept) - 1)])


def _descending(weights: npt.NDArray[np.float64], ids: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """``ids`` by descending weight; ties keep the order of ids."""
    ordered: npt.NDArray[np.intp] = ids[np.argsort(-weights[ids], kind="stable")]
    return ordered


def _nucleus(weights: npt.NDArray[np.float64], ids: npt.NDArray[np.intp], p: float) -> npt.NDArray[np.intp]:
    """The smallest set of likeliest ids that holds at least the share ``p`` of the weight of ``ids``.

    Sorting a whole vocabulary is slow, and nearly all of it lies outside: only the ids above a floor
    are sorted, and the floor is lowered until they hold enough weight.
    """
    mine = weights[ids]
    wanted = p * mine.sum()
    floor = mine.sum() * 1e-3
    while True:
        head = mine >= floor
        if floor < 1e-30 or mine[head].sum() >= wanted:
            break
        floor *= 1e-3
    if floor < 1e-30:
        head = np.ones(len(mine), dtype=bool)
    ordered = _descending(weights, ids[head])
    size = int(np.searchsorted(np.cumsum(weights[ordered]), wanted * (1 - 1e-12))) + 1
    return ordered[:size]


class StopStringDecoder:
    """The bytes of a growing text, cut at the first stop string.

    A token may hold part of a character: bytes are collected and decoded at the end, with U+FFFD only
    for bytes that never became a character.

    Parameters
    ----------
    stop : tuple of str
    token_bytes : callable
        A token's text.
    """

    def __init__(self, stop: tuple[str, ...], token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._stop = tuple(s.encode() for s in stop)
        self._longest = max(map(len, self._stop), default=0)
        self._bytes = bytearray()

    def add(self, token: int) -> bool:
        """Append a token. True when a stop string is reached; the text then ends before it."""
        start = max(0, len(self._bytes) - self._longest + 1)
        self._bytes += self._token_bytes(token)
        found = [at for stop in self._stop if (at := self._bytes.find(stop, start)) >= 0]
        if found:
            del self._bytes[min(found) :]
        return bool(found)

    @property
    def text(self) -> str:
        """The text so far."""
        return self._bytes.decode("utf-8", "replace")
