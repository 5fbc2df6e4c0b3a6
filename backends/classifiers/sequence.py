"""A sequence classifier of transformers."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from backends.base import Description
from backends.classifiers.base import Labels, TextClassifier
from backends.errors import ConfigError
from backends.local.backend import check_named, need_package
from backends.options import OnError, checked_options

if TYPE_CHECKING:
    from backends.transformers.loading import HubCommit

#: What needs no hub.
_EMBEDDED = 'use the embedded "profanity" and "vader"'


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

    Texts longer than the model's limit are truncated, as the paper's code does. A single label goes through a
    sigmoid, and so do several if the configuration says ``multi_label_classification``; otherwise a softmax is used.
    A model whose outputs change with padding, or that has no padding token, reads one text at a time; this is tested
    when the model is loaded.
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
        self.model, self.revision, self.device, self.batch_size = model, revision, device, batch_size
        folder = Path(model).expanduser()
        self._folder = folder if folder.is_dir() else None
        self._loaded: _Loaded | None = None
        self._commit: HubCommit | None = None

    def check(self) -> None:
        check_named("classifier.model", self.model, "Give a folder or owner/name")
        for module in ("torch", "transformers"):
            need_package("classifier.model", module, "hf", given=self.model)
        from backends.transformers.placement import check_device
        from backends.transformers.weights_fit import has_tokenizer

        check_device(str(self.device))
        self._config()
        if self._folder is not None and not has_tokenizer(self._folder):  # transformers would make an empty one
            hint = "Copy tokenizer.json and tokenizer_config.json from the model that it was made of"
            raise ConfigError("classifier.model", self.model, "a folder without a tokenizer", hint)

    def label_names(self) -> list[str]:
        """The names of its labels, from its configuration alone. Raises `ConfigError` where there is none."""
        self.check()
        return _labels_of(self._config())

    def describe_blocking(self) -> Description:
        config = self._config()
        fingerprint: dict[str, str | int | float | bool | None] = {
            "backend": "sequence-classifier",
            "model": self._identity(config),
            "labels": json.dumps(_labels_of(config)),
            "transformers": importlib.metadata.version("transformers"),
            "torch": importlib.metadata.version("torch"),
        }
        if _is_multi_label(config):
            fingerprint["activation"] = "sigmoid"
        said = () if self._commit is None or not self._commit.statement else (self._commit.statement,)
        return Description(fingerprint, frozenset({"classify"}), {"model": self.model}, statements=said)

    def close_blocking(self) -> None:
        super().close_blocking()
        self._loaded = self._commit = None

    def _config(self) -> Any:
        """The model's configuration, read without its weights."""
        from transformers import AutoConfig

        if self._folder is None and ("/" not in self.model or self.model.startswith((".", "/", "~"))):
            raise ConfigError(
                "classifier.model", self.model, "no such folder, and not a hub id", "Give a folder or owner/name"
            )
        options = self._options()
        with self._loading("its config.json"):
            config = AutoConfig.from_pretrained(self._folder or self.model, **options)
        if not any("SequenceClassification" in name for name in config.architectures or ()):
            raise ConfigError(
                "classifier.model",
                self.model,
                f"its architecture {config.architectures} is not a sequence classifier",
                "Give a model for text classification",
            )
        labels = _labels_of(config)
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ConfigError(
                "classifier.model", self.model, f"several labels are called {twice[0]!r}", "Make id2label unique"
            )
        return config

    def _options(self) -> dict[str, Any]:
        """Arguments for ``from_pretrained``: of a hub id the commit, found once."""
        if self._folder is not None:
            return {}
        if self._commit is None:
            from backends.transformers.loading import find_commit

            self._commit = find_commit("classifier.model", self.model, self.revision, instead=_EMBEDDED)
        return self._commit.options

    def _loading(self, what: str) -> AbstractContextManager[None]:
        from backends.transformers.loading import loading

        hint = "Give a whole classifier of transformers"
        return loading("classifier.model", self.model, what, hint, instead=_EMBEDDED)

    def _check_weights(self, model: Any, found: dict[str, Any]) -> None:
        """Raise `ConfigError` for missing weights, which transformers would draw at random: so would be the labels."""
        from backends.transformers.loading import snapshot_of
        from backends.transformers.weights_fit import misfit_of_weights

        folder = self._folder or snapshot_of(self.model, str(self._options()["revision"]))
        if (misfit := misfit_of_weights(model, found, folder)) is not None:
            problem, hint = misfit
            whole = "Give a whole classifier, its head included" if "would be random" in problem else hint
            raise ConfigError("classifier.model", self.model, problem, f"{whole}, or {_EMBEDDED}")

    def _identity(self, config: Any) -> str:
        """A hash over a folder's files; for a hub model, its id and commit."""
        if self._folder is None:
            return f"{self.model}@{self._options()['revision']}"
        digest = hashlib.sha256()
        for file in sorted(p for p in self._folder.iterdir() if p.is_file()):
            digest.update(f"{file.name}\n{file.stat().st_size}\n".encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return f"sha256:{digest.hexdigest()}"

    def _labels(self, texts: list[str]) -> list[Labels]:
        classifier = self._load()
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
        self._load()

    def _load(self) -> _Loaded:
        if self._loaded is None:
            from transformers import AutoModelForSequenceClassification, AutoTokenizer

            from backends.transformers.loading import options_of_weights, quiet

            source, options = self._folder or self.model, self._options()
            with self._loading("the classifier"), quiet():
                tokenizer = AutoTokenizer.from_pretrained(source, **options)
                model, found = AutoModelForSequenceClassification.from_pretrained(
                    source,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # told by `_check_weights`
                    **options_of_weights(options),
                )
            self._check_weights(model, found)
            self._loaded = _Loaded(tokenizer, model.to(self.device).eval())
        return self._loaded


#: What configurations call the longest input; MPT's position biases end there although it has no embedding of them.
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")
_USUAL_LENGTH = 512


class _Loaded:
    """A classifier in memory, and whether it can be given several texts at once."""

    def __init__(self, tokenizer: Any, model: Any) -> None:
        self.model, self._tokenizer = model, tokenizer
        self._limit = _token_limit(tokenizer, model)
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
        rounding = 1e-4 if self.model.dtype.itemsize == 4 else 0.02
        return all(bool((row - own).abs().max() < rounding) for row, own in zip(together, alone, strict=True))


def _labels_of(config: Any) -> list[str]:
    return [str(config.id2label[i]) for i in sorted(config.id2label)]


def _is_multi_label(config: Any) -> bool:
    """Whether a text may have several labels at once, or none."""
    return bool(config.num_labels == 1 or config.problem_type == "multi_label_classification")


def _token_limit(tokenizer: Any, model: Any) -> int:
    """The longest input, in tokens, that both tokenizer and model accept."""
    config = model.config.get_text_config()
    named = [getattr(config, name, None) for name in _LENGTHS]
    positions = min((n for n in named if isinstance(n, int) and n > 0), default=_USUAL_LENGTH)
    for name, table in model.named_modules():
        # In RoBERTa and its kin positions are counted from the padding token's row on.
        if name.endswith("position_embeddings") and getattr(table, "padding_idx", None) is not None:
            positions = min(positions, table.num_embeddings - table.padding_idx - 1)
    return int(min(tokenizer.model_max_length, positions))
