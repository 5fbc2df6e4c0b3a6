"""Where a transformers model comes from: a hub id, a folder, or a GGUF file."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.errors import ConfigError, one_line
from backends.local.backend import check_named, check_path, need_package
from backends.local.fingerprint import SMALL_FILES, choosing_indexes, file_sha256, files_sha256, folder_weights
from backends.local.gguf_header import (
    check_causal,
    check_whole,
    is_gguf,
    longrope_cells,
    quantisation,
    read_gguf_header,
    read_gguf_tensors,
)
from backends.local.hints import has_tokenizer, model_within, of_id
from backends.transformers.adapter_fit import (
    base_of_adapter,
    check_adapter_files,
    misfit,
    other_size,
)
from backends.transformers.gguf_fields import check_fields, check_tensors
from backends.transformers.gguf_reading import gguf_read_once
from backends.transformers.hub import HubCommit, find_commit, options_of_weights, snapshot_of
from backends.transformers.loading import loading, one_load
from backends.transformers.offload import OwnFolder
from backends.transformers.placement import Placement, check_adapter, check_parts, settings
from backends.transformers.quiet import quiet
from backends.transformers.weight_files import check_weight_files, safetensors_shapes
from backends.transformers.weights_fit import ENCODERS, is_encoder, loaded_without_content, misfit_of_weights, some

#: Raised when other weights come of merging an adapter; part of its identity.
MERGING = 2

_BY_ITSELF = Placement()
_CONFIG_FILE, _ADAPTER_FILE = "config.json", "adapter_config.json"
#: Kinds whose checkpoints hold a part that speaks beside the one that writes → the kind of the latter.
WRITING_PARTS = {"qwen2_5_omni": "qwen2_5_omni_thinker", "qwen3_omni_moe": "qwen3_omni_moe_thinker"}


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model and its adapter, as named by the options of `HFBackend`."""

    model: str
    revision: str | None
    adapter: str | None
    trust_remote_code: bool
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
        return ConfigError("model", self.model, problem, hint)

    # -- checks ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `ConfigError` for every mistake that can be found without loading anything."""
        check_named("model", self.model, "Give a folder, a GGUF file or a hub id")
        if self.revision is not None:
            check_named("revision", self.revision, "Leave it out, or give a branch, tag or commit")
        check_path("model", self.path)
        self._check_model()
        if self.adapter is not None:
            need_package("adapter", "peft", "hf", given=self.adapter)
            check_named("adapter", self.adapter, "Leave it out, or give a PEFT adapter's folder or hub id")
            check_path("adapter", self._adapter_path)
            folder = self._adapter_path
            is_path = _looks_like_path(self.adapter) or folder.exists()
            if is_path and not (folder / _ADAPTER_FILE).is_file():
                problem = "no such folder" if not folder.exists() else f"no {_ADAPTER_FILE} there"
                is_model = (folder / _CONFIG_FILE).is_file()
                raise ConfigError(
                    "adapter",
                    self.adapter,
                    "a whole model, not an adapter" if is_model else problem,
                    "Give it as model, or a PEFT adapter's folder" if is_model else "Give a PEFT adapter's folder",
                )
            if is_path and not folder_weights(folder):
                raise ConfigError("adapter", self.adapter, "a folder without weights", "Put the weights there")

    def check_files(self) -> None:
        """Raise `ConfigError` for a folder that transformers cannot load, as its files show without being read."""
        if self.adapter is not None and self._adapter_path.is_dir():
            check_adapter_files(str(self.adapter), self._adapter_path)
        if self.path.is_dir():
            config = self.config()
            self._check_weights_of(self.path, config)
            _check_quantiser(self.model, config)
            if self.adapter is not None and self._adapter_path.is_dir():
                self._check_adapter_fits(config)

    def _check_weights_of(self, folder: Path, config: Any) -> None:
        """Raise `ConfigError` for weights that are missing, damaged, or not those that a config.json describes."""
        files = check_weight_files(folder, config)
        is_of_transformers = not (self.trust_remote_code and getattr(config, "auto_map", None))
        if not files or not is_of_transformers or _quantisation_method(config) or config.model_type in WRITING_PARTS:
            return
        loaded = loaded_without_content(model_class(config), config, files)
        if loaded is not None:
            self._check_weights(*loaded)

    def _check_adapter_fits(self, config: Any) -> None:
        """Raise `ConfigError` for an adapter of another model: of layers or widths that this one has not."""
        folder = self._adapter_path
        try:
            wholes = [safetensors_shapes(file) for file in folder.glob("adapter_model.safetensors")]
            empty = self._empty_model(config, _BY_ITSELF, is_quantised=False)
        except Exception:  # foreign code and files: what is wrong with them is told where they are loaded
            return
        shapes = {name: shape for whole in wholes for name, shape in whole.items()}
        if problem := misfit(shapes, empty, folder):
            raise self._misfit_of_adapter(problem, folder)

    def _misfit_of_adapter(self, problem: str, folder: Path) -> ConfigError:
        base = base_of_adapter(folder)
        trained_on = f", and says that it was trained on {base}" if base else ""
        said = f"it does not fit this model: {problem}{trained_on}"
        return ConfigError("adapter", self.adapter, said, "Give the model that it was trained on")

    def _check_model(self) -> None:
        path = self.path
        if not path.exists():
            if _looks_like_path(self.model):
                hint = of_id(self.model) or "Give a path that exists, or a hub id"
                raise self._error("no such file or folder", hint)
            return
        if self.revision is not None:
            raise ConfigError("revision", self.revision, "a local model has no revisions", "Leave it out")
        if path.is_dir():
            if not (path / "config.json").is_file():
                if (path / "adapter_config.json").is_file():
                    raise self._error(
                        "an adapter, not a model", f"Give the model it belongs to, and adapter={str(path)!r}"
                    )
                raise self._error("a folder without config.json", model_within(path))
            self._check_no_adapter((path / "adapter_config.json").is_file())
            if not folder_weights(path):
                raise self._error("a folder without weights", "Put the model's weights there")
            if not has_tokenizer(path):
                hint = "Copy tokenizer.json and tokenizer_config.json from the model that it was made of"
                raise self._error("a folder without a tokenizer", hint)
            return
        if not is_gguf(path):
            if (path.parent / _CONFIG_FILE).is_file():
                raise self._error("a file of a model's folder", f"Give that folder: {str(path.parent)!r}")
            raise self._error("not a GGUF file", "Give a folder, a GGUF file or a hub id")
        for module in ("gguf", "accelerate"):
            need_package("model", module, "hf", given=self.model)
        header = read_gguf_header(path)
        if (parts := int(header.get("split.count", 1))) > 1:
            raise self._error(
                f"one of {parts} parts of a model, and transformers reads only this one",
                "Merge them with llama-gguf-split --merge, or use LlamaCppBackend",
            )
        check_whole(path, header)
        check_causal(path, header)
        if longrope_cells(path, header) is not None:
            raise self._error(
                "transformers ignores the LongRoPE of a GGUF file, which would give wrong numbers",
                "Use LlamaCppBackend, or the model's safetensors",
            )
        check_fields(path, header, read_gguf_tensors(path))

    def _check_no_adapter(self, has_one: bool) -> None:
        """Raise `ConfigError` for a model with an adapter that transformers would apply, named by nothing."""
        if has_one:
            raise self._error(
                "an adapter lies beside the model (adapter_config.json), which would be applied unnamed",
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
            small = [path / name for name in SMALL_FILES if (path / name).is_file()]
            if self.trust_remote_code:
                small += path.glob("*.py")
            small += choosing_indexes(path)
            return {"weights_sha256": files_sha256(folder_weights(path)), "files_sha256": files_sha256(small)}, kind
        return {"hub_id": self.model, "revision": self._model_commit().commit}, kind

    def adapter_identity(self) -> str | None:
        """What identifies the adapter, if there is one."""
        if self.adapter is None:
            return None
        path = self._adapter_path
        if path.is_dir():
            return f"{files_sha256([*folder_weights(path), path / 'adapter_config.json'])} merged {MERGING}"
        return f"{self.adapter}@{self._adapter_commit().commit} merged {MERGING}"

    def statements(self) -> tuple[str, ...]:
        """What a reader of the figures is told of where the files come from; call it once they are identified."""
        found = tuple(
            f"{name}: {found.statement}" if name != self.model else found.statement
            for name, found in self._commits.items()
            if found.statement
        )
        base = base_of_adapter(self._adapter_path) if self.adapter else ""
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
            self._commits[self.model] = find_commit("model", self.model, self.revision)
        return self._commits[self.model]

    def _adapter_commit(self) -> HubCommit:
        name = str(self.adapter)
        if name not in self._commits:
            self._commits[name] = find_commit("adapter", name, None, file=_ADAPTER_FILE)
        return self._commits[name]

    # -- loading --------------------------------------------------------------------------------

    def _loading(self, what: str) -> AbstractContextManager[None]:
        return loading("model", self.model, what, "Check its files, or fetch it again: one may be damaged")

    def _loading_adapter(self) -> AbstractContextManager[None]:
        return loading("adapter", str(self.adapter), "the adapter", "Give an adapter of this model, saved by PEFT")

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
        """Raise `ConfigError` for a model that transformers would refuse only after fetching its weights."""
        if is_encoder(config):
            problem = f"an encoder ({config.model_type}), which reads a text in both directions"
            decoder = "; of one that was trained as a decoder, set is_decoder in config.json"
            has_setting = config.model_type in ENCODERS
            raise self._error(problem, f"Give a causal language model{decoder if has_setting else ''}")
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

        from backends.transformers.gguf_tokens import as_in_llamacpp

        source, options = self._source()
        if "gguf_file" not in options:
            config = self.config()  # it is read for the tokenizer too: its own faults are told as such
            if (folder := self.snapshot()) is not None:  # without a hub the rest cannot be fetched
                self._check_weights_of(folder, config)
        once = gguf_read_once() if "gguf_file" in options else contextlib.nullcontext()
        with self._loading("its tokenizer"), once:
            tokenizer = AutoTokenizer.from_pretrained(source, **options)
        if "gguf_file" in options:
            as_in_llamacpp(tokenizer, read_gguf_header(self.path))
        return tokenizer

    def load(self, dtype: str, device: str, placement: Placement = _BY_ITSELF) -> Any:
        """The model with its adapter, where ``placement`` says or else on a device, ready to compute."""
        import torch
        from transformers import AutoModelForCausalLM, GgufConfig

        self.check_parts(placement)
        source, options = self._source()
        loader = AutoModelForCausalLM
        placed = placement.arguments(getattr(torch, dtype))
        if "gguf_file" not in options:  # reading its config would read the whole GGUF file
            loader = model_class(self.config()) or AutoModelForCausalLM
        else:  # where `kernels` is installed, transformers would fetch code, and compute otherwise without a word
            placed["quantization_config"] = GgufConfig(dequantize=True)
        if placement.quantization is not None and placement.device_map is None:
            placed["device_map"] = {"": device}  # what is quantised may not be moved
        if placement.tensor_parallel is not None:
            from transformers.distributed import DistributedConfig

            plan = self.tensor_plan(placement.tensor_parallel)
            placed["distributed_config"] = DistributedConfig(tp_size=placement.tensor_parallel, tp_plan=plan or None)
        once = gguf_read_once() if "gguf_file" in options else contextlib.nullcontext()
        folder = OwnFolder(placement.offload_folder)
        with one_load, self._loading("the model"), quiet(watched=True), once, folder as place:
            if place.path is not None:
                placed["offload_folder"] = str(place.path)
            model, found = loader.from_pretrained(
                source,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, as an error of the config
                **placed,
                **options_of_weights(options),
            )
            place.keep_for(model)
        self._check_no_adapter(getattr(model, "_hf_peft_config_loaded", False))  # of a hub id
        is_gguf = "gguf_file" in options
        is_quantised = is_gguf or placement.quantization is not None or bool(_quantisation_method(self.config()))
        self._check_weights(model, found, is_quantised=is_quantised)
        check_parts(placement.device_map, model)
        if "gguf_file" in options:
            architecture = str(read_gguf_header(self.path).get("general.architecture"))
            check_tensors(self.path, model, architecture, read_gguf_tensors(self.path))
        _check_dtype(model, dtype)
        if self.adapter is not None:
            check_adapter(self.adapter, getattr(model, "hf_device_map", None) or {})
            model = self._with_adapter(model)
        is_placed = "device_map" in placed or "distributed_config" in placed
        return model.eval() if is_placed else model.to(device).eval()

    def check_parts(self, placement: Placement) -> None:
        """Raise `ConfigError` for a map of other parts than the model's, before its weights are read.

        Its parts are those of an empty model, whose layers are replaced where they are quantised.
        """
        if placement.device_map is None or isinstance(placement.device_map, str):
            return
        config = self.config()
        is_gguf_file = self.path.is_file()  # its weights are no longer quantised once they are loaded
        kind = None if is_gguf_file else placement.quantised_as(_quantisation_method(config))
        try:
            empty = self._empty_model(config, placement, is_quantised=kind is not None)
        except Exception:  # foreign code: why a model cannot be made is told where it is loaded
            return
        check_parts(placement.device_map, empty)

    def _empty_model(self, config: Any, placement: Placement, *, is_quantised: bool) -> Any:
        """The model as `load` makes it, before any weights are read."""
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.quantizers import AutoHfQuantizer

        loader = model_class(config) or AutoModelForCausalLM
        with one_load, torch.device("meta"):
            if config.model_type in WRITING_PARTS:
                empty = loader(config.thinker_config)
            else:
                empty = loader.from_config(config, trust_remote_code=self.trust_remote_code)
            if is_quantised:
                given = placement.quantization  # None: it comes quantised
                how = config.quantization_config if given is None else settings(given, torch.float32)
                quantiser = AutoHfQuantizer.from_config(how, pre_quantized=given is None)
                quantiser.preprocess_model(model=empty, device_map=placement.device_map)
        return empty

    def tensor_plan(self, size: int) -> dict[str, str]:
        """What `tensor_parallel.plan` says for this model. Raises `ConfigError`, as it does."""
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

        from backends.transformers.tensor_parallel import plan

        config = self.config()
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or text_decoder(config):
            raise ConfigError(
                "tensor_parallel", size, "only models of transformers for text alone are divided", "Give device_map"
            )
        return plan(config, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].base_model_prefix, size)

    def _check_weights(self, model: Any, found: dict[str, Any], *, is_quantised: bool = False) -> None:
        """Raise `ConfigError` for missing weights: transformers initialises them at random at each load."""
        if (misfit := misfit_of_weights(model, found, is_quantised=is_quantised)) is not None:
            raise self._error(*misfit)

    def _fetched_adapter(self) -> Path:
        """The folder that holds the adapter of a hub id: the commit that is in the fingerprint."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        name, options = str(self.adapter), self._adapter_commit().options
        with self._loading_adapter():
            folder = Path(hf_hub_download(name, _ADAPTER_FILE, **options)).parent
            try:
                hf_hub_download(name, "adapter_model.safetensors", **options)
            except EntryNotFoundError as error:
                if isinstance(error, LocalEntryNotFoundError) and not options.get("local_files_only"):
                    raise  # the network, not a repository of the older format
                hf_hub_download(name, "adapter_model.bin", **options)
        return folder

    def _with_adapter(self, model: Any) -> Any:
        """The model with the adapter merged into its weights."""
        from peft import PeftModel

        from backends.transformers.merged_adapter import MergeError, merged

        source = str(self._adapter_path if self._adapter_path.exists() else self._fetched_adapter())
        check_adapter_files(str(self.adapter), Path(source))
        try:
            with one_load, self._loading_adapter(), quiet():
                try:
                    adapted = PeftModel.from_pretrained(model, source)
                except RuntimeError as error:
                    if problem := other_size(error):
                        raise self._misfit_of_adapter(problem, Path(source)) from None
                    raise
                # Loaded a second time: only this reports weights that match nothing and would have no effect.
                found = adapted.load_adapter(source, "default")
            if unused := sorted({*found.missing_keys, *found.unexpected_keys}):
                raise ConfigError(
                    "adapter",
                    self.adapter,
                    f"its weights do not match its config for this model ({some(unused)})",
                    "Give an adapter of this model, saved by PEFT",
                )
            with one_load, quiet():
                return merged(adapted)
        except MergeError as error:
            raise ConfigError(
                "adapter",
                self.adapter,
                str(error),
                "Give one that can be merged, or a server that applies it",
            ) from None


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


def _check_quantiser(model: str, config: Any) -> None:
    """Raise `ConfigError` for a quantised model whose library is not installed."""
    from transformers.quantizers import AutoHfQuantizer

    method = _quantisation_method(config)
    if method is None:
        return
    try:
        AutoHfQuantizer.from_config(config.quantization_config, pre_quantized=True).validate_environment()
    except ImportError as error:
        problem = f"its weights are quantised by {method}, whose library is not installed ({one_line(error)})"
        raise ConfigError("model", model, problem, "Install what this names, or give the model unquantised") from None
    except Exception:  # foreign code: whether it can be loaded here shows where it is
        return


def _looks_like_path(name: str) -> bool:
    """Whether a name is a path rather than a hub id (``name`` or ``owner/name``)."""
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is None or name.startswith((".", "~")) or name.endswith(".gguf")


def _quantisation_method(config: Any) -> str | None:
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    settings = settings if isinstance(settings, dict) else settings.to_dict()
    return str(settings.get("quant_method"))
