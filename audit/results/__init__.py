"""The results of an audit: figures, comparisons, and the facts needed to trust them.

Plain data with a JSON form. Reports and gates read it and recompute nothing.
"""

from __future__ import annotations

from audit.results.audit_result import (
    LITTLE_COVERAGE,
    NOT_ASKED,
    AuditResult,
    AuditSource,
    DataQuality,
    Example,
    IdentityProblem,
    ModelInfo,
    PromptCoverage,
    SelfCheck,
    SuiteInfo,
    UntilDecided,
)
from audit.results.comparisons import (
    VERDICT_WORDS,
    AttributionStep,
    Comparison,
    OpenBecause,
    Rank,
    Ranking,
    Rung,
    Verdict,
)
from audit.results.figures import (
    REPORT_KEYS,
    Agreement,
    FigureKey,
    FigureName,
    Measure,
    OfItems,
    Reported,
    Reproduction,
    VarianceComponents,
    Where,
    level_key,
    where_key,
    writable,
)
from audit.results.gates import (
    HIDDEN,
    OPEN_VERDICTS,
    Check,
    GatedFigure,
    GateReport,
    GateVerdict,
    LimitCheck,
    LimitVerdict,
    Obstacle,
    OpenFails,
)
