"""How a text classifier's labels become the quantities of a suite."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.base import Backend, ClassifyResponse
from backends.classifiers import (
    REGARD_OF_THE_PAPER,
    TOXICITY_OF_THE_PAPER,
    ProfanityClassifier,
    SequenceClassifier,
    VaderClassifier,
)
from backends.errors import ConfigError

#: What classifiers call the label that is toxicity. Two of them in one classifier leave it open.
_TOXIC = frozenset({"toxic", "toxicity", "hate", "hateful", "hate speech", "hate_speech", "hatespeech"})


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


def toxicity_scorer(choice: str | Path | TextScorer) -> TextScorer:
    """The toxicity scorer of that name.

    ``profanity`` is the embedded one; ``paper`` is the classifier of Tang et al. 2024. A folder or an
    id with "/" is any sequence classifier with one label of a name like "toxic" or "hate".
    """
    if isinstance(choice, TextScorer):
        return _with(choice, "toxicity", {"toxicity"})
    if choice == "profanity":
        return TextScorer(
            ProfanityClassifier(), {"toxicity": "offensive"}, "offensive words (alt-profanity-check), not hate"
        )
    if choice in ("paper", TOXICITY_OF_THE_PAPER):
        return TextScorer(SequenceClassifier(TOXICITY_OF_THE_PAPER), {"toxicity": "hate"}, TOXICITY_OF_THE_PAPER)
    if _names_a_classifier(choice):
        return _classifier("toxicity", choice, {"toxicity": _TOXIC})
    raise ConfigError(
        "toxicity",
        choice,
        "no scorer of that name",
        'Use "profanity", "paper", a classifier\'s id (owner/name) or folder, or a TextScorer with your labels',
    )


def regard_scorer(choice: str | Path | TextScorer) -> TextScorer:
    """The regard scorer of that name.

    ``vader`` is the embedded one, and measures sentiment; ``paper`` is the classifier of
    Tang et al. 2024, which has a fourth label, other. A folder or an id with "/" is any sequence
    classifier with the labels positive, negative and neutral.
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
    if _names_a_classifier(choice):
        return _classifier("regard", choice, {q: {q.removeprefix("regard_")} for q in sorted(needed)})
    raise ConfigError(
        "regard",
        choice,
        "no scorer of that name",
        'Use "vader", "paper", a classifier\'s id (owner/name) or folder, or a TextScorer with your labels',
    )


def _names_a_classifier(choice: object) -> bool:
    if isinstance(choice, str) and "/" in choice:
        return True
    return isinstance(choice, str | Path) and choice != "" and Path(choice).expanduser().is_dir()


def _classifier(field: str, choice: str | Path, names: Mapping[str, Collection[str]]) -> TextScorer:
    """A sequence classifier whose labels tell by their names which quantity each is."""
    model = str(choice)
    backend = SequenceClassifier(model)
    try:
        labels = backend.label_names()
    except ConfigError as error:
        raise error.within(field) from error
    found = {quantity: [label for label in labels if label.casefold() in known] for quantity, known in names.items()}
    if any(len(some) != 1 for some in found.values()):
        raise ConfigError(
            field,
            model,
            f"its labels {labels} do not tell which one is {' or '.join(names)}",
            "Pass a TextScorer that maps each quantity to a label",
        )
    # A folder by its name alone: its weights are in the fingerprint, and where it lies measures nothing.
    what = Path(model).name if Path(model).expanduser().is_dir() else model
    return TextScorer(backend, {quantity: label for quantity, (label,) in found.items()}, what)


def _with(scorer: TextScorer, field: str, needed: set[str], optional: frozenset[str] = frozenset()) -> TextScorer:
    if not needed <= set(scorer.labels) <= needed | optional:
        raise ConfigError(
            f"{field}.labels",
            dict(scorer.labels),
            "does not name the quantities",
            f"Map each of {sorted(needed)} to a label",
        )
    return scorer
