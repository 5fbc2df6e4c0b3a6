"""What people read: the HTML report, the trend page, and files such as JSON, CSV and Markdown.

Takes an `AuditResult` or a `History`, and writes files or prints to a terminal. It computes no figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.report.files import Format, write_report, write_trend

__all__ = ["Format", "write_report", "write_trend"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from audit.report import files

        return getattr(files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
