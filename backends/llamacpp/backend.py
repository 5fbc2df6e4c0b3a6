"""GGUF models on llama.cpp, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from backends.base import Description, ModelPart, Scalar
from backends.embedded import resolve_embedded
from backends.errors import ConfigError
from backends.local.backend import OptionalCount, need_package
from backends.local.causal import CausalBackend, LoadedModel
from backends.local.encoder import TextEncoder
from backends.local.fingerprint import file_sha256, files_sha256, package_version
from backends.local.generation import TextGenerator
from backends.local.gguf_header import (
    check_causal,
    gguf_parts,
    is_gguf,
    longrope_cells,
    quantisation,
    read_gguf_header,
)
from backends.options import OnError, checked_options

#: Raise it when a change of the computation may change log-probabilities.
SCORING_VERSION = 1


class LlamaCppBackend(CausalBackend):
    """A GGUF model, scored through llama.cpp's low-level batch with shared prompts computed once.

    Parameters
    ----------
    model : str or Path
        The GGUF file; the first part if it is split.
    n_gpu_layers : int
        Layers computed on the GPUs, by their free memory; -1 for all.
    threads : int, optional
        Default: all cores this process may use, or ``OMP_NUM_THREADS`` if that is fewer.
    context : int, optional
        Maximum number of tokens of prompt and answer. Default: the length that the model was trained on.
    enable_thinking : bool, optional
        Passed to the chat template of a reasoning model; None: not passed. Reasoning is kept apart from answers.
    reasoning_tokens : int, optional
        Extra tokens for reasoning, added to each text's limit if thinking is enabled. Default: 4096.
    """

    @checked_options
    def __init__(
        self,
        model: str | Path,
        *,
        n_gpu_layers: Annotated[
            int, Field(ge=-1), OnError("not a whole number of at least -1", "Leave it out, or give one")
        ] = 0,
        threads: OptionalCount = None,
        context: OptionalCount = None,
        enable_thinking: bool | None = None,
        reasoning_tokens: OptionalCount = None,
    ) -> None:
        super().__init__(threads, enable_thinking, reasoning_tokens)
        self.model = Path(resolve_embedded(model)).expanduser()
        self.n_gpu_layers, self.context = n_gpu_layers, context
        self.device = "cpu" if n_gpu_layers == 0 else "cuda:0"  # models on one device take turns

    def check(self) -> None:
        need_package("model", "llama_cpp", "llamacpp", given=str(self.model))
        if not self.model.is_file() or not is_gguf(self.model):
            raise ConfigError("model", str(self.model), "not a GGUF file", "Give the path of one, or use HFBackend")
        header = read_gguf_header(self.model)
        gguf_parts(self.model, header)
        check_causal(self.model, header)
        if self.n_gpu_layers:
            import llama_cpp

            if not llama_cpp.llama_supports_gpu_offload():
                problem = "this llama-cpp-python has no GPU support"
                raise ConfigError("n_gpu_layers", self.n_gpu_layers, problem, "Set 0, or install one")

    def describe_blocking(self) -> Description:
        header = read_gguf_header(self.model)
        parts = gguf_parts(self.model, header)
        weights = file_sha256(self.model) if len(parts) == 1 else files_sha256(parts)
        kind = quantisation(header)
        fingerprint: dict[str, Scalar] = {
            "backend": "llamacpp",
            "weights_sha256": weights,
            # A GGUF file holds its tokenizer.
            "tokenizer": f"gguf:{weights}",
            "quantisation": kind,
            "dtype": "float16 keys, bfloat16 values" if self.n_gpu_layers == 0 else "float16 cache",
            "adapter": None,
            "n_gpu_layers": self.n_gpu_layers,
            "context": self.context,
            "llama_cpp_python": package_version("llama-cpp-python"),
            "scoring_version": SCORING_VERSION,
            "sampler": "llama.cpp",
        }
        notes: dict[str, str] = {
            "model": str(header.get("general.name", self.model.name)),
            "file": str(self.model),
            "device": str(self.device),
            "quantisation": kind,
            "route": "tree: sequences that share cells in one batch, each distinct token computed once",
        }
        if (cells := longrope_cells(self.model, header)) is not None:
            fingerprint["most_cells"] = cells  # a larger context changes every result
            notes["context"] = f"{cells} cells: in a larger one this model's LongRoPE changes the results of every text"
        model_parts: dict[ModelPart, Scalar] = {
            "weights": weights,
            "tokenizer": fingerprint["tokenizer"],
            "settings": fingerprint.get("most_cells"),
        }
        return self._description(fingerprint, notes, header.get("tokenizer.chat_template"), model_parts)

    def _load_encoder(self) -> tuple[TextEncoder, Callable[[], None]]:
        from backends.llamacpp.engine import LlamaEngine

        engine = LlamaEngine(self.model, vocab_only=True, enable_thinking=self.enable_thinking)
        return engine, engine.close

    def _load_model(self) -> LoadedModel:
        from backends.llamacpp.engine import LlamaEngine
        from backends.llamacpp.generation import LlamaGeneration
        from backends.llamacpp.scoring import SequenceScorer

        engine = LlamaEngine(
            self.model,
            n_gpu_layers=self.n_gpu_layers,
            threads=self.thread_count,
            context=self.context,
            enable_thinking=self.enable_thinking,
        )
        scorer = SequenceScorer(
            engine, lambda start: engine.vocabulary.beginning_with(start), batch_invariant=self.n_gpu_layers == 0
        )

        def close() -> None:
            scorer.close()
            engine.close()

        return LoadedModel(engine, engine, scorer, TextGenerator(LlamaGeneration(engine)), close=close)
