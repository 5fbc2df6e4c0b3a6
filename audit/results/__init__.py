"""The results of an audit: figures, comparisons, and the facts needed to trust them.

Plain data with a JSON form. Reports and gates read it and recompute nothing.
"""

from __future__ import annotations

from audit.results.answers import (
    LITTLE_COVERAGE,
    NOT_ASKED,
    DataQuality,
    Example,
    IdentityProblem,
    ModelInfo,
    PromptCoverage,
    SelfCheck,
    SuiteInfo,
)
from audit.results.audit_result import AuditResult, AuditSource, UntilDecided
from audit.results.comparisons import VERDICT_WORDS, Comparison, Decided, OpenBecause, Rank, Ranking, Verdict
from audit.results.figures import (
    REPORT_KEYS,
    FigureKey,
    FigureName,
    OfItems,
    Reported,
    Where,
    level_key,
    where_key,
    writable,
)
from audit.results.limits import (
    HIDDEN,
    OPEN_VERDICTS,
    LimitCheck,
    LimitVerdict,
)
from audit.results.measures import Agreement, Measure, Reproduction, VarianceComponents
from audit.results.steps import AttributionStep, EngineDrift, ItemChange, PromptDrift, Rung

__all__ = [
    "HIDDEN",
    "LITTLE_COVERAGE",
    "NOT_ASKED",
    "OPEN_VERDICTS",
    "REPORT_KEYS",
    "VERDICT_WORDS",
    "Agreement",
    "AttributionStep",
    "AuditResult",
    "AuditSource",
    "Comparison",
    "DataQuality",
    "Decided",
    "EngineDrift",
    "Example",
    "FigureKey",
    "FigureName",
    "IdentityProblem",
    "ItemChange",
    "LimitCheck",
    "LimitVerdict",
    "Measure",
    "ModelInfo",
    "OfItems",
    "OpenBecause",
    "PromptCoverage",
    "PromptDrift",
    "Rank",
    "Ranking",
    "Reported",
    "Reproduction",
    "Rung",
    "SelfCheck",
    "SuiteInfo",
    "UntilDecided",
    "VarianceComponents",
    "Verdict",
    "Where",
    "level_key",
    "where_key",
    "writable",
]
