"""GGUF models on llama.cpp, in this process."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from backends.base import Description, ModelPart, Scalar
from backends.embedded import resolve_embedded
from backends.errors import ConfigError
from backends.local.backend import OptionalCount, check_path, need_package
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

DeviceNames = Annotated[
    list[Annotated[str, Field(min_length=1)]] | None,
    Field(min_length=1),
    OnError("not a list of devices", 'Give their names, e.g. ["CUDA0", "CUDA1"]'),
]
Shares = Annotated[
    list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None,
    Field(min_length=1),
    OnError("not a list of shares", "Give a number of at least 0 for each device, e.g. [3, 1]"),
]


_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


class LlamaCppBackend(CausalBackend):
    """A GGUF model, scored through llama.cpp's low-level batch with shared prompts computed once.

    Parameters
    ----------
    model : str or Path
        The GGUF file; the first part if it is split.
    n_gpu_layers : int
        Layers computed on the GPU; -1 for all.
    threads : int, optional
        Default: all cores this process may use, or ``OMP_NUM_THREADS`` if that is fewer.
    devices : list of str, optional
        Names of the devices that take those layers, as llama.cpp lists them (``CUDA0``, ``Vulkan1``). Default: all.
    tensor_split : list of float, optional
        Each device's share of the layers, in proportion: ``[3, 1]``. Default: by their free memory.
    context : int, optional
        Maximum number of tokens of prompt and answer. Default: the length that the model was trained on.
    enable_thinking : bool, optional
        Passed to the chat template of a reasoning model; None: not passed. Reasoning is kept apart from answers.
    reasoning_tokens : int, optional
        Extra tokens for reasoning, added to each text's limit if thinking is enabled. Default: 4096.
    """

    engine_fields = frozenset(
        {
            "backend",
            "dtype",
            "n_gpu_layers",
            "devices",
            "context",
            "llama_cpp_python",
            "scoring_version",
            "sampler",
        }
    )

    @checked_options
    def __init__(
        self,
        model: str | Path,
        *,
        n_gpu_layers: Annotated[
            int, Field(ge=-1), OnError("not a whole number of at least -1", "Leave it out, or give one")
        ] = 0,
        devices: DeviceNames = None,
        tensor_split: Shares = None,
        threads: OptionalCount = None,
        context: OptionalCount = None,
        enable_thinking: bool | None = None,
        reasoning_tokens: OptionalCount = None,
    ) -> None:
        super().__init__(threads, enable_thinking, reasoning_tokens)
        self.model, self._given = Path(resolve_embedded(model)).expanduser(), str(model)
        self.n_gpu_layers, self.context = n_gpu_layers, context
        self.devices, self.tensor_split = devices, tensor_split
        # Models on one device take turns; those on others go side by side.
        self.device = "cpu" if n_gpu_layers == 0 else _torch_name(devices[0]) if devices else "cuda:0"

    def check(self) -> None:
        need_package("model", "llama_cpp", "llamacpp", given=self._given)
        check_path("model", self.model)
        if not self.model.is_file():
            problem = "is a folder" if self.model.is_dir() else "no such file"
            hint = "Give the path of a GGUF file"
            if _HUB_ID.fullmatch(self._given) and not self.model.exists():
                hint += f"; `hf download {self._given} FILE` fetches one, and HFBackend takes a hub id itself"
            raise ConfigError("model", str(self.model), problem, hint)
        if not is_gguf(self.model):
            raise ConfigError("model", str(self.model), "not a GGUF file", "Give a GGUF file, or use HFBackend")
        header = read_gguf_header(self.model)
        gguf_parts(self.model, header)
        check_causal(self.model, header)
        if self.n_gpu_layers and not _llama_has_gpu():
            raise ConfigError(
                "n_gpu_layers", self.n_gpu_layers, "this llama-cpp-python has no GPU support", "Set 0, or install one"
            )
        self._check_devices()

    def _check_devices(self) -> None:
        if self.devices is None and self.tensor_split is None:
            return
        if self.n_gpu_layers == 0:
            name, given = ("devices", self.devices) if self.devices else ("tensor_split", self.tensor_split)
            raise ConfigError(name, given, "without effect on the CPU", "Give n_gpu_layers too, such as -1")
        from backends.llamacpp.devices import device_names

        known = device_names()
        if missing := sorted(set(self.devices or ()) - set(known)):
            raise ConfigError("devices", self.devices, f"no {', '.join(missing)} here", f"Give of {', '.join(known)}")
        count = len(self.devices) if self.devices is not None else len([name for name in known if name != "CPU"])
        if self.tensor_split is not None and (len(self.tensor_split) != count or not any(self.tensor_split)):
            problem = f"not a share for each of {count} devices"
            raise ConfigError("tensor_split", self.tensor_split, problem, "Give as many, not all 0")

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
        if self.devices is not None:  # where the layers lie changes no number, what kind of device computes does
            fingerprint["devices"] = " ".join(sorted({name.rstrip("0123456789") for name in self.devices}))
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
            devices=self.devices,
            tensor_split=self.tensor_split,
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


def _torch_name(device: str) -> str:
    """A device's name as other backends have it, so that models on one device take turns whatever their engine."""
    return f"cuda:{device.removeprefix('CUDA')}" if device.startswith("CUDA") else device.lower()


def _llama_has_gpu() -> bool:
    if importlib.util.find_spec("llama_cpp") is None:
        return False
    import llama_cpp

    return bool(llama_cpp.llama_supports_gpu_offload())
