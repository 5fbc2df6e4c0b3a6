"""Text classifiers as backends: they answer `ClassifyRequest` with the probability of each label.

    SequenceClassifier   any sequence classifier of transformers, by hub id or folder
    ProfanityClassifier  a linear model of offensive words (package alt-profanity-check)
    VaderClassifier      a sentiment lexicon (package vaderSentiment)

The last two carry what they need inside their package, for machines that reach no hub. They measure what
their names say, and nothing else: sentiment is not regard, and an offensive word is not toxicity against a person.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from backends.base import Answer, ClassifyRequest, ClassifyResponse, Description, OnResponse, Request
from backends.errors import BackendError, ConfigError
from backends.local.backend import LocalBackend, discard_response
from backends.local.options import need_package
from backends.options import OnError, checked_options

Labels = Mapping[str, float]


def text_classifier(model: str | Path) -> LocalBackend:
    """The text classifier of that name: ``profanity``, ``vader``, or a sequence classifier's hub id or folder.

    A path is always a folder, also where an embedded classifier has its name.
    """
    embedded = {"profanity": ProfanityClassifier, "vader": VaderClassifier}
    if isinstance(model, str) and model in embedded:
        return embedded[model]()
    return SequenceClassifier(str(model))


class _TextClassifier(LocalBackend):
    """What all text classifiers share."""

    batch_size = 64

    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        answers: list[Answer] = [
            BackendError("unsupported", f"a text classifier cannot answer a {type(r).__name__}") for r in batch
        ]
        texts = {i: request.text for i, request in enumerate(batch) if isinstance(request, ClassifyRequest)}
        if texts:
            for i, labels in zip(texts, self._labels(list(texts.values())), strict=True):
                answers[i] = ClassifyResponse(labels)
        return answers

    @abstractmethod
    def _labels(self, texts: list[str]) -> Sequence[Labels]:
        """Probability of each label of each text."""


class SequenceClassifier(_TextClassifier):
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
        Texts in one forward pass at most; they are sorted by length first.

    Texts longer than the model's limit are truncated, as the paper's code does. One label gives a
    sigmoid, and so do several that its configuration calls ``multi_label_classification``; others give
    a softmax.
    """

    @checked_options
    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        device: str = "cpu",
        batch_size: Annotated[int, Field(ge=1), OnError("not a number of texts", "Give 1 or more")] = 32,
    ) -> None:
        super().__init__()
        self.model, self.revision, self.device, self.batch_size = model, revision, device, batch_size
        folder = Path(model).expanduser()
        self._folder = folder if folder.is_dir() else None
        self._loaded: tuple[Any, Any] | None = None

    def check(self) -> None:
        for module in ("torch", "transformers"):
            need_package("classifier", module, "hf")
        self._config()

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
        return Description(fingerprint, frozenset({"classify"}), {"model": self.model})

    def close_blocking(self) -> None:
        self._loaded = None

    def _config(self) -> Any:
        """The model's configuration, read without its weights."""
        from transformers import AutoConfig

        if self._folder is None and ("/" not in self.model or self.model.startswith((".", "/", "~"))):
            raise ConfigError(
                "classifier.model", self.model, "no such folder, and not a hub id", "Give a folder or owner/name"
            )
        try:
            config = AutoConfig.from_pretrained(self._folder or self.model, revision=self.revision)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        if not any("SequenceClassification" in name for name in config.architectures or ()):
            raise ConfigError(
                "classifier.model",
                self.model,
                f"its architecture {config.architectures} is not a sequence classifier",
                "Give a model for text classification",
            )
        return config

    def _unreadable(self, error: Exception) -> ConfigError:
        return ConfigError(
            "classifier.model",
            self.model,
            f"it cannot be read here ({type(error).__name__}): not in the local cache, and the hub gave nothing",
            'Fetch it on a machine with network and give its folder, or use the embedded "profanity" and "vader"',
        )

    def _identity(self, config: Any) -> str:
        """Hash of a folder's files; of a hub model, its id and commit."""
        if self._folder is None:
            return f"{self.model}@{getattr(config, '_commit_hash', None) or self.revision}"
        digest = hashlib.sha256()
        for file in sorted(p for p in self._folder.iterdir() if p.is_file()):
            digest.update(f"{file.name}\n{file.stat().st_size}\n".encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return f"sha256:{digest.hexdigest()}"

    def _labels(self, texts: list[str]) -> list[Labels]:
        import torch

        tokenizer, model = self._load()
        limit = _token_limit(tokenizer, model)
        labels = [str(model.config.id2label[i]) for i in range(model.config.num_labels)]
        answers: list[Labels] = [{}] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            inputs = tokenizer(
                [texts[i] for i in chosen], padding=True, truncation=True, max_length=limit, return_tensors="pt"
            ).to(self.device)
            with torch.inference_mode():
                logits = model(**inputs).logits.double()
            probabilities = logits.sigmoid() if _is_multi_label(model.config) else logits.softmax(-1)
            for i, row in zip(chosen, probabilities.tolist(), strict=True):
                answers[i] = dict(zip(labels, row, strict=True))
        return answers

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            from transformers import AutoModelForSequenceClassification, AutoTokenizer

            source = self._folder or self.model
            try:
                tokenizer = AutoTokenizer.from_pretrained(source, revision=self.revision)
                model = AutoModelForSequenceClassification.from_pretrained(source, revision=self.revision)
            except (OSError, ValueError) as error:
                raise self._unreadable(error) from error
            self._loaded = tokenizer, model.to(self.device).eval()
        return self._loaded


def _labels_of(config: Any) -> list[str]:
    return [str(config.id2label[i]) for i in sorted(config.id2label)]


def _is_multi_label(config: Any) -> bool:
    """Whether a text may have several labels at once, or none."""
    return bool(config.num_labels == 1 or config.problem_type == "multi_label_classification")


def _token_limit(tokenizer: Any, model: Any) -> int:
    """Most tokens that both tokenizer and model take. RoBERTa's position table has two rows that are not positions."""
    positions = getattr(model.config, "max_position_embeddings", 512)
    if model.config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= model.config.pad_token_id + 1
    return int(min(tokenizer.model_max_length, positions))


class _PackagedClassifier(_TextClassifier):
    """A classifier that is contained in a package: the package's version is its identity."""

    device = "cpu"
    _package: str
    _module: str
    _libraries: tuple[str, ...] = ()
    _title: str

    def __init__(self) -> None:
        super().__init__()
        self._score: Callable[[str], Labels] | None = None

    def check(self) -> None:
        need_package("classifier", self._module, "scorers", self._package)

    def describe_blocking(self) -> Description:
        versions = {name: importlib.metadata.version(name) for name in (self._package, *self._libraries)}
        return Description(
            {"backend": "packaged-classifier", **versions}, frozenset({"classify"}), {"model": self._title}
        )

    def close_blocking(self) -> None:
        self._score = None

    def _labels(self, texts: list[str]) -> list[Labels]:
        if self._score is None:
            self._score = self._load()
        return [self._score(text) for text in texts]

    @abstractmethod
    def _load(self) -> Callable[[str], Labels]:
        """A function from a text to its labels."""


class VaderClassifier(_PackagedClassifier):
    """VADER (Hutto and Gilbert 2014): a sentiment lexicon with rules. Sentiment, not regard.

    Labels ``positive``, ``neutral``, ``negative``: the shares of the text's words that fall in
    each, which sum to 1 (rounded to 0.001 by the package). A text without words is neutral.
    """

    _package = "vaderSentiment"
    _module = "vaderSentiment"
    _title = "VADER sentiment lexicon (sentiment, not regard)"

    def _load(self) -> Callable[[str], Labels]:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

        analyzer = SentimentIntensityAnalyzer()

        def score(text: str) -> Labels:
            shares = analyzer.polarity_scores(text)
            nothing = not (shares["pos"] or shares["neg"] or shares["neu"])
            return {
                "positive": shares["pos"],
                "neutral": 1.0 if nothing else shares["neu"],
                "negative": shares["neg"],
            }

        return score


class ProfanityClassifier(_PackagedClassifier):
    """A linear classifier of offensive language (alt-profanity-check). Offensive words, not hate.

    Labels ``offensive`` and ``not offensive``.
    """

    _package = "alt-profanity-check"
    _module = "profanity_check"
    _libraries = ("scikit-learn",)
    _title = "linear model of offensive words (alt-profanity-check; offensive words, not hate)"

    def _load(self) -> Callable[[str], Labels]:
        from profanity_check import predict_prob

        def score(text: str) -> Labels:
            offensive = float(predict_prob([text])[0])
            return {"offensive": offensive, "not offensive": 1 - offensive}

        return score
