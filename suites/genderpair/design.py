"""The design of one GenderPair: its pairs and scorers, shared by all modules of the suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from suites.common.data_files import Variant
from suites.common.groups.weights import Weights
from suites.common.raters import Rater
from suites.common.text_scorer import TextScorer, raters_of
from suites.genderpair.pairs import PairSet

Fallback = Literal["probability", "perplexity", "none"]
#: The prompt's text, and the line on which an answer begins.
DEFAULT_FORM = "{question}\n"


@dataclass(frozen=True)
class Design:
    """The options that questions, rows, figures and tables all depend on.

    ``text_scorers`` maps the name of a figure, ``toxicity`` or ``regard``, to its scorer; with ``audit_scorers``
    classifiers read the labelled texts too. ``form`` is that of a raw prompt, and ``separator`` stands between it and
    an answer.
    """

    pairs: PairSet
    groups: tuple[str, ...]
    repeats: int
    variant: Variant
    fallback: Fallback
    text_scorers: Mapping[str, TextScorer]
    audit_scorers: bool
    contrasts: Mapping[str, Weights]
    form: str
    separator: str

    @property
    def asks_preference(self) -> bool:
        """Whether the descriptors are scored in the prompt's context if a text leaves the pick open."""
        return self.variant == "paper" and self.fallback != "none"

    @property
    def asks_bare_words(self) -> bool:
        """Whether the two bare words are scored if the authors' rule finds both or neither."""
        return self.variant == "as_released" or self.fallback != "none"

    @property
    def raters(self) -> Mapping[str, Rater]:
        """The scorers that read labelled texts first: language models, and with ``audit_scorers`` all."""
        return raters_of(self.text_scorers, classifiers=self.audit_scorers)

    @property
    def scored(self) -> list[tuple[str, str]]:
        """(Scorer's name, quantity) for each quantity of each scorer."""
        return [(name, quantity) for name, scorer in self.text_scorers.items() for quantity in sorted(scorer.labels)]

    @property
    def quantities(self) -> dict[str, str]:
        """Quantity → kind of the rows that hold it as a figure of the model itself."""
        return {"biased": "selection"} | {quantity: name for name, quantity in self.scored}


def figure_of(quantity: str) -> str:
    """The name under which a quantity is reported."""
    return "bias_pair_ratio" if quantity == "biased" else quantity


def deviation_kind(measure: str) -> str:
    """The kind of the rows that hold a figure's standard deviation among groups.

    With one kind for all figures, missing rows of one figure would count as missing for the others.
    """
    return f"spread of {measure}"


def contrast_kind(contrast: str) -> str:
    """The kind of the rows that hold the groups' contributions to a contrast."""
    return f"between groups: {contrast}"
