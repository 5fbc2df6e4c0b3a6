"""Generate many texts at once: one loop for all engines in this process.

An engine keeps the running texts in slots and returns the next-token logits of each. Everything between logits
and answers is here: sampling, stopping, early answers, and fewer slots when memory runs out.

Reproducible: the same requests in one call give the same texts. A request on its own gives the same text up to
float rounding, which differs between batch sizes and occasionally decides a near tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from backends.base import GenerateRequest, GenerateResponse, OnResponse, Prompt
from backends.errors import BackendError, StoppedError
from backends.local.backend import discard_response
from backends.local.sampling import Logits, Sampler

SLOTS = 32  # measured on two cores: 64 are at most 4 % faster and take twice the memory

Generated = GenerateResponse | BackendError


class NoRoomError(Exception):
    """The work does not fit in memory."""


class TextDecoder(Protocol):
    """The text of a growing sequence of tokens."""

    def add(self, token: int) -> bool:
        """Append a token. True when a stop string is reached; the text then ends before it."""

    @property
    def text(self) -> str:
        """The text so far."""


@dataclass(eq=False)
class Text:
    """One request in progress.

    Attributes
    ----------
    index : int
        Its position in the batch.
    prompt, drawn : list of int
        Tokens of the prompt, and those sampled so far.
    answer : GenerateResponse or BackendError or None
        None while the text is running.
    """

    index: int
    request: GenerateRequest
    prompt: list[int]
    decoder: TextDecoder
    sampler: Sampler = field(init=False)
    drawn: list[int] = field(default_factory=list)
    answer: Generated | None = None

    def __post_init__(self) -> None:
        self.sampler = Sampler(self.request.sampling, self.request.seed, self.request.repeat, self.prompt)

    @property
    def length(self) -> int:
        """Tokens of prompt and answer so far."""
        return len(self.prompt) + len(self.drawn)

    def finish(self, reason: Literal["stop", "length"]) -> None:
        """Set the answer to what has been sampled so far."""
        self.answer = GenerateResponse(self.decoder.text, reason, len(self.prompt), len(self.drawn))


class Slots(Protocol):
    """The texts of one call in an engine: those waiting, and those running in its slots."""

    def step(self) -> Iterable[tuple[Text, Logits | int]]:
        """Compute one step. Returns the texts ready for their next token, each with logits of shape (vocabulary,).

        For a greedy sampler the arg max may be returned in place of the logits, if they are finite.
        """

    def settle(self) -> None:
        """Free the slots of texts that have an answer, and compact the others."""


class GenerationEngine(Protocol):
    """What generation needs from a loaded model."""

    @property
    def context(self) -> int | None:
        """Maximum tokens of prompt and answer; None: no limit."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model can read."""

    def render(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt."""

    def decoder(self, prompt: Sequence[int], stop: tuple[str, ...]) -> TextDecoder:
        """A decoder for a text that continues these prompt tokens."""

    def ends_text(self, token: int) -> bool:
        """Whether this token ends a text."""

    @property
    def route(self) -> str:
        """How texts are written and why, for reports; empty where that is not known yet, or usual."""

    def prepare(self) -> BackendError | None:
        """Get ready to write texts, once. Returns the error if that fails."""

    def open_slots(self, texts: list[Text], halvings: int) -> AbstractContextManager[Slots]:
        """Room for these texts, with the usual number of slots halved ``halvings`` times."""

    def within_memory(self, work: Callable[[], None]) -> None:
        """Do the work. Raises `NoRoomError` when memory runs out, after freeing everything the work held."""


def slot_count(texts: int, halvings: int) -> int:
    """How many of ``texts`` texts may run concurrently."""
    return min(max(1, SLOTS >> halvings), texts)


class TextGenerator:
    """Generates texts with one loaded model.

    Attributes
    ----------
    halvings : int
        How many times the number of slots is currently halved, because memory ran out.
    """

    def __init__(self, engine: GenerationEngine) -> None:
        self._engine = engine
        self.halvings = 0

    @property
    def route(self) -> str:
        """As in `GenerationEngine`."""
        return self._engine.route

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        on_response: OnResponse = discard_response,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[Generated]:
        """As in `backends.local.causal.Writer`."""
        answers: list[Generated | None] = [None] * len(requests)
        prompts: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                prompt = list(self._engine.render(request.prompt))
                check_length(prompt, request, self._engine.context)
                check_known(prompt, self._engine.vocabulary)
                prompts[index] = prompt
            except BackendError as error:  # e.g. a chat prompt for a model without chat template
                answers[index] = error
        failure: BackendError | None = None
        if prompts and not is_stopped() and (failure := self._engine.prepare()) is None:
            try:
                self._write(requests, prompts, answers, on_response, is_stopped)
            except BackendError as error:
                failure = error
        return [answer if answer is not None else failure or StoppedError() for answer in answers]

    def _write(
        self,
        requests: Sequence[GenerateRequest],
        prompts: dict[int, list[int]],
        answers: list[Generated | None],
        on_response: OnResponse,
        is_stopped: Callable[[], bool],
    ) -> None:
        """Fill in the answers of all prompts, with fewer slots whenever memory runs out; of some after a stop.

        Texts that fail together are tried again in halves, so that an odd one fails alone.
        """
        self.halvings = max(0, self.halvings - 1)  # what did not fit may fit now; if not, the call restarts once
        groups = [list(prompts)]
        while groups and not is_stopped():
            waiting = [index for index in groups[-1] if answers[index] is None]
            if not waiting:
                groups.pop()
                continue
            slots = slot_count(len(waiting), self.halvings)
            if slots == 1:  # run one at a time, each text gets a slot of its own size
                del waiting[1:]
            texts = [
                Text(i, requests[i], prompts[i], self._engine.decoder(prompts[i], requests[i].sampling.stop))
                for i in waiting
            ]
            try:
                self._engine.within_memory(partial(self._run, texts, answers, on_response, is_stopped))
            except NoRoomError:
                if slots == 1:
                    answers[waiting[0]] = text_too_large()
                while 1 < slots <= SLOTS >> self.halvings:
                    self.halvings += 1
            except Exception as error:  # foreign code: it may fail in any way
                failure = BackendError.of(error)
                if failure.kind != "internal":
                    raise failure from None
                left = [index for index in waiting if answers[index] is None]
                if len(left) == 1:
                    answers[left[0]] = failure
                else:
                    groups += [left[len(left) // 2 :], left[: len(left) // 2]]

    def _run(
        self,
        texts: list[Text],
        answers: list[Generated | None],
        on_response: OnResponse,
        is_stopped: Callable[[], bool],
    ) -> None:
        """Fill in the answers of these texts; only of some if memory runs out, or after a stop."""
        running = len(texts)
        with self._engine.open_slots(texts, self.halvings) as slots:
            while running and not is_stopped():
                for text, output in slots.step():
                    self._advance(text, output)
                    if text.answer is not None:
                        running -= 1
                        answers[text.index] = text.answer
                        on_response(text.index, text.answer)
                slots.settle()

    def _advance(self, text: Text, output: Logits | int) -> None:
        """Sample a text's next token, and finish the text if this ends it."""
        try:
            token = output if isinstance(output, int) else text.sampler.draw(output)
        except BackendError as error:  # concerns this text alone: the others continue
            text.answer = error
            return
        if self._engine.ends_text(token):
            text.finish("stop")
            return
        text.drawn.append(token)
        if text.decoder.add(token):
            text.finish("stop")
        elif len(text.drawn) == text.request.sampling.max_tokens:
            text.finish("length")


def text_too_large() -> BackendError:
    """The error for a text that does not fit in memory even on its own."""
    return BackendError(
        "out_of_memory",
        "a single text does not fit in memory",
        hint="lower max_tokens, or use a smaller dtype or model",
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
