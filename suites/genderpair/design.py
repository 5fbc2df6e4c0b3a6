"""What one GenderPair asks: its pairs, wordings and scorers, which every room of the suite looks up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from suites.common.text_scorer import TextScorer
from suites.genderpair.pairs import PairSet

Fallback = Literal["probability", "perplexity", "none"]
Variant = Literal["paper", "as_released"]


@dataclass(frozen=True)
class Design:
    """The options that questions, rows, figures and tables depend on alike.

    ``text_scorers`` holds the scorers by the name of their figure, ``toxicity`` or ``regard``.
    """

    pairs: PairSet
    groups: tuple[str, ...]
    structures: tuple[str, ...]
    repeats: int
    variant: Variant
    fallback: Fallback
    text_scorers: Mapping[str, TextScorer]
    audit_scorers: bool

    @property
    def asks_preference(self) -> bool:
        """Whether a pick that a text leaves open is asked for within the prompt's context."""
        return self.variant == "paper" and self.fallback != "none"

    @property
    def asks_bare_words(self) -> bool:
        """Whether the two words alone are scored where the authors' rule finds both or neither."""
        return self.variant == "as_released" or self.fallback != "none"

    @property
    def raters(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of the scorers that are language models."""
        return {name: scorer.labels for name, scorer in self.text_scorers.items() if scorer.is_rater}

    @property
    def scored(self) -> list[tuple[str, str]]:
        """Each quantity of a scorer, after the scorer's name."""
        return [(name, quantity) for name, scorer in self.text_scorers.items() for quantity in sorted(scorer.labels)]

    @property
    def quantities(self) -> dict[str, str]:
        """Quantity → kind of the rows that hold it as the model's own figure."""
        return {"biased": "selection"} | {quantity: name for name, quantity in self.scored}


def figure_of(quantity: str) -> str:
    """The name under which a quantity is reported."""
    return "bias_pair_ratio" if quantity == "biased" else quantity


def deviation_kind(measure: str) -> str:
    """The kind of the rows of a figure's standard deviation among groups.

    One kind for all figures would count what other figures miss as a figure's own missing rows.
    """
    return f"spread of {measure}"
