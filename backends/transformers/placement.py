"""Where a model's layers go and how they are loaded, by transformers and accelerate: several devices, quantised.

Takes the options of `HFBackend`; gives the arguments for ``from_pretrained``, and what of them may change a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from backends.base import Scalar
from backends.errors import ConfigError
from backends.local.backend import need_package
from backends.local.fingerprint import package_version
from backends.options import OnError

Spread = Literal["auto", "balanced", "balanced_low_0", "sequential"]
Quantization = Literal["bitsandbytes-int8", "bitsandbytes-nf4", "quanto-int8", "torchao-int8"]
OptionalQuantization = Annotated[
    Quantization | None,
    OnError(
        "no known way to quantise weights",
        f"Give one of {', '.join(get_args(Quantization))} (load_in_8bit is bitsandbytes-int8, load_in_4bit -nf4)",
    ),
]
DeviceMap = Annotated[
    Spread | dict[str, int | str] | None,
    OnError(
        "not a device map",
        f"Give one of {', '.join(get_args(Spread))}, or a table of the model's parts: a number (of a CUDA device), "
        'cpu, mps, cuda:N or disk. All on one device is device="cuda:0"',
    ),
]
MaxMemory = Annotated[
    dict[int | str, int | str] | None,
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
_NO_DEVICES = ("cpu", "disk")


@dataclass(frozen=True, slots=True)
class Placement:
    """The options of `HFBackend` that say where and how a model is loaded; None: as transformers does by itself."""

    device_map: str | Mapping[str, int | str] | None = None
    max_memory: Mapping[int | str, int | str] | None = None
    offload_folder: str | None = None
    quantization: str | None = None

    def check(self, device: str, path: Path, adapter: str | None = None) -> None:
        """Raise `ConfigError` for options that would have no effect, or be rounded away."""
        if self.device_map is None:
            for name in ("max_memory", "offload_folder"):
                if (given := getattr(self, name)) is not None:
                    raise ConfigError(name, given, "without effect alone", 'Give device_map too, such as "auto"')
        else:
            need_package("device_map", "accelerate", "hf", given=self.device_map)
            if device != "auto":
                raise ConfigError("device", device, "device_map says where the model goes", "Leave one of them out")
        if self.quantization is None:
            return
        package, module = PACKAGES[self.quantization.partition("-")[0]]
        need_package("quantization", module, self.quantization.partition("-")[0], package, given=self.quantization)
        if adapter is not None:
            problem = "beside weights that are quantised here it was not compared with PEFT's numbers"
            raise ConfigError("adapter", adapter, problem, "Save the model with the adapter merged, and quantise that")
        if path.is_file():
            problem = "a GGUF file is quantised already"
            raise ConfigError("quantization", self.quantization, problem, "Give the model's folder")

    @property
    def main_device(self) -> str | None:
        """The device that a map of parts computes on first, as accelerate chooses it; None without such a map."""
        return None if self.device_map is None or isinstance(self.device_map, str) else _first(self.device_map)

    def quantised_as(self, kind: str | None) -> str | None:
        """How the weights are quantised once they are loaded, if ``kind`` says how they are in the files.

        Raises `ConfigError` if they would be quantised twice.
        """
        if self.quantization is None:
            return kind
        if kind is not None:
            raise ConfigError("quantization", self.quantization, f"already quantised ({kind})", "Leave it out")
        return self.quantization

    def arguments(self, dtype: Any) -> dict[str, Any]:
        """Arguments for ``from_pretrained``, without ``offload_folder``: each model has one of its own there."""
        placed = self.device_map
        found: dict[str, Any] = {
            "device_map": placed if isinstance(placed, str | None) else {k: _as_index(v) for k, v in placed.items()},
            "max_memory": None
            if self.max_memory is None
            else {_as_index(place): most for place, most in self.max_memory.items()},
            "quantization_config": None if self.quantization is None else settings(self.quantization, dtype),
        }
        return {name: value for name, value in found.items() if value is not None}


def check_device(option: str) -> None:
    """Raise `ConfigError` for a device that this machine lacks. Imports torch only for CUDA and MPS."""
    kind, _, number = option.partition(":")
    if kind not in ("cuda", "mps"):
        return
    import torch

    is_there = torch.cuda.is_available() if kind == "cuda" else torch.backends.mps.is_available()
    count = torch.cuda.device_count() if is_there and kind == "cuda" else int(is_there)
    if int(number or 0) >= count:
        found = f"torch finds {count} such devices"
        raise ConfigError("device", option, found, 'Give "auto", "cpu" or another, or install torch for it')


def quantiser(method: str | None) -> dict[str, Scalar]:
    """The library that computes with a model's quantised weights, with its version, for the fingerprint."""
    package, _ = PACKAGES.get((method or "").partition("-")[0], (None, None))
    return {} if package is None else {"quantiser": f"{package} {package_version(package)}"}


def input_device(model: Any) -> Any:
    """Where a loaded model takes its input and gives its logits: the main device of one that is spread."""
    import torch

    places = getattr(model, "hf_device_map", None)
    return torch.device(_first(places)) if places else model.device


def is_offloaded(model: Any) -> bool:
    """Whether a part of a loaded model is brought to its device at each pass."""
    places = set(map(str, (getattr(model, "hf_device_map", None) or {}).values()))
    return "disk" in places or ("cpu" in places and len(places) > 1)


def _first(places: Mapping[str, Any]) -> str:
    return next((_device_name(place) for place in places.values() if str(place) not in _NO_DEVICES), "cpu")


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
