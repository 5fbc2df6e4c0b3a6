"""MGBR: whether occupations mislead a model that counts gendered words (Kaneko et al. 2024).

Takes word lists and the wording of its prompts; asks for counts, by likelihood or generation; gives accuracy, bias
scores, and how they change between prompting conditions.
"""

from suites.mgbr.suite import MGBR

__all__ = ["MGBR"]
