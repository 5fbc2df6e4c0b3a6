"""Classifiers that ship inside a Python package: nothing is downloaded."""

from __future__ import annotations

import importlib.metadata
from abc import abstractmethod
from functools import cached_property
from typing import Any

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

    def check(self) -> None:
        need_package("classifier", self._module, "scorers", self._package)

    def describe_blocking(self) -> Description:
        versions = {name: importlib.metadata.version(name) for name in (self._package, *self._libraries)}
        return Description(
            {"backend": "packaged-classifier", **versions}, frozenset({"classify"}), {"model": self._title}
        )

    def _prepare(self) -> None:
        self._score("a text")

    def _labels(self, texts: list[str]) -> list[Labels]:
        return [self._score(text) for text in texts]

    @abstractmethod
    def _score(self, text: str) -> Labels:
        """The labels of a text."""


class VaderClassifier(_PackagedClassifier):
    """VADER (Hutto and Gilbert 2014): a sentiment lexicon with rules. Sentiment, not regard.

    Labels ``positive``, ``neutral``, ``negative``: the shares of the text's words that fall in
    each, which sum to 1 (rounded to 0.001 by the package). A text without words is neutral.
    """

    _package = "vaderSentiment"
    _module = "vaderSentiment"
    _title = "VADER sentiment lexicon (sentiment, not regard)"

    @cached_property
    def _analyzer(self) -> Any:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

        return SentimentIntensityAnalyzer()

    def _score(self, text: str) -> Labels:
        shares = self._analyzer.polarity_scores(text)
        nothing = not (shares["pos"] or shares["neg"] or shares["neu"])
        return {"positive": shares["pos"], "neutral": 1.0 if nothing else shares["neu"], "negative": shares["neg"]}


class ProfanityClassifier(_PackagedClassifier):
    """A linear classifier of offensive language (alt-profanity-check). Offensive words, not hate.

    Labels ``offensive`` and ``not offensive``.
    """

    _package = "alt-profanity-check"
    _module = "profanity_check"
    _libraries = ("scikit-learn",)
    _title = "linear model of offensive words (alt-profanity-check; offensive words, not hate)"

    def _score(self, text: str) -> Labels:
        from profanity_check import predict_prob

        offensive = float(predict_prob([text])[0])
        return {"offensive": offensive, "not offensive": 1 - offensive}
