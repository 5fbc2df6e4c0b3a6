"""Texts for a batch of requests: what the engines in this process share.

An engine writes several texts at once, with a sampler of its own. What is here: prompts that cannot be written are
refused, each answer is told as soon as it is known, fewer texts are written at once where memory runs out, and an odd
request fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import numpy as np

from backends.base import GenerateRequest, GenerateResponse, OnResponse, Prompt
from backends.errors import BackendError, StoppedError
from backends.local.backend import discard_response

MOST_TEXTS = 256
"""Texts written at once where memory allows; an engine may have a limit of its own."""

Generated = GenerateResponse | BackendError


class NoRoomError(Exception):
    """The work does not fit in memory."""


@dataclass(eq=False)
class Text:
    """One request in progress.

    Attributes
    ----------
    index : int
        Its position in the batch.
    prompt, drawn : list of int
        Tokens of the prompt, and those drawn so far.
    written : bytearray
        What these spell; a token may hold a part of a character.
    answer : GenerateResponse or BackendError or None
        None while the text is not finished.
    """

    index: int
    request: GenerateRequest
    prompt: list[int]
    drawn: list[int] = field(default_factory=list)
    written: bytearray = field(default_factory=bytearray)
    answer: Generated | None = None

    @property
    def most_tokens(self) -> int:
        """Tokens of the prompt and of the longest text."""
        return len(self.prompt) + self.request.sampling.max_tokens

    @property
    def key(self) -> int:
        """What its random numbers depend on, and on nothing else: 64 bits made of seed and repeat."""
        seeds = np.random.SeedSequence((self.request.seed % 2**64, self.request.repeat % 2**64))
        return int(seeds.generate_state(1, np.uint64)[0])

    def take(self, token: int, piece: bytes, *, ends: bool) -> None:
        """Add the next token, or end with it; the answer is set where the text is finished."""
        if not ends:
            self.drawn.append(token)
            self.written += piece
        sampling = self.request.sampling
        found = [at for stop in sampling.stop if (at := self.written.find(stop.encode())) >= 0]
        del self.written[min(found, default=len(self.written)) :]
        if ends or found or len(self.drawn) == sampling.max_tokens:
            reason: Literal["stop", "length"] = "stop" if ends or found else "length"
            text = self.written.decode("utf-8", "replace")
            self.answer = GenerateResponse(text, reason, len(self.prompt), len(self.drawn))


Tell = Callable[[Text], None]
"""Called with a text as soon as it has its answer."""


class TextEngine(Protocol):
    """A loaded model that writes texts."""

    @property
    def context(self) -> int | None:
        """Maximum tokens of prompt and answer; None: no limit."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model can read."""

    @property
    def route(self) -> str:
        """How texts are written and why, for reports; empty where that is not known yet, or usual."""

    def render(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt."""

    def groups(self, texts: list[Text], most: int) -> Iterable[list[Text]]:
        """The texts as they are given to `write`: no more than ``most`` are then computed at once.

        Raises `BackendError` if the model writes no texts.
        """

    def write(self, texts: list[Text], most: int, tell: Tell, is_stopped: Callable[[], bool]) -> None:
        """Write these texts, and tell each as soon as it has its answer; after a stop some have none.

        Raises `NoRoomError` where memory runs out, after freeing what the work held.
        """


class TextGenerator:
    """Writes texts with one loaded model.

    Attributes
    ----------
    halvings : int
        How many times the number of texts written at once is currently halved, because memory ran out.
    """

    def __init__(self, engine: TextEngine) -> None:
        self._engine = engine
        self.halvings = 0

    @property
    def route(self) -> str:
        """As in `TextEngine`."""
        return self._engine.route

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        on_response: OnResponse = discard_response,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[Generated]:
        """One answer per request, in order; ``on_response`` is called with each as soon as it is known.

        ``is_stopped`` is asked before each step; once it says so, texts that have not ended are `StoppedError`.
        """
        answers: list[Generated | None] = [None] * len(requests)
        texts: list[Text] = []
        for index, request in enumerate(requests):
            try:
                texts.append(Text(index, request, self._checked_prompt(request)))
            except BackendError as error:  # e.g. a chat prompt for a model without chat template
                answers[index] = error

        def tell(text: Text) -> None:
            answers[text.index] = text.answer
            if text.answer is not None:
                on_response(text.index, text.answer)

        self.halvings = max(0, self.halvings - 1)  # what did not fit may fit now
        failure: BackendError | None = None
        try:
            self._write(texts, tell, is_stopped)
        except BackendError as error:  # the model writes no texts
            failure = error
        return [answer or failure or StoppedError() for answer in answers]

    def _checked_prompt(self, request: GenerateRequest) -> list[int]:
        prompt = list(self._engine.render(request.prompt))
        check_length(prompt, request, self._engine.context)
        check_known(prompt, self._engine.vocabulary)
        return prompt

    def _write(self, texts: list[Text], tell: Tell, is_stopped: Callable[[], bool]) -> None:
        """Write all of these, or some until a stop. What fails together is tried again in halves."""
        for group in self._engine.groups(texts, MOST_TEXTS >> self.halvings):
            if is_stopped():
                return
            write = partial(self._engine.write, tell=tell, is_stopped=is_stopped)
            try:
                write(group, max(1, MOST_TEXTS >> self.halvings))
                continue
            except NoRoomError:
                failure = text_too_large()
                self._halve(len(group))
            except Exception as error:  # foreign code: it may fail in any way
                failure = BackendError.of(error)
            left = [_anew(text) for text in group if text.answer is None]
            if len(left) > 1:
                for half in (left[: len(left) // 2], left[len(left) // 2 :]):
                    self._write(half, tell, is_stopped)
            for text in left[: len(left) == 1]:
                text.answer = failure
                tell(text)

    def _halve(self, count: int) -> None:
        """Write at most half as many at once as did not fit."""
        while self.halvings < MOST_TEXTS.bit_length() and MOST_TEXTS >> self.halvings > max(1, count // 2):
            self.halvings += 1


def _anew(text: Text) -> Text:
    return Text(text.index, text.request, text.prompt)


def text_too_large() -> BackendError:
    """The error for a text that does not fit in memory even on its own."""
    return BackendError(
        "out_of_memory",
        "a single text does not fit in memory",
        hint="lower max_tokens, or use a smaller dtype or model",
    )


def no_distribution(logit: float) -> BackendError:
    """The error for a model whose logits are NaN or infinite."""
    return BackendError(
        "internal",
        f"a logit of {logit}: the model's output is not a distribution over tokens",
        hint="try float32, or a GGUF file of another quantisation",
    )


def check_known(tokens: Sequence[int], vocabulary: int, text: Callable[[int], bytes] | None = None) -> None:
    """Raise `BackendError` for a token beyond the model's embedding; ``text`` gives what a token spells."""
    if (largest := max(tokens, default=0)) >= vocabulary:
        spelt = "" if text is None else f" ({text(largest)!r})"
        raise BackendError(
            "unsupported",
            f"the tokenizer's token {largest}{spelt} is not one of the model's {vocabulary}",
            hint="give the tokenizer that belongs to this model",
        )


def check_length(prompt: list[int], request: GenerateRequest, context: int | None) -> None:
    """Raise `BackendError` for a prompt without tokens, and one that leaves no room for its text."""
    if not prompt:
        raise BackendError("bad_request", "the prompt has no tokens", hint="give a prompt that is not empty")
    most = request.sampling.max_tokens
    if context is not None and len(prompt) + most > context:
        raise BackendError(
            "context_length",
            f"{len(prompt)} prompt tokens and {most} to generate exceed the context of {context}",
            hint="lower max_tokens",
        )
