"""Audit language models for bias: ask models, store answers, compare figures, report.

`Audit` takes models and suites and gives a `StoredResult`; `load_audit` reads one from a config file, `load_result` a
result from a store; with a `RayExecutor` an audit's local models compute on a Ray cluster. They are imported when they
are first named, so that a Ctrl-C meets no half-imported program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.api.audits import Audit, StoredResult, load_audit, load_result
    from audit.collect.executors.ray import RayExecutor

__all__ = ["Audit", "RayExecutor", "StoredResult", "load_audit", "load_result"]


def __getattr__(name: str) -> Any:
    if name == "RayExecutor":
        from audit.collect.executors.ray import RayExecutor

        return RayExecutor
    if name in __all__:
        from audit.api import audits

        return getattr(audits, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
