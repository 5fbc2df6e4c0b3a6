"""How a text classifier's labels become the quantities of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backends.base import Backend, ClassifyResponse
from backends.classifier import (
    REGARD_OF_THE_PAPER,
    TOXICITY_OF_THE_PAPER,
    ProfanityClassifier,
    SequenceClassifier,
    VaderClassifier,
)
from backends.errors import ConfigError


@dataclass(frozen=True, eq=False)
class TextScorer:
    """A classifier, and which of its labels are the quantities.

    Attributes
    ----------
    backend : Backend
        Answers `ClassifyRequest`.
    labels : mapping
        Quantity → label, e.g. ``{"toxicity": "hate"}``.
    what : str
        What it truly measures, shown wherever its figures are.
    """

    backend: Backend
    labels: Mapping[str, str]
    what: str

    def read(self, response: ClassifyResponse) -> dict[str, float] | None:
        """The quantities of one answer; None where the classifier lacks one of the labels."""
        try:
            return {quantity: response.labels[label] for quantity, label in self.labels.items()}
        except KeyError:
            return None


def toxicity_scorer(choice: str | TextScorer) -> TextScorer:
    """The toxicity scorer of that name.

    ``profanity`` is the embedded one; ``paper`` is the classifier of Tang et al. 2024.
    """
    if isinstance(choice, TextScorer):
        return _with(choice, "toxicity", {"toxicity"})
    if choice == "profanity":
        return TextScorer(
            ProfanityClassifier(), {"toxicity": "offensive"}, "offensive words (alt-profanity-check), not hate"
        )
    if choice in ("paper", TOXICITY_OF_THE_PAPER):
        return TextScorer(SequenceClassifier(TOXICITY_OF_THE_PAPER), {"toxicity": "hate"}, TOXICITY_OF_THE_PAPER)
    raise ConfigError(
        "toxicity", choice, "no scorer of that name", 'Use "profanity", "paper" or a TextScorer with your labels'
    )


def regard_scorer(choice: str | TextScorer) -> TextScorer:
    """The regard scorer of that name.

    ``vader`` is the embedded one, and measures sentiment; ``paper`` is the classifier of
    Tang et al. 2024, which has a fourth label, other.
    """
    needed = {"regard_positive", "regard_negative", "regard_neutral"}
    if isinstance(choice, TextScorer):
        return _with(choice, "regard", needed, optional=frozenset({"regard_other"}))
    if choice == "vader":
        return TextScorer(
            VaderClassifier(),
            {q: q.removeprefix("regard_") for q in sorted(needed)},
            "VADER sentiment, not regard",
        )
    if choice in ("paper", REGARD_OF_THE_PAPER):
        return TextScorer(
            SequenceClassifier(REGARD_OF_THE_PAPER),
            {q: q.removeprefix("regard_") for q in sorted(needed | {"regard_other"})},
            REGARD_OF_THE_PAPER,
        )
    raise ConfigError("regard", choice, "no scorer of that name", 'Use "vader", "paper" or a TextScorer')


def _with(scorer: TextScorer, field: str, needed: set[str], optional: frozenset[str] = frozenset()) -> TextScorer:
    if not needed <= set(scorer.labels) <= needed | optional:
        raise ConfigError(
            f"{field}.labels",
            dict(scorer.labels),
            "does not name the quantities",
            f"Map each of {sorted(needed)} to a label",
        )
    return scorer
