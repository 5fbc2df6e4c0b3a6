"""What the engines share that take a transformers checkpoint: its tokenizer, and what identifies it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from backends.base import Description, ModelPart, Scalar
from backends.local.causal import CausalBackend
from backends.local.encoder import TextEncoder
from backends.local.fingerprint import package_version, text_sha256
from backends.transformers.source import ModelSource


class CheckpointBackend(CausalBackend):
    """A causal language model from a folder or a hub id."""

    source: ModelSource
    dtype: str
    _tokenizer: Any = None

    @abstractmethod
    def _engine_fields(self, kind: str | None) -> tuple[dict[str, Scalar], dict[str, str]]:
        """The engine's own part of the fingerprint, and of the notes; ``kind`` is how the files are quantised."""

    def describe_blocking(self) -> Description:
        self._load_encoder()
        identity, kind = self.source.weights()
        fields, own_notes = self._engine_fields(kind)
        tokenizer = text_sha256(self._tokenizer.backend_tokenizer.to_str())
        fingerprint: dict[str, Scalar] = {
            **identity,
            "tokenizer_sha256": tokenizer,
            "dtype": self.dtype,
            "quantisation": kind,
            "adapter": self.source.adapter_identity(),
            "device": str(self.device).partition(":")[0],
            "torch": package_version("torch"),
            "transformers": package_version("transformers"),
            **fields,
        }
        notes = {
            "model": self.source.model,
            "device": str(self.device),
            "dtype": self.dtype,
            "quantisation": str(fingerprint["quantisation"] or "none"),
            "route": "chosen when the model is loaded" if self._loaded is None else self._loaded.route,
            **own_notes,
        }
        weights = identity.get("weights_sha256", f"{identity.get('hub_id')}@{identity.get('revision')}")
        from_gguf = self.source.path.is_file()  # the file holds the tokenizer too, as every engine reads it
        parts: dict[ModelPart, Scalar] = {
            "weights": weights,
            "tokenizer": f"gguf:{weights}" if from_gguf else f"json:{tokenizer}",
            "settings": identity.get("files_sha256"),
        }
        template, statements = self._tokenizer.chat_template, self.source.statements()
        return self._description(fingerprint, notes, template, parts, statements)

    def close_blocking(self) -> None:
        super().close_blocking()
        self._tokenizer = None
        self.source.forget()

    def _load_encoder(self) -> tuple[TextEncoder, Callable[[], None]]:
        if self._encoder is None:
            from backends.transformers.text import HFTextEncoder

            self._tokenizer = self.source.tokenizer()
            self._encoder = HFTextEncoder(self._tokenizer, self.enable_thinking)
        return self._encoder, lambda: None
