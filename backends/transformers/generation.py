"""Texts by transformers' own ``generate``, many at once, with the draw of `backends.transformers.draw`.

A batch holds texts of the same sampling options, the shorter prompts padded in front. Models that count padding write
texts of equally long prompts together; models whose cache changes their numbers write without one. Which of these a
model needs is tried once, before its first text.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Literal

import numpy as np
import psutil
import torch
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria
from transformers.cache_utils import DummyLayer, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from backends.base import Prompt
from backends.errors import BackendError, one_line
from backends.local.encoder import TextEncoder
from backends.local.generation import NoRoomError, Tell, Text, no_distribution, text_too_large
from backends.transformers.context import context_length, vocabulary_size
from backends.transformers.draw import KeyedDraw
from backends.transformers.memory import is_out_of_memory, within_memory

#: Texts of any lengths; of equally long prompts; one at a time and without a cache.
Way = Literal["together", "equal", "alone"]

MOST_ROWS_ON_CPU = 64  # on two cores more rows are no faster
MANY_TEXTS = 200  # on CUDA, reports then name the faster engine
ROUNDING_OF_16_BITS = 0.25  # nats by which a step of a correct model may move if it does not compute in float32
TRIAL_PROMPTS, TRIAL_STEPS = (9, 4), 3  # prompt tokens of the trial's sequences, and the steps that follow


class HFGeneration:
    """`backends.local.generation.TextEngine` over a loaded model.

    Parameters
    ----------
    model
        A causal language model in eval mode.
    device : str
        Where ``model`` takes its input.
    ends : set of int
        Tokens that end a text.
    """

    def __init__(self, model: Any, encoder: TextEncoder, *, device: str, ends: frozenset[int]) -> None:
        self._model, self._encoder, self._ends = model, encoder, ends
        self._device = torch.device(device)
        self.context, _ = context_length(model.config)
        self.vocabulary = vocabulary_size(model)
        self._takes_mask = "attention_mask" in inspect.signature(type(model).forward).parameters
        self._way: Way = "together"
        self._copies = True  # whether its cache's rows can be copied, as far as is known
        self.route = ""
        # What a model's own file sets for texts (a penalty, tokens that are left out) is not what a request asks for.
        model.generation_config = GenerationConfig()
        logging.getLogger("transformers.generation").setLevel(logging.ERROR)  # it remarks on that

    def render(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt."""
        return self._encoder.render(prompt)

    def groups(self, texts: list[Text], most: int) -> Iterator[list[Text]]:
        """Texts of the same sampling options, of lengths that are near to each other, as many as memory has room for.

        Raises `BackendError` if the model writes no texts.
        """
        if not texts:
            return
        self._prepare(len(texts))
        for _, alike in groupby(sorted(texts, key=_order), key=lambda text: self._kind(text)):
            waiting = list(alike)
            while waiting:
                rows = 1 if self._way == "alone" else self._room(waiting[-1].most_tokens, most)
                yield waiting[-rows:]
                del waiting[-rows:]

    def write(self, texts: list[Text], most: int, tell: Tell, is_stopped: Callable[[], bool]) -> None:
        """As in `backends.local.generation.TextEngine`; the texts are a group."""
        width = max(len(text.prompt) for text in texts)
        with torch.inference_mode():
            cache = within_memory(partial(self._read_once, texts, width), str(self._device))
        rows = texts
        while rows and not is_stopped():
            draw = KeyedDraw(rows[0].request.sampling, [text.key for text in rows], width, self._device)
            batch = _Batch(rows, self._encoder, draw, self._ends, tell, is_stopped)
            lines = [[*text.prompt, *text.drawn] for text in rows]
            steps = max(text.request.sampling.max_tokens - len(text.drawn) for text in rows)
            with torch.inference_mode():
                call = partial(self._call, lines, width + len(rows[0].drawn), steps, draw, batch, cache=cache)
                cache = within_memory(call, str(self._device))
                kept = [at for at, text in enumerate(rows) if text.answer is None]
                rows, cache = [rows[at] for at in kept], _selected(cache, kept)

    def _read_once(self, texts: list[Text], width: int) -> Any:
        """The cache of all prompts but their last tokens where many are equal, each read once; None where few are."""
        places = {prompt: at for at, prompt in enumerate(dict.fromkeys(tuple(text.prompt) for text in texts))}
        if not self._copies or 4 * len(places) > 3 * len(texts) or min(map(len, places)) < 2:
            return None
        cache = self._call([prompt[:-1] for prompt in places], width - 1, 1, _Forced([[0]] * len(places)))
        cache = _selected(cache, [places[tuple(text.prompt)] for text in texts])
        self._copies = cache is not None
        return cache

    def _kind(self, text: Text) -> Hashable:
        """Texts are written together if this is equal."""
        # The penalty of transformers counts padding as said.
        is_padded = self._way == "together" and text.request.sampling.repetition_penalty == 1
        return (*_options(text), 0 if is_padded else len(text.prompt))

    def _room(self, tokens: int, most: int) -> int:
        """How many texts of so many tokens have room: their keys and values take half of the free memory at most."""
        config = self._model.config.get_text_config()
        # As many keys as the width of a layer: at most what is needed, and known of every kind of model.
        sizes = (getattr(config, name, 0) for name in ("num_hidden_layers", "hidden_size"))
        size = 2 * max(1, math.prod(sizes)) * self._model.dtype.itemsize
        if self._device.type == "cuda":
            free = torch.cuda.mem_get_info(self._device)[0]
        else:
            free, most = psutil.virtual_memory().available, min(most, MOST_ROWS_ON_CPU)
        return int(max(1, min(most, free // 2 // (size * tokens))))

    def _call(
        self,
        lines: Sequence[Sequence[int]],
        length: int,
        steps: int,
        processor: LogitsProcessor,
        criterion: StoppingCriteria | None = None,
        *,
        cache: Any = None,
    ) -> Any:
        """``generate`` for these sequences, padded to a length, for at most so many steps. Returns its cache."""
        ids = torch.zeros((len(lines), length), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, line in enumerate(lines):
            ids[row, length - len(line) :] = torch.tensor(line)
            mask[row, length - len(line) :] = 1
        given: dict[str, Any] = {} if cache is None else {"past_key_values": cache}
        if self._takes_mask:  # else token 0 of a text would count as padding
            given["attention_mask"] = mask.to(self._device)
        config = GenerationConfig(
            do_sample=False,  # the processor has drawn
            max_new_tokens=steps,
            use_cache=self._way != "alone",
            pad_token_id=0,
            return_dict_in_generate=True,
        )
        out = self._model.generate(
            ids.to(self._device),
            generation_config=config,
            logits_processor=[processor],
            stopping_criteria=[] if criterion is None else [criterion],
            **given,
        )
        return getattr(out, "past_key_values", None)

    # -- the trial ------------------------------------------------------------------------------

    def _prepare(self, count: int) -> None:
        """Choose once how this model writes texts."""
        if not self.route:
            if not callable(getattr(self._model, "generate", None)):
                raise BackendError("unsupported", f"{type(self._model).__name__} writes no texts in transformers")
            try:
                self._way, self.route = within_memory(self._choose_way, str(self._device))
            except NoRoomError:
                raise text_too_large() from None
        if self._device.type == "cuda" and count >= MANY_TEXTS and "VLLMBackend" not in self.route:
            self.route += "; on a GPU, VLLMBackend is made for many texts"

    def _choose_way(self) -> tuple[Way, str]:
        """The first way that gives the log-probabilities of plain passes, and why."""
        if not (wrong := self._what_is_wrong_with("together")):
            return "together", "many at once"
        if not self._what_is_wrong_with("equal"):
            return "equal", f"many at once, of prompts of equal length: {wrong}"
        return "alone", f"one at a time, each read anew for every token: {wrong}"

    def _what_is_wrong_with(self, way: Way) -> str:
        """Compare two sequences, continued this way, with a plain pass over each; empty if nothing is wrong.

        Compares the logits of every step, since a wrong position may leave the likeliest token unchanged.
        """
        self._way = way
        random = np.random.default_rng(2)
        most = min(self._model.config.get_text_config().vocab_size, 1000)
        lengths = TRIAL_PROMPTS if way == "together" else TRIAL_PROMPTS[:1] * 2
        lines = [random.integers(3, most, n + TRIAL_STEPS).tolist() for n in lengths]
        is_precise = _computes_in_float32(self._model)
        moved = 0.0
        forced = _Forced([line[-TRIAL_STEPS:] for line in lines])
        with torch.inference_mode():
            try:
                cache = self._call([line[:-TRIAL_STEPS] for line in lines], max(lengths), TRIAL_STEPS, forced)
            except (TypeError, AttributeError, ValueError, LookupError, RuntimeError) as error:
                if is_out_of_memory(error):
                    raise
                return f"it cannot continue several texts in one batch ({one_line(error)})"
            # A kind of cache of the model's own may forget tokens later than a trial can see.
            for layer in (cache, *getattr(cache, "layers", ())):
                if cache is not None and type(layer).__module__ != DynamicCache.__module__:
                    return f"a layer of this model keeps a {type(layer).__name__}, not keys and values"
            for row, line in enumerate(lines):
                ids = torch.tensor([line], device=self._device)
                plain = self._model(input_ids=ids, use_cache=False).logits[0, -TRIAL_STEPS - 1 : -1]
                steps = torch.stack([seen[row] for seen in forced.seen])
                distances = (steps.log_softmax(-1) - plain.float().log_softmax(-1)).abs()
                distances = distances.where(distances.isfinite(), 0)  # excluded tokens; overflow is told with its text
                # In 16 bits rounding may route a token to another expert: the worst step but one.
                *_, second, worst = sorted(distances.mean(-1).tolist())
                moved = max(moved, worst if is_precise else second)
        if not moved <= (1e-3 if is_precise else ROUNDING_OF_16_BITS):
            return f"its log-probabilities change by {moved:.2g} nats when the batch holds texts of other lengths"
        return ""


def _selected(cache: Any, rows: Sequence[int]) -> Any:
    """A cache with these rows alone; None for one that cannot drop rows."""
    if type(cache) is not DynamicCache or any(type(layer) not in _SELECTED for layer in cache.layers):
        return None
    for layer in cache.layers:
        layer.batch_select_indices(torch.tensor(rows, device=getattr(layer.keys, "device", None), dtype=torch.long))
    return cache


_SELECTED = (DynamicLayer, DynamicSlidingWindowLayer, DummyLayer)


class _Batch(StoppingCriteria):  # type: ignore[misc]
    """Follows the rows of one call of ``generate``: takes their tokens, and ends the rows and the call.

    Where half of the rows have ended, the call ends too: the others go on in a smaller batch.
    """

    def __init__(
        self,
        texts: Sequence[Text],
        encoder: TextEncoder,
        draw: KeyedDraw,
        ends: frozenset[int],
        tell: Tell,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.texts, self._encoder, self._draw = texts, encoder, draw
        self._ends, self._tell, self._is_stopped = ends, tell, is_stopped
        self._least = len(texts) // 2

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        peaks = self._draw.peaks.double()
        newest: list[list[float]] = torch.stack([input_ids[:, -1].double(), peaks]).T.tolist()  # one transfer for both
        for text, (token, peak) in zip(self.texts, newest, strict=True):
            if text.answer is None:
                self._advance(text, int(token), peak)
        running = sum(text.answer is None for text in self.texts)
        ends_all = running <= self._least or self._is_stopped()
        return torch.tensor([ends_all or text.answer is not None for text in self.texts], device=input_ids.device)

    def _advance(self, text: Text, token: int, peak: float) -> None:
        if not np.isfinite(peak):
            text.answer = no_distribution(peak)
        else:
            text.take(token, self._encoder.visible(token), ends=token in self._ends)
        if text.answer is not None:
            self._tell(text)


class _Forced(LogitsProcessor):  # type: ignore[misc]
    """Makes each row go on with given tokens, and keeps the logits (rows, vocabulary) of each step."""

    def __init__(self, tokens: list[list[int]]) -> None:
        self._tokens, self.seen = tokens, list[torch.Tensor]()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen = torch.tensor([row[len(self.seen)] for row in self._tokens], device=scores.device)
        self.seen.append(scores.float())
        return torch.zeros_like(scores).scatter_(1, chosen.unsqueeze(1), 1.0)


def _order(text: Text) -> tuple[Any, ...]:
    """Texts that are written together lie together, and among them those that end at the same time."""
    return (*_options(text), len(text.prompt), text.request.sampling.max_tokens, text.index)


def _options(text: Text) -> tuple[Any, ...]:
    sampling = text.request.sampling
    return sampling.temperature, sampling.top_p, sampling.top_k, sampling.repetition_penalty


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text, from the model's configs and the tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or ())
    return frozenset(found)


def _computes_in_float32(model: Any) -> bool:
    """Whether nothing in the model rounds more than float32 does.

    Quantised weights are multiplied in 16 bits or fewer, although such a model's dtype may be float32.
    """
    is_quantised = getattr(model.config, "quantization_config", None) is not None
    return not is_quantised and all(weight.dtype in (torch.float32, torch.float64) for weight in model.parameters())
