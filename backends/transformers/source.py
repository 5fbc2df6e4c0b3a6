"""Where a transformers model comes from: a hub id, a folder, or an embedded model's GGUF file.

What is refused here is what transformers and PEFT would load and compute wrong numbers with. What they refuse by
themselves is told where it is loaded, in one line (`loading`).
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import weakref
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.errors import ConfigError
from backends.local.backend import check_named, need_package
from backends.local.fingerprint import TOKENIZER_FILES, file_sha256, files_sha256, folder_weights, small_files
from backends.local.gguf_header import is_gguf, quantisation, read_gguf_header, read_gguf_tensors
from backends.transformers.gguf_files import as_in_llamacpp, check_compared
from backends.transformers.loading import (
    HubCommit,
    find_commit,
    gguf_read_once,
    loading,
    quiet,
    snapshot_of,
)
from backends.transformers.placement import Placement, input_device, is_offloaded
from backends.transformers.weights_fit import misfit_of_weights, some

_BY_ITSELF = Placement()
_CONFIG_FILE, _ADAPTER_FILE = "config.json", "adapter_config.json"
#: Kinds whose checkpoints hold a part that speaks beside the one that writes → the kind of the latter.
WRITING_PARTS = {"qwen2_5_omni": "qwen2_5_omni_thinker", "qwen3_omni_moe": "qwen3_omni_moe_thinker"}


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model and its adapter, as named by the options of `HFBackend`.

    ``option`` names the model in errors; a classifier labels texts, where other models write them.
    """

    model: str
    revision: str | None
    adapter: str | None = None
    trust_remote_code: bool = False
    takes_gguf: bool = True
    option: str = "model"
    is_classifier: bool = False
    #: The commits of its repositories, found once: what is described is what is loaded.
    _commits: dict[str, HubCommit] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The model as a path, whether or not it is one."""
        return Path(self.model).expanduser()

    @property
    def _adapter_path(self) -> Path:
        """The adapter as a path, whether or not it is one."""
        return Path(str(self.adapter)).expanduser()

    def _error(self, problem: str, hint: str) -> ConfigError:
        return ConfigError(self.option, self.model, problem, hint)

    # -- checks ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `ConfigError` for every mistake that can be found without loading anything."""
        check_named(self.option, self.model, "Give a folder or a hub id")
        self._check_model()
        if self.adapter is None:
            return
        need_package("adapter", "peft", "hf", given=self.adapter)
        check_named("adapter", self.adapter, "Leave it out, or give a PEFT adapter's folder or hub id")
        is_path = _looks_like_path(self.adapter) or self._adapter_path.exists()
        if is_path and not (self._adapter_path / _ADAPTER_FILE).is_file():
            hint = "Give a PEFT adapter's folder; a whole model is given as model"
            raise ConfigError("adapter", self.adapter, f"no {_ADAPTER_FILE} there", hint)

    def _check_model(self) -> None:
        path = self.path
        if not path.exists():
            if _looks_like_path(self.model):
                raise self._error("no such file or folder", "Give a path that exists, or a hub id")
        elif self.revision is not None:
            raise ConfigError("revision", self.revision, "a local model has no revisions", "Leave it out")
        elif path.is_dir():
            self._check_folder(path)
        else:
            self._check_file(path)

    def _check_folder(self, path: Path) -> None:
        if not (path / _CONFIG_FILE).is_file():
            raise self._error(f"a folder without {_CONFIG_FILE}", "Give a transformers model's folder")
        self._check_no_adapter((path / _ADAPTER_FILE).is_file())
        if not small_files(path, TOKENIZER_FILES):  # transformers would make an empty one
            hint = "Copy tokenizer.json and tokenizer_config.json from the model that it was made of"
            raise self._error("a folder without a tokenizer", hint)

    def _check_file(self, path: Path) -> None:
        if not self.takes_gguf:
            raise self._error("a file, where a folder is wanted", "Give a folder or a hub id; GGUF: LlamaCppBackend")
        if not is_gguf(path):
            raise self._error("not a GGUF file", "Give a folder or a hub id")
        for module in ("gguf", "accelerate"):
            need_package("model", module, "hf", given=self.model)
        header = read_gguf_header(path)
        if (parts := int(header.get("split.count", 1))) > 1:
            raise self._error(
                f"one of {parts} parts of a model, and transformers reads only this one",
                "Merge them with llama-gguf-split --merge, or use LlamaCppBackend",
            )
        check_compared(path, header, read_gguf_tensors(path))

    def _check_no_adapter(self, has_one: bool) -> None:
        """Raise `ConfigError` for a model with an adapter that transformers would apply, named by nothing."""
        if has_one:
            raise self._error(
                f"an adapter lies beside the model ({_ADAPTER_FILE}), which would be applied unnamed",
                "Give the model that it was trained on, and the adapter's own folder by adapter=",
            )

    # -- identity -------------------------------------------------------------------------------

    def weights(self) -> tuple[dict[str, str], str | None]:
        """What identifies the weights, and their quantisation if any."""
        path = self.path
        if path.is_file():
            return {"weights_sha256": file_sha256(path)}, quantisation(read_gguf_header(path))
        config = self.config()
        kind = _quantisation_method(config)
        if path.is_dir():
            small = small_files(path)
            if self.trust_remote_code:
                small += path.glob("*.py")
            return {"weights_sha256": files_sha256(folder_weights(path)), "files_sha256": files_sha256(small)}, kind
        return {"hub_id": self.model, "revision": self._model_commit().commit}, kind

    def adapter_identity(self) -> str | None:
        """What identifies the adapter, if there is one."""
        if self.adapter is None:
            return None
        path = self._adapter_path
        if path.is_dir():
            return files_sha256([*folder_weights(path), path / _ADAPTER_FILE])
        return f"{self.adapter}@{self._adapter_commit().commit}"

    def statements(self) -> tuple[str, ...]:
        """What a reader of the figures is told of where the files come from; call it once they are identified."""
        found = tuple(
            f"{name}: {found.statement}" if name != self.model else found.statement
            for name, found in self._commits.items()
            if found.statement
        )
        base = _base_of_adapter(self._adapter_path) if self.adapter else ""
        if base and Path(base).name.lower() != Path(self.model).name.lower():
            found += (f"its adapter says that it was trained on {base}, and is applied to {self.model}",)
        return found

    def forget(self) -> None:
        """Ask the hub anew what its newest commits are, where this is used again."""
        self._commits.clear()

    def snapshot(self) -> Path | None:
        """The folder of a hub id's files in the cache, where these are all there is; None otherwise."""
        if self.path.exists() or not self._model_commit().offline:
            return None
        return snapshot_of(self.model, self._model_commit().commit)

    def commit(self) -> str | None:
        """The commit of a hub id that is in the fingerprint; None for files of one's own."""
        return None if self.path.exists() else self._model_commit().commit

    def _model_commit(self) -> HubCommit:
        if self.model not in self._commits:
            self._commits[self.model] = find_commit(self.option, self.model, self.revision)
        return self._commits[self.model]

    def _adapter_commit(self) -> HubCommit:
        name = str(self.adapter)
        if name not in self._commits:
            self._commits[name] = find_commit("adapter", name, None, file=_ADAPTER_FILE)
        return self._commits[name]

    # -- loading --------------------------------------------------------------------------------

    def _loading(self, what: str) -> AbstractContextManager[None]:
        return loading(self.option, self.model, what, "Check its files, or fetch it again: one may be damaged")

    def _source(self) -> tuple[str, dict[str, Any]]:
        """The arguments for ``from_pretrained``."""
        path = self.path
        options: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        if path.is_file():
            return str(path.parent), {**options, "gguf_file": path.name}
        if path.is_dir():
            return str(path), options
        return self.model, {**options, **self._model_commit().options}

    def config(self) -> Any:
        """The model's configuration, read without its weights."""
        from transformers import AutoConfig

        source, options = self._source()
        with self._loading("its config.json"):
            config = AutoConfig.from_pretrained(source, **options)
        self._check_class(config)
        return config

    def _check_class(self, config: Any) -> None:
        """Raise `ConfigError` for a model that would be refused after fetching its weights."""
        if self.is_classifier:
            if not any("SequenceClassification" in name for name in config.architectures or ()):
                problem = f"its architecture {config.architectures} is not a sequence classifier"
                raise self._error(problem, "Give a model for text classification")
            return
        own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
        if (own_code and self.trust_remote_code) or model_class(config) is not None:
            return
        raise self._error(
            f"its kind {config.model_type!r} is not a causal language model of transformers",
            "Set trust_remote_code if you trust the code that comes with it"
            if own_code
            else "Give a causal language model",
        )

    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        from transformers import AutoTokenizer

        source, options = self._source()
        if "gguf_file" not in options:
            self.config()  # it is read for the tokenizer too: its own faults are told as such
        once = gguf_read_once() if "gguf_file" in options else contextlib.nullcontext()
        with self._loading("its tokenizer"), once:
            tokenizer = AutoTokenizer.from_pretrained(source, **options)
        if "gguf_file" in options:
            as_in_llamacpp(tokenizer, read_gguf_header(self.path))
        return tokenizer

    def load(self, dtype: str, device: str, placement: Placement = _BY_ITSELF) -> Any:
        """The model with its adapter, where ``placement`` says or else on a device, ready to compute."""
        import torch

        source, options = self._source()
        is_gguf = "gguf_file" in options
        loader, placed = self._loader(getattr(torch, dtype), device, placement)
        once = gguf_read_once() if is_gguf else contextlib.nullcontext()
        with self._loading("the model"), quiet(), once:
            model, found = loader.from_pretrained(
                source,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, as an error of the config
                **placed,
                **options,
                # It looks for an adapter beside the model, at the hub if not told.
                adapter_kwargs={"local_files_only": True} if options.get("local_files_only") else None,
            )
        if "offload_folder" in placed:
            weakref.finalize(model, shutil.rmtree, placed["offload_folder"], ignore_errors=True)
        self._check_no_adapter(getattr(model, "_hf_peft_config_loaded", False))  # of a hub id
        self._check_weights(model, found, is_gguf or placement.quantization is not None)
        _check_dtype(model, dtype)
        if self.adapter is not None:
            model = self._with_adapter(model)
        return model.eval() if "device_map" in placed else model.to(device).eval()

    def _loader(self, dtype: Any, device: str, placement: Placement) -> tuple[Any, dict[str, Any]]:
        """The class that loads the model, and the arguments that say where it goes."""
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GgufConfig

        if self.is_classifier:
            return AutoModelForSequenceClassification, {}
        placed = placement.arguments(dtype)
        if placement.quantization is not None:
            placed.setdefault("device_map", {"": device})  # what is quantised may not be moved
        if placement.offload_folder is not None:
            # Its files are named after the parts alone: two models in one folder would read each other's weights.
            Path(placement.offload_folder).mkdir(parents=True, exist_ok=True)
            placed["offload_folder"] = tempfile.mkdtemp(prefix="bias-audit.", dir=placement.offload_folder)
        if not self.path.is_file():
            return model_class(self.config()) or AutoModelForCausalLM, placed
        # Where `kernels` is installed, transformers would fetch code, and compute otherwise without a word. Reading
        # the config would read the whole file.
        return AutoModelForCausalLM, {**placed, "quantization_config": GgufConfig(dequantize=True)}

    def _check_weights(self, model: Any, found: dict[str, Any], is_quantised: bool) -> None:
        """Raise `ConfigError` for missing weights, which transformers draws at random, and others that do not fit."""
        is_quantised = is_quantised or bool(_quantisation_method(self.config()))
        folder = self.path if self.path.exists() else snapshot_of(self.model, self._model_commit().commit)
        if (misfit := misfit_of_weights(model, found, folder, is_quantised=is_quantised)) is not None:
            raise self._error(*misfit)

    def _with_adapter(self, model: Any) -> Any:
        """The model with the adapter beside its weights, as PEFT puts it."""
        import torch
        from huggingface_hub import snapshot_download
        from peft import PeftModel

        hint = "Give an adapter of this model that PEFT puts into its layers; or the model saved with it merged"
        if is_offloaded(model):
            problem = "PEFT leaves it out of parts on the disk, or on the CPU beside another device"
            raise ConfigError("adapter", self.adapter, problem, "Save the model with the adapter merged")
        source = str(self._adapter_path)
        with loading("adapter", str(self.adapter), "the adapter", hint), quiet():
            if not self._adapter_path.exists():  # the commit that is in the fingerprint
                files = {"allow_patterns": "adapter_*", **self._adapter_commit().options}
                source = snapshot_download(str(self.adapter), **files)
            adapted = PeftModel.from_pretrained(model, source).eval()
            # Loaded a second time: only this reports weights that match nothing and would have no effect.
            found = adapted.load_adapter(source, "default")
            if unused := sorted({*found.missing_keys, *found.unexpected_keys}):
                problem = f"its weights do not match its config for this model ({some(unused)})"
                raise ConfigError("adapter", self.adapter, problem, hint)
            # Some kinds act outside of the layers, before them or on some texts alone: the layers would answer without.
            inside = adapted.get_base_model()
            ids = torch.arange(3, 15, device=input_device(model))[None]
            with torch.inference_mode():
                theirs, ours = (one(input_ids=ids, use_cache=False).logits for one in (adapted, inside))
            is_partial = getattr(adapted.active_peft_config, "alora_invocation_tokens", None)
            if is_partial or not torch.allclose(theirs, ours, rtol=1e-2, atol=1e-2, equal_nan=True):
                raise ConfigError("adapter", self.adapter, "it acts outside of the model's layers", hint)
            for layer in inside.modules():
                if type(layer) is torch.nn.Linear:  # PEFT takes the sizes of an embedding that is tied to it
                    layer.out_features, layer.in_features = layer.weight.shape
            return inside


def model_class(config: Any) -> Any:
    """The class of transformers that loads a model which writes texts; None if there is none.

    A multimodal model is loaded whole. Asked with text alone, it is its text decoder. Of one that speaks as well, the
    part that writes is loaded.
    """
    import transformers

    if getattr(config, "is_encoder_decoder", False) and type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    loaders = {
        "CAUSAL_LM": "AutoModelForCausalLM",
        "IMAGE_TEXT_TO_TEXT": "AutoModelForImageTextToText",
        "MULTIMODAL_LM": "AutoModelForMultimodalLM",  # those that hear, too
    }
    for kind, loader in loaders.items():
        if type(config) in getattr(transformers, f"MODEL_FOR_{kind}_MAPPING"):
            found = getattr(transformers, loader)
            part = WRITING_PARTS.get(config.model_type)
            return found if part is None else found._model_mapping[transformers.CONFIG_MAPPING[part]]
    return None


def text_decoder(config: Any) -> str:
    """What of a multimodal model is asked, for reports; empty for a model of text alone."""
    if config.get_text_config() is config:
        return ""
    return f"the text decoder of a multimodal model ({config.model_type}), asked with text alone"


def _check_dtype(model: Any, dtype: str) -> None:
    """Raise `ConfigError` for a model whose weights have another dtype than the one its answers are stored under.

    A quantiser may choose one of its own. Some models keep a few weights in float32: the most frequent dtype counts.
    """
    found: Counter[str] = Counter()
    for weight in model.parameters():
        if weight.is_floating_point() and weight.itemsize > 1:  # float8 holds quantised weights
            found[str(weight.dtype).removeprefix("torch.")] += 1
    if found and (loaded := found.most_common(1)[0][0]) != dtype:
        raise ConfigError("dtype", dtype, f"the model was loaded in {loaded}", f'Give dtype = "{loaded}"')


def _base_of_adapter(folder: Path) -> str:
    """The model that an adapter says it was trained on; empty if it does not."""
    try:
        base = json.loads((folder / _ADAPTER_FILE).read_text())["base_model_name_or_path"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return base if isinstance(base, str) else ""


def _looks_like_path(name: str) -> bool:
    """Whether a name is a path rather than a hub id (``name`` or ``owner/name``)."""
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is None or name.startswith((".", "~")) or name.endswith(".gguf")


def _quantisation_method(config: Any) -> str | None:
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    settings = settings if isinstance(settings, dict) else settings.to_dict()
    return str(settings.get("quant_method"))
