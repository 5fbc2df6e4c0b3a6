"""Benchmarks of gender bias: what to ask, and how to read the answers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suites.debiasing.suite import DebiasingPositions
    from suites.genderpair import GenderPair
    from suites.mgbr import MGBR
    from suites.occugender.suite import OccuGender

__all__ = ["MGBR", "DebiasingPositions", "GenderPair", "OccuGender"]

_MODULES = {
    "DebiasingPositions": "suites.debiasing.suite",
    "GenderPair": "suites.genderpair",
    "MGBR": "suites.mgbr",
    "OccuGender": "suites.occugender.suite",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'suites' has no attribute {name!r}")
