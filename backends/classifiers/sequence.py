"""A sequence classifier of transformers."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Annotated, Any

from pydantic import Field

from backends.base import Description, Scalar
from backends.classifiers.base import Labels, TextClassifier
from backends.errors import ConfigError
from backends.local.backend import need_package
from backends.options import OnError, checked_options
from backends.transformers.source import ModelSource


class SequenceClassifier(TextClassifier):
    """A sequence classifier of transformers.

    Parameters
    ----------
    model : str
        A hub id, or a folder with ``config.json``, weights and tokenizer.
    revision : str, optional
        Commit of a hub model; None: the newest that the machine has or can fetch.
    device : str
        ``cpu``, ``cuda:0``…
    batch_size : int
        Maximum number of texts in one forward pass; they are sorted by length first.

    It computes in float32. Texts longer than the model's limit are truncated, as the paper's code does. A single label
    goes through a sigmoid, and so do several if the configuration says ``multi_label_classification``; otherwise a
    softmax is used. A model whose outputs change with padding, or that has no padding token, reads one text at a time;
    this is tested when the model is loaded.
    """

    @checked_options
    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        device: Annotated[
            str,
            Field(pattern=r"^(cpu|mps|cuda(:[0-9]+)?)$"),
            OnError("no such device", "Give cpu, mps, cuda or cuda:N"),
        ] = "cpu",
        batch_size: Annotated[int, Field(ge=1), OnError("not a number of texts", "Give 1 or more")] = 32,
    ) -> None:
        super().__init__()
        self.model, self.device, self.batch_size = model, device, batch_size
        self.source = ModelSource(model, revision, takes_gguf=False, option="classifier.model", is_classifier=True)
        self._loaded: _Loaded | None = None

    def check(self) -> None:
        for module in ("torch", "transformers"):
            need_package("classifier.model", module, "hf", given=self.model)
        from backends.transformers.placement import check_device

        check_device(str(self.device))
        try:
            self.source.check()
            labels = _labels_of(self.source.config())
            if twice := sorted({label for label in labels if labels.count(label) > 1}):
                problem = f"several labels are called {twice[0]!r}"
                raise ConfigError("classifier.model", self.model, problem, "Make id2label unique")
        except ConfigError as error:
            hint = f'{error.hint}, or use the embedded "profanity" and "vader"'
            raise ConfigError(error.field, error.value, error.problem, hint) from None

    def label_names(self) -> list[str]:
        """The names of its labels, from its configuration alone. Raises `ConfigError` where there is none."""
        self.check()
        return _labels_of(self.source.config())

    def describe_blocking(self) -> Description:
        config = self.source.config()
        identity, _ = self.source.weights()
        fingerprint: dict[str, Scalar] = {
            "backend": "sequence-classifier",
            **identity,
            "labels": json.dumps(_labels_of(config)),
            "transformers": importlib.metadata.version("transformers"),
            "torch": importlib.metadata.version("torch"),
        }
        if _is_multi_label(config):
            fingerprint["activation"] = "sigmoid"
        notes, statements = {"model": self.model}, self.source.statements()
        return Description(fingerprint, frozenset({"classify"}), notes, statements=statements)

    def close_blocking(self) -> None:
        super().close_blocking()
        self._loaded = None
        self.source.forget()

    def _labels(self, texts: list[str]) -> list[Labels]:
        classifier = self._loaded
        assert classifier is not None
        labels = _labels_of(classifier.model.config)
        answers: list[Labels] = [{}] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        size = self.batch_size if classifier.tolerates_padding else 1
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            logits = classifier.logits([texts[i] for i in chosen])
            probabilities = logits.sigmoid() if _is_multi_label(classifier.model.config) else logits.softmax(-1)
            if not bool(probabilities.isfinite().all()):
                raise ValueError("the classifier's outputs are not numbers")
            for i, row in zip(chosen, probabilities.tolist(), strict=True):
                answers[i] = dict(zip(labels, row, strict=True))
        return answers

    def _prepare(self) -> None:
        if self._loaded is None:
            tokenizer = self.source.tokenizer()
            self._loaded = _Loaded(tokenizer, self.source.load("float32", str(self.device)))


#: Tokens of the longest text where neither the tokenizer nor the model says.
_USUAL_LENGTH = 512


class _Loaded:
    """A classifier in memory, and whether it can be given several texts at once."""

    def __init__(self, tokenizer: Any, model: Any) -> None:
        from backends.transformers.context import context_length

        self.model, self._tokenizer = model, tokenizer
        self._limit = min(tokenizer.model_max_length, context_length(model.config)[0] or _USUAL_LENGTH)
        if getattr(model.config, "use_cache", False):  # useless in a single pass, and some kinds of cache break it
            model.config.use_cache = False
        self.tolerates_padding = False
        self.tolerates_padding = self._ignores_padding()

    def logits(self, texts: list[str]) -> Any:
        """Logits (texts, labels) in float64."""
        import torch

        padding = len(texts) > 1
        inputs = self._tokenizer(
            texts, padding=padding, truncation=True, max_length=self._limit, return_tensors="pt"
        ).to(self.model.device)
        mask = inputs.get("attention_mask")
        if mask is not None and not bool(mask.any(-1).all()):  # padding alone would be given labels
            raise ValueError("the tokenizer leaves nothing of the text")
        with torch.inference_mode():
            return self.model(**inputs).logits.double()

    def _ignores_padding(self) -> bool:
        texts = ["He said that she was kind to the old man.", "He said so."]
        try:
            together = self.logits(texts)
        except Exception:  # without a padding token, tokenizers and models fail in various ways
            return False
        alone = [self.logits([text])[0] for text in texts]
        # Padding that counts as a token moves a logit by far more than rounding does.
        return all(bool((row - own).abs().max() < 1e-4) for row, own in zip(together, alone, strict=True))


def _labels_of(config: Any) -> list[str]:
    return [str(config.id2label[i]) for i in sorted(config.id2label)]


def _is_multi_label(config: Any) -> bool:
    """Whether a text may have several labels at once, or none."""
    return bool(config.num_labels == 1 or config.problem_type == "multi_label_classification")
