"""OccuGender: which gender a model associates with an occupation (Chen et al. 2025).

Takes templates, occupations, expressions and debiasing instructions; asks for the probabilities of the expressions;
gives the probability of each group, the stereotype gap, and the effects of the instructions.
"""

from suites.occugender.material import (
    BIASES,
    OwnTemplates,
    occugender_expressions,
    occugender_instructions,
    occugender_templates,
)
from suites.occugender.suite import OccuGender

__all__ = [
    "BIASES",
    "OccuGender",
    "OwnTemplates",
    "occugender_expressions",
    "occugender_instructions",
    "occugender_templates",
]
