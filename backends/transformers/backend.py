"""Models on transformers, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from backends.base import Answer, Description, ModelPart, OnResponse, Request, Scalar
from backends.embedded import resolve_embedded
from backends.errors import AuditError, BackendError
from backends.local.backend import OptionalCount, discard_response, need_package
from backends.local.causal import CausalBackend, LoadedModel
from backends.local.encoder import TextEncoder
from backends.local.fingerprint import package_version, text_sha256
from backends.local.generation import NoRoomError, TextGenerator
from backends.options import OnError, checked_options
from backends.transformers.placement import (
    Attention,
    DeviceMap,
    MaxMemory,
    OptionalQuantization,
    Placement,
    check_device,
    describe_places,
    input_device,
    is_offloaded,
    quantiser,
)
from backends.transformers.source import ModelSource, text_decoder

if TYPE_CHECKING:
    from backends.transformers.tensor_parallel import Ranks

DType = Literal["auto", "float32", "bfloat16", "float16"]

#: Raise it when a change of the computation may change log-probabilities.
SCORING_VERSION = 4
#: What is added to it for 16-bit models on a CPU, whose attention alone was changed since.
SCORING_CHANGES_OF_16_BITS = 1
#: Tokens of one forward pass, halved when memory runs out. On a CPU, more tokens are not faster.
PACK_TOKENS = {"cpu": 512, "mps": 2048, "cuda": 16384}
#: Times as many where a pass brings weights from the disk or the CPU's memory first.
OFFLOADED = 8
#: Requests of one call on CUDA, where the pauses between two calls are longer than a pass.
CUDA_BATCH = 2048


class HFBackend(CausalBackend):
    """A causal language model on transformers, each distinct token of a batch computed once.

    Parameters
    ----------
    model : str or Path
        Hub id, a local folder, or a GGUF file.
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
    attn_implementation : str, optional
        The attention of transformers that writes texts, and scores models without the tree: ``eager``, ``sdpa``,
        ``flash_attention_2``, ``flash_attention_3`` or ``flex_attention``.
    tensor_parallel : int, optional
        Divide each layer over this many processes, one for each CUDA device of this machine (or on the CPU), by
        transformers' own plan for the model. The other processes are started and ended with the model.
    threads : int, optional
        CPU threads of a process; default: all cores this process may use, or ``OMP_NUM_THREADS`` if that is fewer.
    enable_thinking : bool, optional
        Passed to the chat template of a reasoning model; None: not passed. Reasoning is kept apart from answers.
    reasoning_tokens : int, optional
        Extra tokens for reasoning, added to each text's limit if thinking is enabled. Default: 4096.
    """

    path_options = {"model": (), "adapter": (), "offload_folder": ()}  # noqa: RUF012
    engine_fields = frozenset(
        {
            "backend",
            "dtype",
            "device",
            "torch",
            "transformers",
            "scoring_version",
            "attention",
            "quantiser",
            "tensor_parallel",
        }
    )

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
        attn_implementation: Attention | None = None,
        tensor_parallel: Annotated[int, Field(ge=2)] | None = None,
        threads: OptionalCount = None,
        enable_thinking: bool | None = None,
        reasoning_tokens: OptionalCount = None,
    ) -> None:
        super().__init__(threads, enable_thinking, reasoning_tokens)
        self.source = ModelSource(
            str(resolve_embedded(model)), revision, None if adapter is None else str(adapter), trust_remote_code
        )
        folder = None if offload_folder is None else str(Path(offload_folder).expanduser())
        self.placement = Placement(device_map, max_memory, folder, quantization, attn_implementation, tensor_parallel)
        #: Of the other processes of a divided model; they load a file of the same name, and nothing is spread further.
        self._options = {
            "model": str(model), "dtype": dtype, "device": device, "revision": revision,
            "trust_remote_code": trust_remote_code, "attn_implementation": attn_implementation,
            "tensor_parallel": tensor_parallel, "threads": threads, "enable_thinking": enable_thinking,
            "reasoning_tokens": reasoning_tokens,
        }  # fmt: skip
        self._ranks: Ranks | None = None
        self.follows = False  # whether this process is one of those others
        self._dtype_option, self._device_option = dtype, device
        self._device: str | None = None
        self._tokenizer: Any = None

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device in use. Resolving ``auto`` imports torch."""
        if self._device is None:
            self._device = self.placement.main_device or _choose_device(self._device_option)
        return self._device

    @property
    def dtype(self) -> str:
        """The dtype in use."""
        if self._dtype_option != "auto":
            return self._dtype_option
        return "bfloat16" if self.device.startswith("cuda") else "float32"

    def check(self) -> None:
        for module in ("torch", "transformers"):
            need_package("model", module, "hf", given=self.source.model)
        for device in (self._device_option, *self.placement.devices):
            check_device(device)
        self.placement.check(self._device_option, self.source.path, self.source.adapter)
        self.source.check()
        self.source.check_files()
        if self.source.path.is_dir():
            self.source.check_parts(self.placement)

    def _scoring_version(self) -> int:
        is_changed = self.dtype != "float32" and self.device == "cpu"
        return SCORING_VERSION + (SCORING_CHANGES_OF_16_BITS if is_changed else 0)

    def describe_blocking(self) -> Description:
        self._load_tokenizer()
        if self.device.startswith("cuda"):
            self.batch_size = CUDA_BATCH
        template = self._tokenizer.chat_template
        identity, kind = self.source.weights()
        kind = self.placement.quantised_as(kind)
        fingerprint: dict[str, Scalar] = {
            "backend": "hf",
            **identity,
            "tokenizer_sha256": text_sha256(self._tokenizer.backend_tokenizer.to_str()),
            "dtype": self.dtype,
            "quantisation": kind,
            "adapter": self.source.adapter_identity(),
            "device": self.device.partition(":")[0],
            "torch": package_version("torch"),
            "transformers": package_version("transformers"),
            "scoring_version": self._scoring_version(),
            **self.placement.fingerprint(),
            **quantiser(kind),
        }
        notes = {
            "model": self.source.model,
            "device": self.device,
            "dtype": self.dtype,
            "quantisation": kind or "none",
            "route": "chosen when the model is loaded" if self._loaded is None else self._loaded.route,
            **self._config_notes(),
        }
        weights = identity.get("weights_sha256", f"{identity.get('hub_id')}@{identity.get('revision')}")
        from_gguf = self.source.path.is_file()  # the file holds the tokenizer too, as every engine reads it
        parts: dict[ModelPart, Scalar] = {
            "weights": weights,
            "tokenizer": f"gguf:{weights}" if from_gguf else f"json:{fingerprint['tokenizer_sha256']}",
            "settings": identity.get("files_sha256"),
        }
        return self._description(fingerprint, notes, template, parts, self.source.statements())

    def _config_notes(self) -> dict[str, str]:
        if self._loaded is None and self.source.path.is_file():
            return {}  # transformers would read the whole GGUF file for its config, and LongRoPE files are refused
        from backends.transformers.context import context_length

        config = self.source.config() if self._loaded is None else self._loaded.model.config
        notes = {"context": context_length(config)[1], "decoder": text_decoder(config)}
        return {name: note for name, note in notes.items() if note}

    def load(self) -> LoadedModel:
        import torch

        shared = self.placement.tensor_parallel if self.threads is None else None
        torch.set_num_threads(max(1, self.thread_count // (shared or 1)))
        return super().load()

    def is_stopped(self) -> bool:
        """As in `backends.local.backend.LocalBackend`; of a divided model all parts ask this together."""
        if self.placement.tensor_parallel is None or self._loaded is None:
            return super().is_stopped()
        from backends.transformers.tensor_parallel import as_first_rank

        return as_first_rank(super().is_stopped(), str(input_device(self._loaded.model)))

    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        if self.placement.tensor_parallel is None or self.follows:
            return super().run_blocking(batch, on_response)
        known = BackendError.of_loading
        try:
            self.load()
            known = BackendError.of
            assert self._ranks is not None
            return self._ranks.run(batch, lambda: CausalBackend.run_blocking(self, batch, on_response))
        except AuditError as error:  # the group has ended, or never began
            self._loaded, self._ranks, self._refusal = None, None, error.with_traceback(None)
            return [known(error)] * len(batch)
        except BaseException:  # abandoned: the other processes were ended in the middle of the batch
            self._loaded = self._ranks = None
            raise

    def close_blocking(self) -> None:
        super().close_blocking()
        if self._ranks is not None:
            self._ranks.close()
            self._ranks = None
        self._tokenizer = None
        self.source.forget()
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()

    def _load_tokenizer(self) -> TextEncoder:
        if self._encoder is None:
            from backends.transformers.text import HFTextEncoder

            self._tokenizer = self.source.tokenizer()
            self._encoder = HFTextEncoder(self._tokenizer, self.enable_thinking)
        return self._encoder

    def _load_encoder(self) -> tuple[TextEncoder, Callable[[], None]]:
        return self._load_tokenizer(), lambda: None

    def _load_model(self) -> LoadedModel:
        size = self.placement.tensor_parallel
        if size is None or self.follows:
            return self._load_here()
        from backends.transformers.tensor_parallel import Ranks

        self.source.tensor_plan(size)  # refused before any process is started
        self._ranks = Ranks(size, {**self._options, "revision": self.source.commit()})  # one commit for all of them
        return self._ranks.run(None, self._load_here)

    def _places(self, model: Any) -> str:
        size = self.placement.tensor_parallel
        return describe_places(model) if size is None else f"each layer over {size} processes"

    def _load_here(self) -> LoadedModel:
        from backends.transformers.generation import HFGeneration
        from backends.transformers.memory import within_memory
        from backends.transformers.scoring.scorer import SequenceScorer
        from backends.transformers.weight_layout import lay_out

        encoder = self._load_tokenizer()
        try:
            load = partial(self.source.load, self.dtype, self.device, self.placement)
            model = within_memory(load, self.device)
            device = str(input_device(model))
            within_memory(partial(lay_out, model), device)
            make_scorer = partial(
                SequenceScorer,
                model,
                lambda start: encoder.vocabulary.beginning_with(start),
                pack_tokens=PACK_TOKENS[device.partition(":")[0]] * (OFFLOADED if is_offloaded(model) else 1),
            )
            scorer = within_memory(make_scorer, self.device)
        except NoRoomError:
            pass  # the error is raised below: raised here, it would keep this one, whose frames hold the weights
        else:
            engine = HFGeneration(model, self._tokenizer, device=device, render=encoder.render)
            engine.context = scorer.context  # what it found may be less than the config says
            route = f"{scorer.route}: {scorer.route_reason}"
            return LoadedModel(model, encoder, scorer, TextGenerator(engine), route, self._places(model))
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
