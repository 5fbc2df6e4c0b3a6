"""Text generation on transformers for models that a batch of rows does not fit: one text at a time.

A recurrent layer keeps a state instead of keys and values, and some models ignore the mask of a batch. Alone, a
text needs neither: the model's own cache goes with it, or, where that changes its numbers too, it is read anew
for each token.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from backends.local.generation import Text
from backends.local.sampling import Logits
from backends.transformers.cached_state import cache_name
from backends.transformers.outputs import next_tokens


class OneText:
    """`Slots` with one slot.

    Parameters
    ----------
    model
        A causal language model in eval mode, on ``device``.
    texts : list of Text
    with_cache : bool
        Whether each token is read once, or the whole text for each token.

    Raises
    ------
    ValueError
        From `forward`, for a model without a cache.
    """

    def __init__(self, model: Any, device: str, texts: list[Text], *, with_cache: bool) -> None:
        self._model, self._device, self._with_cache = model, device, with_cache
        takes = inspect.signature(type(model).forward).parameters
        self._cache_name = cache_name(model)
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._waiting = list(reversed(texts))
        self._text: Text | None = None
        self._cache: Any = None

    def step(self) -> list[tuple[Text, Logits | int]]:
        return next_tokens(*self.forward())

    def forward(self) -> tuple[list[Text], torch.Tensor]:
        """One forward pass. Logits: (1, vocabulary)."""
        text = self._text or self._waiting.pop()
        self._text = text
        logits = self._read(text) if self._with_cache else self._read_anew(text)
        return [text], logits[:, -1]

    def settle(self) -> None:
        if self._text is not None and self._text.answer is not None:
            self._text = self._cache = None

    def _read_anew(self, text: Text) -> torch.Tensor:
        ids = torch.tensor([[*text.prompt, *text.drawn]], device=self._device)
        logits: torch.Tensor = self._model(input_ids=ids, use_cache=False, **self._options).logits
        return logits

    def _read(self, text: Text) -> torch.Tensor:
        if self._cache_name is None:
            raise ValueError("it takes no cache")
        new = text.prompt if self._cache is None else text.drawn[-1:]
        out = self._model(
            input_ids=torch.tensor([new], device=self._device),
            use_cache=True,
            **({} if self._cache is None else {self._cache_name: self._cache}),
            **self._options,
        )
        self._cache = getattr(out, self._cache_name, None)
        if self._cache is None:
            raise ValueError("it returns no cache")
        logits: torch.Tensor = out.logits
        return logits
