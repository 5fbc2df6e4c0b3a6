"""Where a model's layers go and how they are loaded: several devices, the disk, quantised, another attention.

Takes the options of `HFBackend`; gives the arguments for ``from_pretrained``, and what of them may change a number.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from backends.base import Scalar
from backends.errors import ConfigError
from backends.local.backend import need_package
from backends.local.fingerprint import package_version
from backends.options import OnError
from backends.transformers.offload import check_folder

Spread = Literal["auto", "balanced", "balanced_low_0", "sequential"]
Attention = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
Quantization = Literal["bitsandbytes-int8", "bitsandbytes-nf4", "quanto-int8", "torchao-int8"]
_QUANTIZATIONS = OnError(
    "no known way to quantise weights",
    f"Give one of {', '.join(get_args(Quantization))} (load_in_8bit is bitsandbytes-int8, load_in_4bit -nf4)",
)
OptionalQuantization = Annotated[Quantization | None, _QUANTIZATIONS]

#: An index of a CUDA device, or a device's name.
Place = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^(cpu|disk|mps|cuda(:[0-9]+)?|[0-9]+)$")],
    OnError("no place for a part", "Give a number (of a CUDA device), cpu, mps, cuda:N or disk"),
]
DeviceMap = Annotated[
    Spread | dict[str, Place] | None,
    OnError(
        "not a device map",
        f"Give one of {', '.join(get_args(Spread))}, or a table of the model's parts: a number (of a CUDA device), "
        'cpu, mps, cuda:N or disk. All on one device is device="cuda:0"',
    ),
]
#: A device whose memory is limited, and how much in accelerate's units: it tells a mistake once the model is loaded.
Limited = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^(cpu|mps|disk|[0-9]+)$")]
Memory = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^[0-9]+([.][0-9]+)? *[KMGkmg]([iI]?[bB])$")],
    OnError("not an amount of memory", 'Give a number of bytes, or such as "20GiB" or "500MB"'),
]
MaxMemory = Annotated[
    dict[Limited, Memory] | None,
    OnError("not a table of memory", 'Give one such as {"0": "20GiB", "cpu": "64GiB"}'),
]

#: The package that a way of quantising needs, and the module by which it is found. The extra has the way's name.
PACKAGES = {
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "hqq": ("hqq", "hqq"),
    "quanto": ("optimum-quanto", "optimum"),
    "torchao": ("torchao", "torchao"),
    "compressed-tensors": ("compressed-tensors", "compressed_tensors"),
}
_FLASH = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
_NO_DEVICES = ("cpu", "disk")


@dataclass(frozen=True, slots=True)
class Placement:
    """The options of `HFBackend` that say where and how a model is loaded; None: as transformers does by itself."""

    device_map: str | Mapping[str, int | str] | None = None
    max_memory: Mapping[int | str, int | str] | None = None
    offload_folder: str | None = None
    quantization: str | None = None
    attn_implementation: str | None = None
    tensor_parallel: int | None = None

    def check(self, device: str, path: Path, adapter: str | None = None) -> None:
        """Raise `ConfigError` for every mistake that can be found without loading anything."""
        self._check_places(device, path)
        self._check_division(device, path, adapter)
        if not isinstance(self.device_map, str | None):
            check_adapter(adapter, self.device_map)
        if adapter is not None and self.quantization is not None:
            raise ConfigError(
                "adapter",
                adapter,
                "merged into quantised weights it would be rounded with them",
                "Save the model with the adapter merged, and quantise that",
            )
        if self.quantization is not None:
            method = self.quantization.partition("-")[0]
            package, module = PACKAGES[method]
            need_package("quantization", module, method, package, given=self.quantization)
            need_package("quantization", "accelerate", "hf", given=self.quantization)
            if path.is_file():
                raise ConfigError(
                    "quantization", self.quantization, "a GGUF file is quantised already", "Give the model's folder"
                )
        if self.attn_implementation in _FLASH and importlib.util.find_spec(_FLASH[self.attn_implementation]) is None:
            raise ConfigError(
                "attn_implementation",
                self.attn_implementation,
                f"the package {_FLASH[self.attn_implementation]!r} is not installed",
                "Install it for this torch and CUDA (pip install flash-attn --no-build-isolation), or leave it out",
            )

    def _check_division(self, device: str, path: Path, adapter: str | None) -> None:
        if self.tensor_parallel is None:
            return
        others = {"device_map": self.device_map, "quantization": self.quantization, "adapter": adapter}
        for name, value in others.items():
            if value is not None:
                raise ConfigError(name, value, "not with tensor_parallel", "Leave one of them out")
        if path.is_file():
            raise ConfigError(
                "tensor_parallel", self.tensor_parallel, "no GGUF file is divided", "Give the model's folder"
            )
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device not in (("auto", "cuda") if count else ("auto", "cpu")):
            raise ConfigError("device", device, "tensor_parallel chooses the devices", "Leave it out")
        if 0 < count < self.tensor_parallel:
            raise ConfigError(
                "tensor_parallel", self.tensor_parallel, f"this machine has {count} CUDA devices", "Give fewer"
            )

    def _check_places(self, device: str, path: Path) -> None:
        if self.device_map is None:
            for name in ("max_memory", "offload_folder"):
                if (given := getattr(self, name)) is not None:
                    raise ConfigError(name, given, "without effect alone", 'Give device_map too, such as "auto"')
            return
        need_package("device_map", "accelerate", "hf", given=self.device_map)
        if self.offload_folder is not None:
            check_folder(self.offload_folder)
        if device != "auto":
            raise ConfigError("device", device, "device_map says where the model goes", "Leave one of them out")
        if isinstance(self.device_map, str):
            return
        if self.max_memory is not None:
            raise ConfigError(
                "max_memory", self.max_memory, "without effect on a map of parts", 'Give device_map = "auto"'
            )
        if "disk" not in self.device_map.values():
            return
        self._check_nesting(self.device_map)
        if path.is_file():
            raise ConfigError(
                "device_map", "disk", "transformers keeps no part of a GGUF file on the disk", "Give the model's folder"
            )
        if self.offload_folder is None:
            raise ConfigError("offload_folder", None, "missing", 'Give a folder for the parts that go to "disk"')

    def _check_nesting(self, parts: Mapping[str, int | str]) -> None:
        """Raise `ConfigError` for a part on the disk within one that is not, or around one: neither is loaded."""
        for part, place in parts.items():
            for outer, other in parts.items():
                if part != outer and _is_in(part, outer) and place != other and "disk" in (place, other):
                    around = repr(outer) if outer else "the whole model ('')"
                    raise ConfigError(
                        f"device_map.{part}",
                        place,
                        f"it lies within {around}, which goes to {other!r}",
                        f"In place of {around} give its other parts a place one by one",
                    )

    @property
    def main_device(self) -> str | None:
        """The device that a map of parts computes on first, as accelerate chooses it; None without such a map."""
        if self.device_map is None or isinstance(self.device_map, str):
            return None
        return next((_device_name(place) for place in self.device_map.values() if place not in _NO_DEVICES), "cpu")

    @property
    def devices(self) -> list[str]:
        """The devices that a map of parts names."""
        places = {} if self.device_map is None or isinstance(self.device_map, str) else self.device_map
        return sorted({_device_name(place) for place in places.values() if place not in _NO_DEVICES})

    def quantised_as(self, kind: str | None) -> str | None:
        """How the weights are quantised once they are loaded, if ``kind`` says how they are in the files.

        Raises
        ------
        ConfigError
            If they would be quantised twice.
        """
        if self.quantization is None:
            return kind
        if kind is not None:
            raise ConfigError("quantization", self.quantization, f"already quantised ({kind})", "Leave it out")
        return self.quantization

    def fingerprint(self) -> dict[str, Scalar]:
        """What of this may change a number.

        Not where the parts are: weights on the disk or in the CPU's memory are brought to the main device, which
        computes with them, and its kind is in the fingerprint already. Divided layers add their sums in another order.
        """
        found = {"attention": self.attn_implementation, "tensor_parallel": self.tensor_parallel}
        return {name: value for name, value in found.items() if value is not None}

    def arguments(self, dtype: Any) -> dict[str, Any]:
        """Arguments for ``from_pretrained``, without ``offload_folder``: each model has one of its own there."""
        found: dict[str, Any] = {
            "device_map": self.device_map if isinstance(self.device_map, str | None) else dict(self.device_map),
            "attn_implementation": self.attn_implementation,
        }
        if isinstance(found["device_map"], dict):
            found["device_map"] = {part: _as_index(place) for part, place in found["device_map"].items()}
        if self.max_memory is not None:
            found["max_memory"] = {_as_index(place): most for place, most in self.max_memory.items()}
        if self.quantization is not None:
            found["quantization_config"] = settings(self.quantization, dtype)
        return {name: value for name, value in found.items() if value is not None}


def check_device(option: str) -> None:
    """Raise `ConfigError` for a device that this machine lacks. Imports torch only for CUDA and MPS."""
    kind, _, number = option.partition(":")
    if kind not in ("cuda", "mps"):
        return
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device", option, "torch finds no MPS device", 'Give "auto" or "cpu"')
    if kind == "cuda" and count == 0:
        raise ConfigError(
            "device", option, "torch finds no CUDA device", 'Give "auto" or "cpu", or install torch for CUDA'
        )
    if kind == "cuda" and int(number or 0) >= count:
        raise ConfigError("device", option, f"this machine's last CUDA device is {count - 1}", "Give a smaller number")


def quantiser(method: str | None) -> dict[str, Scalar]:
    """The library that computes with a model's quantised weights, with its version, for the fingerprint."""
    package, _ = PACKAGES.get((method or "").partition("-")[0], (None, None))
    return {} if package is None else {"quantiser": f"{package} {package_version(package)}"}


def input_device(model: Any) -> Any:
    """Where a loaded model takes its input and gives its logits: the main device of one that is spread."""
    import torch

    if not (places := getattr(model, "hf_device_map", None)):
        return model.device
    first = next((place for place in places.values() if str(place) not in _NO_DEVICES), "cpu")
    return torch.device(_device_name(first))


def describe_places(model: Any) -> str:
    """How many parts of a loaded model are where; empty if it is not spread."""
    places = [str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()]
    return ", ".join(f"{places.count(place)} parts on {_device_name(place)}" for place in dict.fromkeys(places))


def is_offloaded(model: Any) -> bool:
    """Whether a part of a loaded model is brought to its device at each pass."""
    return _offloads(getattr(model, "hf_device_map", None) or {})


def check_parts(device_map: str | Mapping[str, Any] | None, model: Any) -> None:
    """Raise `ConfigError` for a map of parts that the model has not, or that leaves weights without a place.

    transformers places such weights by itself, without a word.
    """
    if device_map is None or isinstance(device_map, str):
        return
    weights = [name for name, _ in model.named_parameters()]
    parts = {name for name, _ in model.named_modules()} | {name for name, _ in model.named_buffers()} | {*weights}
    for part in device_map:
        if part not in parts:
            near = difflib.get_close_matches(part, parts, cutoff=0.4) or [name for name, _ in model.named_children()]
            raise ConfigError(f"device_map.{part}", part, "no part of this model", f"Its parts are {', '.join(near)}…")
    tied = tuple(getattr(model, "_tied_weights_keys", None) or ())
    left = [name for name in weights if name not in tied and not any(map(partial(_is_in, name), device_map))]
    if left:
        missing = list(dict.fromkeys(_largest_part(name, device_map) for name in left))
        shown = ", ".join(missing[:5]) + ("…" if len(missing) > 5 else "")
        raise ConfigError(
            "device_map", list(device_map), f"no place for {shown}", "Give each part of the model a place"
        )


def _is_in(weight: str, part: str) -> bool:
    return part == "" or weight == part or weight.startswith(f"{part}.")


def _largest_part(weight: str, parts: Iterable[str]) -> str:
    """The largest part of the model that has this weight and none of the given parts."""
    names = weight.split(".")
    wholes = (".".join(names[:count]) for count in range(1, len(names)))
    return next((whole for whole in wholes if not any(_is_in(part, whole) for part in parts)), weight)


def check_adapter(adapter: str | None, places: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an adapter of a model with offloaded parts: PEFT leaves it out of these."""
    if adapter is not None and _offloads(places):
        raise ConfigError(
            "adapter",
            adapter,
            "PEFT leaves it out of parts on the disk, or on the CPU beside another device",
            "Save the model with the adapter merged, and spread that",
        )


def _offloads(parts: Mapping[str, Any]) -> bool:
    places = set(map(str, parts.values()))
    return "disk" in places or ("cpu" in places and len(places) > 1)


def _as_index(place: int | str) -> int | str:
    return int(place) if isinstance(place, str) and place.isdecimal() else place


def _device_name(place: int | str) -> str:
    return f"cuda:{place}" if str(place).isdecimal() else str(place)


def settings(quantization: str, dtype: Any) -> Any:
    """The settings that transformers takes for a way of quantising."""
    import transformers

    method, _, kind = quantization.partition("-")
    if method == "bitsandbytes":
        if kind == "int8":
            return transformers.BitsAndBytesConfig(load_in_8bit=True)
        return transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    if method == "quanto":
        return transformers.QuantoConfig(weights=kind)
    from torchao.quantization import Int8WeightOnlyConfig

    return transformers.TorchAoConfig(Int8WeightOnlyConfig())
