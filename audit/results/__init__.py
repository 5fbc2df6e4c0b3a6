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
from audit.results.comparisons import (
    HIDDEN,
    OPEN_VERDICTS,
    VERDICT_WORDS,
    Comparison,
    Decided,
    LimitCheck,
    LimitVerdict,
    OpenBecause,
    Rank,
    Ranking,
    Verdict,
)
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
from audit.results.measures import Agreement, Measure, Reproduction, VarianceComponents
from audit.results.steps import AttributionStep, Rung
