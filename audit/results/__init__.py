"""What an audit gives: figures, comparisons, and what is needed to trust them.

Plain data with a JSON form. Reports and gates read it and compute nothing of it again.
"""

from __future__ import annotations

from audit.results.answers import DataQuality, Example, ModelInfo, SelfCheck, SuiteInfo
from audit.results.audit_result import AuditResult, UntilDecided, renamed_quantities
from audit.results.comparisons import VERDICT_WORDS, Comparison, OpenBecause, Rank, Ranking, Verdict
from audit.results.figures import FigureKey, FigureName, OfFigure, Reported, Scalar, Where, level_key, where_key
from audit.results.measures import Agreement, Measure, Reproduction, VarianceComponents
from audit.results.older import RENAMED_MEASURES, renamed_row
from audit.results.steps import AttributionStep, EngineDrift, ItemChange, PromptDrift, Rung

__all__ = [
    "RENAMED_MEASURES",
    "VERDICT_WORDS",
    "Agreement",
    "AttributionStep",
    "AuditResult",
    "Comparison",
    "DataQuality",
    "EngineDrift",
    "Example",
    "FigureKey",
    "FigureName",
    "ItemChange",
    "Measure",
    "ModelInfo",
    "OfFigure",
    "OpenBecause",
    "PromptDrift",
    "Rank",
    "Ranking",
    "Reported",
    "Reproduction",
    "Rung",
    "Scalar",
    "SelfCheck",
    "SuiteInfo",
    "UntilDecided",
    "VarianceComponents",
    "Verdict",
    "Where",
    "level_key",
    "renamed_quantities",
    "renamed_row",
    "where_key",
]
