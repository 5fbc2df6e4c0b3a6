"""A causal language model in this process: what both engines share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from backends.base import (
    Answer,
    Boundary,
    Capability,
    Description,
    GenerateRequest,
    GenerateResponse,
    ModelPart,
    OnResponse,
    Prompt,
    Request,
    Scalar,
    ScoreRequest,
)
from backends.errors import AuditError, BackendError
from backends.local.backend import LocalBackend, available_threads, discard_response
from backends.local.encoder import TextEncoder
from backends.local.fingerprint import text_sha256
from backends.local.generation import TextGenerator
from backends.local.scoring import Scorer, boundaries, prepare, score_batch
from backends.local.thinking import with_extra_tokens, without_thought
from backends.reading.reasoning import DEFAULT_REASONING_TOKENS

#: Of the fingerprints of all engines: as in `backends.base.Description`.
ENGINE_FIELDS = frozenset({
    "backend", "dtype", "device", "engine", "quantiser", "n_gpu_layers", "context", "torch",
    "transformers", "vllm", "llama_cpp_python", "scoring_version", "sampler",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, with its tokenizer, scorer and generator.

    Attributes
    ----------
    model
        The engine's own object.
    route : str
        How scores are computed and why, for reports.
    close : callable
        Frees what Python's garbage collector does not.
    """

    model: Any
    encoder: TextEncoder
    scorer: Scorer
    generator: TextGenerator
    route: str = ""
    close: Callable[[], None] = lambda: None


class CausalBackend(LocalBackend):
    """Answers requests for scores and texts. The model is loaded at the first one; a failure to load is final."""

    path_options: ClassVar[Mapping[str, Collection[str]]] = {"model": (), "adapter": ()}
    batch_size = 1024  # between two batches the model has nothing to do for some milliseconds

    def __init__(
        self, threads: int | None, enable_thinking: bool | None = None, reasoning_tokens: int | None = None
    ) -> None:
        super().__init__()
        self.threads, self.enable_thinking = threads, enable_thinking
        self.reasoning_tokens = (
            (DEFAULT_REASONING_TOKENS if reasoning_tokens is None else reasoning_tokens) if enable_thinking else 0
        )
        self._encoder: TextEncoder | None = None
        self._loaded: LoadedModel | None = None
        self._refusal: AuditError | None = None
        self._notes_of_run: dict[str, str] = {}

    @abstractmethod
    def _load_model(self) -> LoadedModel:
        """Load the model. Raises `AuditError` if it cannot be used here."""

    @abstractmethod
    def _load_encoder(self) -> tuple[TextEncoder, Callable[[], None]]:
        """The tokenizer alone, and what frees it."""

    def boundaries(self, requests: Sequence[ScoreRequest]) -> list[tuple[Boundary, ...] | BackendError]:
        """As in `backends.base.SupportsBoundaries`."""
        encoder, close = self._load_encoder()
        try:
            return boundaries(requests, encoder)
        finally:
            close()

    @property
    def thread_count(self) -> int:
        """CPU threads in use."""
        return self.threads or available_threads()

    def load(self) -> LoadedModel:
        """The model, loaded at the first call. After a failure it is not tried again: loading takes minutes."""
        if self._loaded is None and self._refusal is None:
            try:
                self._loaded = self._load_model()
                self._encoder = self._loaded.encoder
            except Exception as error:  # foreign code: a model may fail in any way at its first pass
                # The traceback's frames would keep the weights in memory.
                known = error if isinstance(error, AuditError) else BackendError.of(error)
                self._refusal = known.with_traceback(None)
        if self._loaded is None:
            assert self._refusal is not None
            raise self._refusal.with_traceback(None)
        return self._loaded

    def close_blocking(self) -> None:
        if self._loaded is not None:
            self._loaded.close()
        self._loaded = self._encoder = self._refusal = None

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        """Tokens of each prompt; None before the tokenizer is loaded."""
        if self._encoder is None:
            return None
        return [len(self._encoder.render(prompt)) for prompt in prompts]

    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        try:
            loaded = self.load()
        except AuditError as error:
            return [BackendError.of_loading(error)] * len(batch)
        refusal = BackendError("unsupported", "a causal language model cannot classify texts", hint="use a classifier")
        answers: list[Answer] = [refusal] * len(batch)

        def answer(places: Sequence[int]) -> OnResponse:
            return lambda at, found: on_response(places[at], found)

        scored = {i: request for i, request in enumerate(batch) if isinstance(request, ScoreRequest)}
        plans = prepare(list(scored.values()), loaded.encoder, loaded.scorer)
        scores = score_batch(plans, loaded.scorer, answer(list(scored)), self.is_stopped)
        generated = {i: request for i, request in enumerate(batch) if isinstance(request, GenerateRequest)}
        texts = self._texts(loaded, list(generated.values()), answer(list(generated)))
        for i, found in zip((*scored, *generated), (*scores, *texts), strict=True):
            answers[i] = found
        routes = {"route": loaded.route, "texts": loaded.generator.route}
        self._notes_of_run = {name: route for name, route in routes.items() if route}
        return answers

    def notes_of_run(self) -> dict[str, str]:
        """As in `backends.base.SupportsRunNotes`."""
        return self._notes_of_run

    def _texts(
        self, loaded: LoadedModel, requests: Sequence[GenerateRequest], on_response: OnResponse
    ) -> list[GenerateResponse | BackendError]:
        """Generated texts, with reasoning split off."""
        has_extra_tokens = self.reasoning_tokens > 0
        asked = [
            with_extra_tokens(request, self.reasoning_tokens) if has_extra_tokens else request for request in requests
        ]

        def finished(at: int, answer: Any) -> GenerateResponse | BackendError:
            return without_thought(requests[at], answer, loaded.encoder, had_extra_tokens=has_extra_tokens)

        answers = loaded.generator.generate(
            asked, lambda at, answer: on_response(at, finished(at, answer)), self.is_stopped
        )
        return [finished(at, answer) for at, answer in enumerate(answers)]

    def _description(
        self,
        fingerprint: dict[str, Scalar],
        notes: dict[str, str],
        template: Any,
        parts: dict[ModelPart, Scalar],
        statements: tuple[str, ...] = (),
    ) -> Description:
        """The description of a model; ``template`` is its chat template, None if it has none."""
        capabilities: set[Capability] = {"score", "score_alone", "generate"}
        if template is not None:
            capabilities.add("chat")
        template_hash = None if template is None else text_sha256(str(template))
        fingerprint["chat_template_sha256"] = template_hash
        if self.enable_thinking is not None:
            fingerprint["enable_thinking"] = self.enable_thinking
            fingerprint["reasoning_tokens"] = self.reasoning_tokens
            parts["settings"] = f"{parts.get('settings')} thinking {self.enable_thinking} {self.reasoning_tokens}"
        parts |= {"quantisation": fingerprint["quantisation"], "adapter": fingerprint["adapter"]}
        return Description(
            fingerprint,
            frozenset(capabilities),
            {**notes, "threads": str(self.thread_count)},
            parts={**parts, "chat_template": template_hash},
            engine_fields=ENGINE_FIELDS,
            statements=statements,
        )
