"""DebiasingPositions: whether a debiasing prompt helps, and where in the prompt it does (Mattern et al. 2022).

Takes debiasing prompts with placebos, positions, tasks and occupations; asks the same questions with and without the
debiasing texts; gives their effects against both controls, and how far a dialogue attenuates them.
"""

from suites.debiasing.material import DebiasingPrompt
from suites.debiasing.positions import Dialogue, Position
from suites.debiasing.suite import DebiasingPositions

__all__ = ["DebiasingPositions", "DebiasingPrompt", "Dialogue", "Position"]
