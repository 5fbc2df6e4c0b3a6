"""A result in experiment trackers: MLflow, Weights & Biases, OpenTelemetry (extras of these names).

Takes an `AuditResult` and hands its figures to a tracker, as its own environment variables or calls configure that.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Literal, get_args

from audit.results import AuditResult
from backends.errors import ConfigError

Tracker = Literal["mlflow", "wandb", "opentelemetry"]


def log_result(result: AuditResult, tracker: Tracker, project: str = "bias-audit") -> str:
    """Log a result: a run or span for the audit, and one for each model. Returns where to find it.

    ``project`` is MLflow's experiment, W&B's project or the tracer's name. Figures known only by bounds have no value
    there: they are left out, never 0. Figures of single levels of a factor are left out.

    Raises
    ------
    ConfigError
        When there is no such tracker, or it is not installed.
    """
    known = get_args(Tracker)
    if tracker not in known:
        raise ConfigError("tracker", tracker, "unknown", f"Use {', '.join(known)}")
    try:
        module = importlib.import_module(f"audit.report.trackers.to_{tracker}")
    except ImportError as error:
        hint = f'pip install "bias-audit[{tracker}]"'
        raise ConfigError("tracker", tracker, f"cannot be imported ({error})", hint) from None
    log: Callable[[AuditResult, str], str] = module.log
    return log(result, project)
