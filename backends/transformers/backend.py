"""Models on transformers, in this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from backends.base import Description, Scalar
from backends.embedded import resolve_embedded
from backends.errors import BackendError
from backends.local.backend import OptionalCount, need_package
from backends.local.causal import LoadedModel
from backends.local.generation import NoRoomError, TextGenerator
from backends.options import OnError, checked_options
from backends.transformers.checkpoint import CheckpointBackend
from backends.transformers.placement import (
    DeviceMap,
    MaxMemory,
    OptionalQuantization,
    Placement,
    check_device,
    input_device,
    is_offloaded,
    quantiser,
)
from backends.transformers.source import ModelSource, text_decoder

DType = Literal["auto", "float32", "bfloat16", "float16"]

#: Raise it when a change of the computation may change log-probabilities.
SCORING_VERSION = 7
#: How texts are drawn: the rule of `backends.transformers.draw`. Raise it when the same logits may give another text.
SAMPLER = "gumbel-max, squares 1"
#: Tokens of one forward pass, halved when memory runs out. On a CPU, more tokens are not faster.
PACK_TOKENS = {"cpu": 512, "mps": 2048, "cuda": 16384}
#: Times as many where a pass brings weights from the disk or the CPU's memory first.
OFFLOADED = 8
#: Requests of one call on CUDA, where the pauses between two calls are longer than a pass.
CUDA_BATCH = 2048


class HFBackend(CheckpointBackend):
    """A causal language model on transformers, each distinct token of a batch computed once.

    Parameters
    ----------
    model : str or Path
        Hub id, a local folder, or an embedded model such as ``embedded:smollm2``.
    dtype : str
        ``auto``: bfloat16 on CUDA, float32 elsewhere. Log-probabilities are always computed from float32 logits.
    device : str
        ``auto`` (CUDA, else MPS, else the CPU), ``cpu``, ``mps``, ``cuda`` or ``cuda:N``.
    revision : str, optional
        Branch, tag or commit of a hub id.
    adapter : str or Path, optional
        PEFT adapter: a local folder or a hub id.
    trust_remote_code : bool
        Run code that comes with the model.
    device_map : str or dict, optional
        Spread the model over several devices, the CPU's memory and the disk, as transformers and accelerate do:
        ``auto``, ``balanced``, ``balanced_low_0``, ``sequential``, or a table from parts of the model to a number of a
        CUDA device, ``cpu``, ``mps``, ``cuda:N`` or ``disk``. In place of ``device``.
    max_memory : dict, optional
        With ``device_map="auto"``: how much of each device may be used, such as ``{0: "20GiB", "cpu": "64GiB"}``.
    offload_folder : str or Path, optional
        Where the parts on the disk are kept.
    quantization : str, optional
        Quantise the weights while they are loaded: ``bitsandbytes-int8``, ``bitsandbytes-nf4``, ``quanto-int8`` or
        ``torchao-int8`` (extras ``bitsandbytes``, ``quanto``, ``torchao``).
    threads : int, optional
        CPU threads of a process; default: all cores this process may use, or ``OMP_NUM_THREADS`` if that is fewer.
    enable_thinking : bool, optional
        Passed to the chat template of a reasoning model; None: not passed. Reasoning is kept apart from answers.
    reasoning_tokens : int, optional
        Extra tokens for reasoning, added to each text's limit if thinking is enabled. Default: 4096.
    """

    path_options = {"model": (), "adapter": (), "offload_folder": ()}  # noqa: RUF012

    @checked_options
    def __init__(
        self,
        model: str | Path,
        *,
        dtype: DType = "auto",
        device: Annotated[
            str,
            Field(pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$"),
            OnError("no such device", "Give auto, cpu, mps, cuda or cuda:N"),
        ] = "auto",
        revision: str | None = None,
        adapter: str | Path | None = None,
        trust_remote_code: bool = False,
        device_map: DeviceMap = None,
        max_memory: MaxMemory = None,
        offload_folder: str | Path | None = None,
        quantization: OptionalQuantization = None,
        threads: OptionalCount = None,
        enable_thinking: bool | None = None,
        reasoning_tokens: OptionalCount = None,
    ) -> None:
        super().__init__(threads, enable_thinking, reasoning_tokens)
        self.source = ModelSource(
            str(resolve_embedded(model)), revision, None if adapter is None else str(adapter), trust_remote_code
        )
        folder = None if offload_folder is None else str(Path(offload_folder).expanduser())
        self.placement = Placement(device_map, max_memory, folder, quantization)
        self._dtype_option, self._device_option = dtype, device

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device in use. Resolving ``auto`` imports torch."""
        return self.placement.main_device or _choose_device(self._device_option)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """The dtype in use."""
        if self._dtype_option != "auto":
            return self._dtype_option
        return "bfloat16" if self.device.startswith("cuda") else "float32"

    def check(self) -> None:
        for module in ("torch", "transformers"):
            need_package("model", module, "hf", given=self.source.model)
        check_device(self._device_option)
        self.placement.check(self._device_option, self.source.path, self.source.adapter)
        self.source.check()

    def describe_blocking(self) -> Description:
        if self.device.startswith("cuda"):
            self.batch_size = CUDA_BATCH
        return super().describe_blocking()

    def _engine_fields(self, kind: str | None) -> tuple[dict[str, Scalar], dict[str, str]]:
        kind = self.placement.quantised_as(kind)
        fields: dict[str, Scalar] = {
            "backend": "hf",
            "quantisation": kind,
            "scoring_version": SCORING_VERSION,
            "sampler": SAMPLER,
            **quantiser(kind),
        }
        return fields, self._config_notes()

    def _config_notes(self) -> dict[str, str]:
        if self._loaded is None and self.source.path.is_file():
            return {}  # transformers would read the whole GGUF file for its config
        from backends.transformers.context import context_length

        config = self.source.config() if self._loaded is None else self._loaded.model.config
        notes = {"context": context_length(config)[1], "decoder": text_decoder(config)}
        return {name: note for name, note in notes.items() if note}

    def load(self) -> LoadedModel:
        import torch

        torch.set_num_threads(self.thread_count)
        return super().load()

    def close_blocking(self) -> None:
        super().close_blocking()
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()

    def _load_model(self) -> LoadedModel:
        from backends.transformers.generation import HFGeneration, end_tokens
        from backends.transformers.loading import quiet
        from backends.transformers.memory import within_memory
        from backends.transformers.products import multiply_by_onednn
        from backends.transformers.scoring.scorer import SequenceScorer

        encoder, _ = self._load_encoder()
        try:
            load = partial(self.source.load, self.dtype, self.device, self.placement)
            model = within_memory(load, self.device)
            multiply_by_onednn(model)
            device = str(input_device(model))
            make_scorer = partial(
                SequenceScorer,
                model,
                lambda start: encoder.vocabulary.beginning_with(start),
                pack_tokens=PACK_TOKENS[device.partition(":")[0]] * (OFFLOADED if is_offloaded(model) else 1),
            )
            with quiet():  # transformers remarks on the trial of a model with an attention of its own
                scorer = within_memory(make_scorer, self.device)
        except NoRoomError:
            pass  # the error is raised below: raised here, it would keep this one, whose frames hold the weights
        else:
            engine = HFGeneration(model, encoder, device=device, ends=end_tokens(model, self._tokenizer))
            engine.context = scorer.context  # what it found may be less than the config says
            route = f"{scorer.route}: {scorer.route_reason}"
            return LoadedModel(model, encoder, scorer, TextGenerator(engine), route)
        raise BackendError(
            "out_of_memory",
            f"the model does not fit in the memory of {self.device}",
            hint="use a smaller dtype or model, or another device",
        )


def _choose_device(option: str) -> str:
    if option not in ("auto", "cuda"):
        return option
    import torch

    if option == "cuda" or torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"
