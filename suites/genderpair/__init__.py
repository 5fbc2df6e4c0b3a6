"""GenderPair: which of two descriptors a model picks for a gender target, and what it writes (Tang et al. 2024).

Takes pair sets and text scorers; asks for texts and for their scores; gives bias-pair ratios, position effects,
toxicity and regard by gender group, and the scorers' own bias.
"""

from suites.common.text_scorer import TextScorer
from suites.genderpair.suite import GenderPair

__all__ = ["GenderPair", "TextScorer"]
