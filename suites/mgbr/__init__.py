"""MGBR: whether occupations mislead a model that counts gendered words (Kaneko et al. 2024).

Takes word lists and the wording of its prompts; asks for counts, by likelihood or in writing; gives accuracy, bias
scores and their changes from one way of asking to another.
"""

from suites.mgbr.suite import MGBR

__all__ = ["MGBR"]
