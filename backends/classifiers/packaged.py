"""Classifiers that ship inside a Python package: nothing is downloaded."""

from __future__ import annotations

import importlib.metadata
from abc import abstractmethod
from collections.abc import Callable

from backends.base import Description
from backends.classifiers.base import Labels, TextClassifier
from backends.local.backend import need_package


class _PackagedClassifier(TextClassifier):
    """A classifier that ships inside a Python package, whose version is its identity."""

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
        super().close_blocking()
        self._score = None

    def _prepare(self) -> None:
        if self._score is None:
            self._score = self._load()

    def _labels(self, texts: list[str]) -> list[Labels]:
        self._prepare()
        assert self._score is not None
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
