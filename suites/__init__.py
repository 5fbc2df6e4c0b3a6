"""Benchmarks of bias, of gender or of any groups: what to ask, and how to read the answers.

A suite takes options and gives items (requests with the factors of their design). It turns each answer into a row of
numbers, and rows into the figures to report. Importing this package loads no suite: each is imported when first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suites.base import Suite as Suite
    from suites.benchmarks import BBQ, BOLD, EEC, BiasNLI, CrowSPairs, GeneralAbility, StereoSet, WinoBias, WinoQueer
    from suites.common.text_scorer import TextScorer as TextScorer
    from suites.common.text_scorer import shipped_scorers as shipped_scorers
    from suites.custom import from_file as from_file
    from suites.custom import labelled_texts as labelled_texts
    from suites.custom import suite_schema as suite_schema
    from suites.debiasing import DebiasingPositions
    from suites.genderpair import GenderPair
    from suites.mgbr import MGBR
    from suites.occugender import OccuGender

__all__ = [
    "BBQ",
    "BOLD",
    "EEC",
    "MGBR",
    "BiasNLI",
    "CrowSPairs",
    "DebiasingPositions",
    "GenderPair",
    "GeneralAbility",
    "OccuGender",
    "StereoSet",
    "WinoBias",
    "WinoQueer",
]

_MODULES = {
    "suites.base": ("Suite",),
    "suites.common.text_scorer": ("TextScorer", "shipped_scorers"),
    "suites.custom": ("from_file", "labelled_texts", "suite_schema"),
    "suites.debiasing": ("DebiasingPositions",),
    "suites.genderpair": ("GenderPair",),
    "suites.mgbr": ("MGBR",),
    "suites.occugender": ("OccuGender",),
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), "suites.benchmarks")
    if module == "suites.benchmarks" and name not in __all__:
        raise AttributeError(f"module 'suites' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
