"""One run from start to end: it asks what the store does not hold yet, evaluates the answers, and stores the result.

Takes a config, gives an `AuditResult`. Everything it is made of lies in `audit.collect`, `audit.store` and
`audit.analysis`.
"""

from __future__ import annotations

from audit.run.audit_run import run_audit

__all__ = ["run_audit"]
