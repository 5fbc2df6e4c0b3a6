"""What generation needs from a loaded transformers model, and a test of how the model can be asked.

Models that ignore the cache, the mask or the positions would generate different texts in a batch than alone. So
each model is tested once, before its first text: many texts at once, one at a time with the model's own cache,
or one at a time without any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import DummyLayer, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from backends.base import GenerateRequest, GenerateResponse, Prompt, Sampling
from backends.errors import BackendError, one_line
from backends.local.generation import NoRoomError, Slots, Text, text_too_large
from backends.transformers.context import alike_places, context_length, vocabulary_size
from backends.transformers.memory import is_out_of_memory, within_memory
from backends.transformers.one_text import OneText
from backends.transformers.precision import ROUNDING_OF_16_BITS, computes_in_float32
from backends.transformers.rows import RowBlock, columns_of

_Way = Callable[[Any, str, list[Text], int], RowBlock | OneText]

TRIAL_PROMPTS, TRIAL_STEPS = (9, 4), 3  # prompt tokens of the trial's sequences, and the steps that follow
CACHES = DynamicCache.__module__  # where transformers defines the kinds of caches that many models share
UNREADABLE = "\ufffd"  # stands for bytes that are no character
CONTEXT_TOKENS = 4  # prompt tokens decoded together with a text, so that its leading space is kept


class HFGeneration:
    """`GenerationEngine` over a loaded model.

    Parameters
    ----------
    model, tokenizer
        A causal language model in eval mode, and its tokenizer.
    device : str
        Where ``model`` is.
    render : callable
        The tokens of a prompt.
    """

    def __init__(self, model: Any, tokenizer: Any, *, device: str, render: Callable[[Prompt], list[int]]) -> None:
        self._model, self._tokenizer, self._device, self._render = model, tokenizer, device, render
        self.context, _ = context_length(model.config)
        self.vocabulary = vocabulary_size(model)
        self._end_tokens = _end_tokens(model, tokenizer)
        self._alike = alike_places(model.config)
        self._way: _Way = _together
        self._reason = ""

    def render(self, prompt: Prompt) -> list[int]:
        return self._render(prompt)

    def decoder(self, prompt: Sequence[int], stop: tuple[str, ...]) -> _TokenizerDecoder:
        return _TokenizerDecoder(self._tokenizer, prompt, stop)

    def ends_text(self, token: int) -> bool:
        return token in self._end_tokens

    def open_slots(self, texts: list[Text], halvings: int) -> AbstractContextManager[Slots]:
        is_far = self._alike is not None and columns_of(texts) > self._alike
        way = _alone if is_far and self._way is _together else self._way
        return nullcontext(way(self._model, self._device, texts, halvings))

    def within_memory(self, work: Callable[[], None]) -> None:
        with torch.inference_mode():
            within_memory(work, self._device)

    def prepare(self) -> BackendError | None:
        """Choose how this model writes texts. Returns an error only if memory runs out."""
        if not self._reason:
            try:
                with torch.inference_mode():
                    self._way, self._reason = within_memory(self._choose_way, self._device)
            except NoRoomError:
                return text_too_large()
        return None

    @property
    def route(self) -> str:
        return self._reason

    def _choose_way(self) -> tuple[_Way, str]:
        """The first way of three that gives the log-probabilities of plain passes, and why."""
        unusual = _unusual_cache(self._model)
        wrong = (unusual and f"a layer of this model keeps a {unusual.__name__}, not keys and values") or (
            self._what_is_wrong_with(_together)
        )
        if not wrong:
            return _together, "many at once"
        # A kind of cache of the model's own may forget tokens later than a trial can see.
        if not (unusual and unusual.__module__ != CACHES) and not self._what_is_wrong_with(_alone):
            return _alone, f"one at a time: {wrong}"
        return _anew, f"one at a time, each read anew for every token: {wrong}"

    def _what_is_wrong_with(self, way: _Way) -> str:
        """Compare two sequences of unequal length, continued this way, with a plain pass over each.

        Returns what is wrong; empty if nothing is. Compares the logits of every step, since a wrong position may
        leave the likeliest token unchanged.
        """
        model = self._model
        random = np.random.default_rng(2)
        vocabulary = min(model.config.get_text_config().vocab_size, 1000)
        lines = [random.integers(3, vocabulary, n + TRIAL_STEPS).tolist() for n in TRIAL_PROMPTS]
        is_precise = computes_in_float32(model)
        moved = 0.0
        try:
            continued = self._continue_lines(lines, way)
        except (TypeError, AttributeError, ValueError, LookupError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            return f"it cannot continue several texts in one batch ({one_line(error)})"
        for line, steps in zip(lines, continued, strict=True):
            ids = torch.tensor([line], device=self._device)
            plain = model(input_ids=ids, use_cache=False).logits[0, -len(steps) :].float().log_softmax(-1)
            distances = (torch.stack(steps).float().log_softmax(-1) - plain).abs()
            distances = distances.where(distances.isfinite(), 0)  # excluded tokens; overflow is reported with its text
            # In 16 bits rounding may route a token to another expert: the worst step but one.
            *_, second, worst = sorted(distances.mean(-1).tolist())
            moved = max(moved, worst if is_precise else second)
        if moved > (1e-3 if is_precise else ROUNDING_OF_16_BITS):
            return f"its log-probabilities change by {moved:.2g} nats when the batch holds texts of other lengths"
        return ""

    def _continue_lines(self, lines: list[list[int]], way: _Way) -> list[list[torch.Tensor]]:
        """For each sequence its logits after the prompt and after each later token."""
        request = GenerateRequest("", Sampling(max_tokens=TRIAL_STEPS))
        texts = [Text(at, request, line[:-TRIAL_STEPS], self.decoder((), ())) for at, line in enumerate(lines)]
        seen: list[list[torch.Tensor]] = [[] for _ in lines]
        slots = way(self._model, self._device, texts, 0)
        while any(text.answer is None for text in texts):
            for text, logits in zip(*slots.forward(), strict=True):
                seen[text.index].append(logits)
                if len(text.drawn) == TRIAL_STEPS:
                    text.answer = GenerateResponse("", "length")
                else:
                    text.drawn.append(lines[text.index][text.length])
            slots.settle()
        return seen


def _together(model: Any, device: str, texts: list[Text], halvings: int) -> RowBlock:
    return RowBlock(model, device, texts, halvings)


def _alone(model: Any, device: str, texts: list[Text], halvings: int) -> OneText:
    return OneText(model, device, texts, with_cache=True)


def _anew(model: Any, device: str, texts: list[Text], halvings: int) -> OneText:
    return OneText(model, device, texts, with_cache=False)


class _TokenizerDecoder:
    """`TextDecoder` over a transformers tokenizer.

    Some tokenizers drop a leading space when they decode: a few prompt tokens are decoded in front, and cut
    off again. Where the prompt has no text, those of a letter are.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int], stop: tuple[str, ...]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._before = self._end_of(prompt)
        self._tokens: list[int] = []
        self._stopped: str | None = None

    def _end_of(self, prompt: Sequence[int]) -> list[int]:
        """The prompt's last tokens, from a whole character on: decoders give up all bytes beside a part of one."""
        for more in range(4):
            before = list(prompt[-CONTEXT_TOKENS - more :])
            if not (text := self._decode(before)).startswith(UNREADABLE):
                return before if text else self._letter()
        return list(prompt[-CONTEXT_TOKENS:])

    def _letter(self) -> list[int]:
        encode = getattr(self._tokenizer, "encode", None)
        return [] if encode is None else list(encode("a", add_special_tokens=False))

    def add(self, token: int) -> bool:
        self._tokens.append(token)
        if self._stop:
            text = self.text
            ends = [at for stop in self._stop if (at := text.find(stop)) >= 0]
            if ends:
                self._stopped = text[: min(ends)]
        return self._stopped is not None

    @property
    def text(self) -> str:
        if self._stopped is not None:
            return self._stopped
        head, whole = self._decode(self._before), self._decode(self._before + self._tokens)
        return whole[len(head) :] if head and whole.startswith(head) else self._decode(self._tokens)

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _unusual_cache(model: Any) -> type | None:
    """The first kind of layer in a model's cache that keeps other than keys and values. A state has no rows to move.

    Dummy layers are ignored: they use the cache of another layer.
    """
    for layer in DynamicCache(config=model.config).layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer, DummyLayer):
            return type(layer)
    return None


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text, from the model's configs and the tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or ())
    return frozenset(found)
