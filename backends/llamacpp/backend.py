"""GGUF models on llama.cpp, in this process."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backends.base import (
    Answer,
    Capability,
    Description,
    GenerateRequest,
    OnResponse,
    Prompt,
    Request,
    ScoreRequest,
)
from backends.errors import BackendError, ConfigError
from backends.local.answers import answer_by_kind
from backends.local.backend import LocalBackend, discard_response
from backends.local.fingerprint import file_sha256, files_sha256, package_version, text_sha256
from backends.local.gguf_header import (
    Value,
    check_causal,
    gguf_parts,
    is_gguf,
    longrope_cells,
    quantisation,
    read_gguf_header,
)
from backends.local.options import available_threads, check_count, check_file, need_package
from backends.local.scoring import score_requests

if TYPE_CHECKING:
    from backends.llamacpp.engine import LlamaEngine
    from backends.llamacpp.scoring import SequenceScorer
    from backends.local.generation import TextGenerator

#: Raise it when the way of computing changes so that log-probabilities may.
SCORING_VERSION = 1
#: Raise it when the same request may become, or score, other tokens. Files of which that was never true have none.
TEXT_VERSION = 2


class LlamaCppBackend(LocalBackend):
    """A GGUF model, scored through llama.cpp's low-level batch with shared prompts computed once.

    Parameters
    ----------
    model : str or Path
        The GGUF file; of one that is split, the first part.
    n_gpu_layers : int
        Layers computed on the GPU; -1 for all.
    threads : int, optional
        Default: all cores this process may use.
    context : int, optional
        Most tokens of prompt and answer; default: what the model was trained on.
    """

    batch_size = 256

    def __init__(
        self,
        model: str | Path,
        *,
        n_gpu_layers: int = 0,
        threads: int | None = None,
        context: int | None = None,
    ) -> None:
        super().__init__()
        self.model = Path(model).expanduser()
        self.n_gpu_layers, self.context = n_gpu_layers, context
        self.threads = threads
        self.device = "cpu" if n_gpu_layers == 0 else "cuda:0"  # takes turns with other models there
        self._engine: LlamaEngine | None = None
        self._scorer: SequenceScorer | None = None
        self._generator: TextGenerator | None = None
        self._refusal: BackendError | None = None

    def check(self) -> None:
        check_count("n_gpu_layers", self.n_gpu_layers, -1)
        check_count("threads", self.threads, 1)
        check_count("context", self.context, 1)
        need_package("model", "llama_cpp", "llamacpp")
        check_file("model", self.model, "GGUF file")
        if not is_gguf(self.model):
            raise ConfigError("model", str(self.model), "not a GGUF file", "Give a GGUF file, or use HFBackend")
        header = read_gguf_header(self.model)
        gguf_parts(self.model, header)
        check_causal(self.model, header)
        if self.n_gpu_layers and not _llama_has_gpu():
            raise ConfigError(
                "n_gpu_layers", self.n_gpu_layers, "this llama-cpp-python has no GPU support", "Set 0, or install one"
            )

    def describe_blocking(self) -> Description:
        header = read_gguf_header(self.model)
        template = header.get("tokenizer.chat_template")
        parts = gguf_parts(self.model, header)
        weights = file_sha256(self.model) if len(parts) == 1 else files_sha256(parts)
        capabilities: set[Capability] = {"score", "generate"}
        if template is not None:
            capabilities.add("chat")
        kind = quantisation(header)
        fingerprint: dict[str, str | int | float | bool | None] = {
            "backend": "llamacpp",
            "weights_sha256": weights,
            # A GGUF file holds its tokenizer.
            "tokenizer": f"gguf:{weights}",
            "chat_template_sha256": None if template is None else text_sha256(str(template)),
            "quantisation": kind,
            "dtype": "float16 keys, bfloat16 values" if self.n_gpu_layers == 0 else "float16 cache",
            "adapter": None,
            "n_gpu_layers": self.n_gpu_layers,
            "context": self.context,
            "llama_cpp_python": package_version("llama-cpp-python"),
            "scoring_version": SCORING_VERSION,
        }
        if _reads_otherwise(header):
            fingerprint["text_version"] = TEXT_VERSION
        name = header.get("general.name", self.model.name)
        notes: dict[str, str] = {
            "model": str(name),
            "file": str(self.model),
            "device": str(self.device),
            "threads": str(self._threads),
            "quantisation": kind,
            "route": "tree: sequences that share cells in one batch, each distinct token computed once",
        }
        if (cells := longrope_cells(self.model, header)) is not None:
            fingerprint["most_cells"] = cells  # answers of a larger context are another model's
            notes["context"] = (
                f"{cells} cells: in a larger one this model's LongRoPE changes what it makes of every text"
            )
        return Description(fingerprint, frozenset(capabilities), notes)

    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        try:
            self._load()
        except BackendError as error:
            return [error] * len(batch)
        return answer_by_kind(batch, self._score, self._generate, on_response)

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        if self._engine is None:
            return None
        return [len(self._engine.render(prompt)) for prompt in prompts]

    def close_blocking(self) -> None:
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        self._generator = self._refusal = None

    @property
    def _threads(self) -> int:
        return self.threads or available_threads()

    def _load(self) -> tuple[LlamaEngine, SequenceScorer]:
        if self._engine is None or self._scorer is None:
            from backends.llamacpp.engine import LlamaEngine
            from backends.llamacpp.scoring import SequenceScorer

            if self._refusal is not None:  # tried once: loading takes minutes
                raise self._refusal.with_traceback(None)
            try:
                engine = LlamaEngine(
                    self.model, n_gpu_layers=self.n_gpu_layers, threads=self._threads, context=self.context
                )
            except BackendError as error:
                self._refusal = error
                raise
            self._engine = engine
            self._scorer = SequenceScorer(
                engine, lambda start: engine.vocabulary.beginning_with(start), neighbour_proof=self.n_gpu_layers == 0
            )
        return self._engine, self._scorer

    def _score(self, requests: Sequence[ScoreRequest]) -> Sequence[Answer]:
        engine, scorer = self._load()
        if not engine.shares_cells:
            # Sequences would read each other's state: numbers that look right and are wrong.
            return [
                BackendError(
                    "unsupported",
                    "this model has recurrent layers, which llama.cpp's shared cells do not hold",
                    hint="score it with HFBackend",
                )
            ] * len(requests)
        try:
            return score_requests(requests, engine, scorer.value, context=scorer.context, route="tree")
        except BackendError as error:
            return [error] * len(requests)

    def _generate(self, requests: Sequence[GenerateRequest], on_response: OnResponse) -> Sequence[Answer]:
        from backends.llamacpp.generation import LlamaGeneration
        from backends.local.generation import TextGenerator

        engine, _ = self._load()
        if self._generator is None:
            self._generator = TextGenerator(LlamaGeneration(engine))
        return self._generator.generate(requests, on_response)


def _reads_otherwise(header: dict[str, Value]) -> bool:
    """Whether a request may become, or score, other tokens of this file than before there was a `TEXT_VERSION`."""
    # The space that tokenizers, but for byte-level ones, may put behind a special token was nobody's.
    byte_level = header.get("tokenizer.ggml.model") == "gpt2"
    spaced = not byte_level and header.get("tokenizer.ggml.add_space_prefix") is not False
    # Chats had no BOS that their template did not write, and found tools and documents undefined.
    adds_bos = header.get("tokenizer.ggml.add_bos_token") is not False
    template = str(header.get("tokenizer.chat_template", ""))
    return spaced or (template != "" and (adds_bos or "tools" in template or "documents" in template))


def _llama_has_gpu() -> bool:
    if importlib.util.find_spec("llama_cpp") is None:
        return False
    import llama_cpp

    return bool(llama_cpp.llama_supports_gpu_offload())
