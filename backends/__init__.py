"""Models that can be asked: local, quantised and hosted, behind one interface.

Importing this package loads no engine: each backend class is imported when it is first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from backends.errors import AuditError, BackendError, ConfigError, MissingExtra

if TYPE_CHECKING:
    from backends.anthropic import AnthropicBackend
    from backends.catalogue.named import named_backend
    from backends.classifiers import LLMRater, Rubric, text_classifier
    from backends.llamacpp import LlamaCppBackend
    from backends.openai import OpenAIBackend, PriceTable
    from backends.openai.responses import ResponsesBackend
    from backends.stand_ins.fake import FakeBackend, PlantedBias
    from backends.stand_ins.recorded import RecordedBackend
    from backends.transformers import HFBackend
    from backends.vllm import VLLMBackend

__all__ = [
    "AnthropicBackend",
    "AuditError",
    "BackendError",
    "ConfigError",
    "FakeBackend",
    "HFBackend",
    "LLMRater",
    "LlamaCppBackend",
    "MissingExtra",
    "OpenAIBackend",
    "PlantedBias",
    "PriceTable",
    "RecordedBackend",
    "ResponsesBackend",
    "Rubric",
    "VLLMBackend",
    "named_backend",
    "text_classifier",
]

_MODULES = {
    "AnthropicBackend": "backends.anthropic",
    "FakeBackend": "backends.stand_ins.fake",
    "HFBackend": "backends.transformers",
    "LLMRater": "backends.classifiers",
    "LlamaCppBackend": "backends.llamacpp",
    "OpenAIBackend": "backends.openai",
    "PlantedBias": "backends.stand_ins.fake",
    "PriceTable": "backends.openai",
    "RecordedBackend": "backends.stand_ins.recorded",
    "ResponsesBackend": "backends.openai.responses",
    "Rubric": "backends.classifiers",
    "VLLMBackend": "backends.vllm",
    "named_backend": "backends.catalogue.named",
    "text_classifier": "backends.classifiers",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'backends' has no attribute {name!r}")
