"""Models on transformers, in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

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
from backends.errors import AuditError, BackendError, ConfigError
from backends.local.answers import answer_by_kind
from backends.local.backend import LocalBackend, discard_response
from backends.local.fingerprint import (
    SMALL_FILES,
    file_sha256,
    files_sha256,
    folder_weights,
    package_version,
    text_sha256,
)
from backends.local.generation import NoRoomError, TextGenerator
from backends.local.gguf_header import check_causal, is_gguf, longrope_cells, quantisation, read_gguf_header
from backends.local.options import available_threads, check_count, need_package
from backends.local.scoring import score_requests

if TYPE_CHECKING:
    from backends.transformers.scoring import SequenceScorer
    from backends.transformers.text import HFTextEncoder

DType = Literal["auto", "float32", "bfloat16", "float16"]

#: Raise it when the way of computing changes so that log-probabilities may.
SCORING_VERSION = 3
#: Tokens of one forward pass, halved when memory runs out. On a processor more is no faster.
PACK_TOKENS = {"cpu": 512, "mps": 2048, "cuda": 8192}

# While it loads a model, transformers changes torch's default dtype for the whole process, and sets it back to
# what it found. Two at once, for two devices, could leave the wrong one for good.
_loading = threading.Lock()


class HFBackend(LocalBackend):
    """A causal language model on transformers, each distinct token of a batch computed once.

    Parameters
    ----------
    model : str or Path
        Hub id, a local folder, or a GGUF file.
    dtype : str
        ``auto``: bfloat16 on CUDA, float32 elsewhere. Log-probabilities are taken in float32 always.
    device : str
        ``auto`` (CUDA, else MPS, else the processor), ``cpu``, ``mps``, ``cuda`` or ``cuda:N``.
    revision : str, optional
        Branch, tag or commit of a hub id.
    adapter : str or Path, optional
        PEFT adapter: a local folder or a hub id.
    trust_remote_code : bool
        Run code that comes with the model.
    threads : int, optional
        Of the processor; default: all cores this process may use.
    """

    batch_size = 256

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: DType = "auto",
        device: str = "auto",
        revision: str | None = None,
        adapter: str | Path | None = None,
        trust_remote_code: bool = False,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.dtype, self.revision = str(model), dtype, revision
        self.adapter = None if adapter is None else str(adapter)
        self.trust_remote_code, self.threads = trust_remote_code, threads
        self._asked_device = device
        self._device: str | None = None
        self._tokenizer: Any = None
        self._encoder: HFTextEncoder | None = None
        self._loaded: Any = None
        self._scorer: SequenceScorer | None = None
        self._generator: TextGenerator | None = None
        self._refusal: AuditError | None = None

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device in use; ``auto`` is decided here, which imports torch."""
        if self._device is None:
            self._device = _choose_device(self._asked_device)
        return self._device

    def check(self) -> None:
        if self.dtype not in get_args(DType):
            raise ConfigError("dtype", self.dtype, "no such dtype", f"Give one of {', '.join(get_args(DType))}")
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self._asked_device):
            raise ConfigError("device", self._asked_device, "no such device", "Give auto, cpu, mps, cuda or cuda:N")
        check_count("threads", self.threads, 1)
        for module in ("torch", "transformers"):
            need_package("model", module, "hf")
        _check_device(self._asked_device)
        self._check_model()
        if self.adapter is not None:
            need_package("adapter", "peft", "hf")
            if _looks_like_path(self.adapter) and not (Path(self.adapter) / "adapter_config.json").is_file():
                raise ConfigError(
                    "adapter", self.adapter, "no adapter_config.json there", "Give a PEFT adapter's folder"
                )

    def _check_model(self) -> None:
        path = Path(self.model).expanduser()
        if not path.exists():
            if _looks_like_path(self.model):
                raise ConfigError("model", self.model, "no such file or folder", "Give a path that exists, or a hub id")
            return
        if self.revision is not None:
            raise ConfigError("revision", self.revision, "a local model has no revisions", "Leave it out")
        if path.is_dir():
            if not (path / "config.json").is_file():
                raise ConfigError(
                    "model", self.model, "a folder without config.json", "Give a transformers model's folder"
                )
            if not folder_weights(path):
                raise ConfigError("model", self.model, "a folder without weights", "Put the model's weights there")
            return
        if not is_gguf(path):
            raise ConfigError("model", self.model, "a file, and not GGUF", "Give a folder, a GGUF file or a hub id")
        for module in ("gguf", "accelerate"):
            need_package("model", module, "hf")
        header = read_gguf_header(path)
        if (parts := int(header.get("split.count", 1))) > 1:
            raise ConfigError(
                "model",
                self.model,
                f"one of {parts} files of a model, and transformers reads this one alone",
                "Put them together with llama-gguf-split --merge, or use LlamaCppBackend",
            )
        check_causal(path, header)
        if longrope_cells(path, header) is not None:
            raise ConfigError(
                "model",
                self.model,
                "transformers leaves out the LongRoPE of a GGUF file, which would give other numbers",
                "Use LlamaCppBackend, or the model's safetensors",
            )

    # -- identity -------------------------------------------------------------------------------

    def describe_blocking(self) -> Description:
        encoder = self._load_tokenizer()
        tokenizer = self._tokenizer
        template = tokenizer.chat_template
        capabilities: set[Capability] = {"score", "generate"}
        if template is not None:
            capabilities.add("chat")
        identity, kind = self._weights()
        fingerprint: dict[str, str | int | float | bool | None] = {
            "backend": "hf",
            **identity,
            "tokenizer_sha256": text_sha256(tokenizer.backend_tokenizer.to_str()),
            "chat_template_sha256": None if template is None else text_sha256(str(template)),
            "dtype": self._dtype,
            "quantisation": kind,
            "adapter": self._adapter_identity(),
            "device": self.device.partition(":")[0],
            "torch": package_version("torch"),
            "transformers": package_version("transformers"),
            "scoring_version": SCORING_VERSION,
        }
        notes = {
            "model": self.model,
            "device": self.device,
            "dtype": self._dtype,
            "quantisation": kind or "none",
            "threads": str(self._threads),
            "route": self._route(),
            **self._context_note(),
        }
        assert encoder is not None
        return Description(fingerprint, frozenset(capabilities), notes)

    def _route(self) -> str:
        if self._scorer is None:
            return "chosen when the model is loaded"
        return f"{self._scorer.route}: {self._scorer.route_reason}"

    def _context_note(self) -> dict[str, str]:
        if self._loaded is None and Path(self.model).expanduser().is_file():
            return {}  # transformers reads a whole GGUF file to find its config, and one with LongRoPE is refused
        from backends.transformers.context import context_length

        why = context_length(self._config() if self._loaded is None else self._loaded.config)[1]
        return {"context": why} if why else {}

    def _weights(self) -> tuple[dict[str, str], str | None]:
        """What identifies the weights, and their quantisation if any."""
        path = Path(self.model).expanduser()
        if path.is_file():
            return {"weights_sha256": file_sha256(path)}, quantisation(read_gguf_header(path))
        config = self._config()
        kind = _quantisation_method(config)
        if path.is_dir():
            small = [path / name for name in SMALL_FILES if (path / name).is_file()]
            if self.trust_remote_code:
                small += path.glob("*.py")
            return {"weights_sha256": files_sha256(folder_weights(path)), "files_sha256": files_sha256(small)}, kind
        commit = getattr(config, "_commit_hash", None)
        if commit is None:
            raise ConfigError("model", self.model, "its revision cannot be told", "Give a local folder")
        return {"hub_id": self.model, "revision": str(commit)}, kind

    def _adapter_identity(self) -> str | None:
        if self.adapter is None:
            return None
        path = Path(self.adapter).expanduser()
        if path.is_dir():
            return files_sha256([*folder_weights(path), path / "adapter_config.json"])
        from huggingface_hub import HfApi

        return f"{self.adapter}@{HfApi().model_info(self.adapter).sha}"

    # -- loading --------------------------------------------------------------------------------

    @property
    def _dtype(self) -> str:
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if self.device.startswith("cuda") else "float32"

    @property
    def _threads(self) -> int:
        return self.threads or available_threads()

    def _source(self) -> tuple[str, dict[str, Any]]:
        """What ``from_pretrained`` is given to find the model."""
        path = Path(self.model).expanduser()
        options: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        if path.is_file():
            return str(path.parent), {**options, "gguf_file": path.name}
        if path.is_dir():
            return str(path), options
        return self.model, {**options, "revision": self.revision}

    def _config(self) -> Any:
        from transformers import AutoConfig

        source, options = self._source()
        config = AutoConfig.from_pretrained(source, **options)
        self._check_class(config)
        return config

    def _check_class(self, config: Any) -> None:
        """Raise for a model that transformers would refuse only once its weights are there."""
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

        own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
        if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING or (own_code and self.trust_remote_code):
            return
        raise ConfigError(
            "model",
            self.model,
            f"of the kind {config.model_type!r}, which is no causal language model to transformers",
            "Set trust_remote_code if you trust the code that comes with it"
            if own_code
            else "Give a causal language model",
        )

    def _load_tokenizer(self) -> HFTextEncoder:
        if self._encoder is None:
            from transformers import AutoTokenizer

            from backends.transformers.text import HFTextEncoder, mend_gguf_tokenizer

            source, options = self._source()
            self._tokenizer = AutoTokenizer.from_pretrained(source, **options)
            if "gguf_file" in options:
                header = read_gguf_header(Path(self.model).expanduser())
                mend_gguf_tokenizer(
                    self._tokenizer,
                    str(header.get("tokenizer.ggml.pre", "default")),
                    str(header.get("tokenizer.ggml.model")),
                )
            self._encoder = HFTextEncoder(self._tokenizer)
        return self._encoder

    def _load(self) -> tuple[Any, HFTextEncoder, SequenceScorer]:
        import torch

        torch.set_num_threads(self._threads)
        encoder = self._load_tokenizer()
        if self._loaded is None or self._scorer is None:
            if self._refusal is not None:  # tried once: loading takes minutes
                raise self._refusal
            from backends.transformers.memory import within_memory

            try:
                self._loaded = within_memory(self._load_model, self.device)
                self._scorer = within_memory(partial(self._make_scorer, self._loaded, encoder), self.device)
            except NoRoomError:
                self._refusal = BackendError(
                    "out_of_memory",
                    f"the model does not fit in the memory of {self.device}",
                    hint="use a smaller dtype or model, or another device",
                )
            except AuditError as error:
                # The frames of the failure hold the weights.
                self._refusal = error.with_traceback(None)
        if self._loaded is None or self._scorer is None:
            self._loaded = None
            assert self._refusal is not None
            raise self._refusal
        return self._loaded, encoder, self._scorer

    def _load_model(self) -> Any:
        import torch
        from transformers import AutoModelForCausalLM

        source, options = self._source()
        if "gguf_file" not in options:  # to find its config, a whole GGUF file is read
            self._config()
        with _loading:
            model, found = AutoModelForCausalLM.from_pretrained(
                source,
                dtype=getattr(torch, self._dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # told below, as an error of the config
                **options,
            )
        self._check_weights(model, found)
        if self.adapter is not None:
            model = self._with_adapter(model)
        return model.to(self.device).eval()

    def _check_weights(self, model: Any, found: dict[str, Any]) -> None:
        """Raise for weights that were not in the files: transformers draws them at random, anew at each load."""
        # A buffer that is missing has the value that the model's code gives it, the same at each load.
        drawn = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        missing = sorted(drawn & set(found["missing_keys"]))
        missing += [f"{name} of another shape" for name, *_ in found["mismatched_keys"]]
        if missing:
            raise ConfigError(
                "model",
                self.model,
                f"weights that the model needs are not there ({_some(missing)}), and would be drawn at random",
                "Give a whole causal language model, its output head included",
            )

    def _with_adapter(self, model: Any) -> Any:
        """The model with the adapter's weights added to its own."""
        from peft import PeftModel

        adapted = PeftModel.from_pretrained(model, self.adapter)
        # Once more, since only this tells which weights found no place: they would change nothing, without a word.
        found = adapted.load_adapter(self.adapter, "default")
        if apart := sorted({*found.missing_keys, *found.unexpected_keys}):
            raise ConfigError(
                "adapter",
                self.adapter,
                f"its weights are not those that its config asks of this model ({_some(apart)})",
                "Give the adapter of this model, with the names that PEFT saves",
            )
        return adapted.merge_and_unload()

    def _make_scorer(self, model: Any, encoder: HFTextEncoder) -> SequenceScorer:
        from backends.transformers.scoring import SequenceScorer

        return SequenceScorer(
            model,
            lambda start: encoder.vocabulary.beginning_with(start),
            pack_tokens=PACK_TOKENS[self.device.partition(":")[0]],
        )

    # -- work -----------------------------------------------------------------------------------

    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        try:
            self._load()
        except BackendError as error:
            return [error] * len(batch)
        except ConfigError as error:  # found only by loading
            told = f"{error.field} = {error.value!r}: {error.problem}"
            return [BackendError("unsupported", told, hint=error.hint)] * len(batch)
        return answer_by_kind(batch, self._score, self._generate, on_response)

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        if self._encoder is None:
            return None
        return [len(self._encoder.render(prompt)) for prompt in prompts]

    def close_blocking(self) -> None:
        self._loaded = self._scorer = self._generator = self._encoder = self._tokenizer = self._refusal = None
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()

    def _score(self, requests: Sequence[ScoreRequest]) -> Sequence[Answer]:
        from backends.transformers.context import context_length

        model, encoder, scorer = self._load()
        context, _ = context_length(model.config)
        try:
            return score_requests(requests, encoder, scorer.value, context=context, route=scorer.route)
        except BackendError as error:
            return [error] * len(requests)

    def _generate(self, requests: Sequence[GenerateRequest], on_response: OnResponse) -> Sequence[Answer]:
        from backends.transformers.generation import HFGeneration

        model, encoder, _ = self._load()
        if self._generator is None:
            engine = HFGeneration(model, self._tokenizer, device=self.device, render=encoder.render)
            self._generator = TextGenerator(engine)
        return self._generator.generate(requests, on_response)


def _some(names: Sequence[str]) -> str:
    """A few of many names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _looks_like_path(name: str) -> bool:
    """Whether a text means a path: a hub id is ``name`` or ``owner/name``."""
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is None or name.startswith((".", "~")) or name.endswith(".gguf")


def _choose_device(asked: str) -> str:
    if asked not in ("auto", "cuda"):
        return asked
    import torch

    if asked == "cuda" or torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _check_device(asked: str) -> None:
    """Raise `ConfigError` for a device that this machine lacks; imports torch only where that is in doubt."""
    kind, _, number = asked.partition(":")
    if kind not in ("cuda", "mps"):
        return
    import torch

    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device", asked, "torch finds no MPS device", 'Give "auto" or "cpu"')
    if kind == "cuda" and there == 0:
        raise ConfigError(
            "device", asked, "torch finds no CUDA device", 'Give "auto" or "cpu", or install torch for CUDA'
        )
    if kind == "cuda" and int(number or 0) >= there:
        raise ConfigError("device", asked, f"this machine's last CUDA device is {there - 1}", "Give a smaller number")


def _quantisation_method(config: Any) -> str | None:
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    settings = settings if isinstance(settings, dict) else settings.to_dict()
    return str(settings.get("quant_method"))
