"""What people read of an audit: one HTML page, the trend page, and JSON, CSV and Markdown beside them.

Takes an `AuditResult` or a `History`, writes files or prints to a terminal. It computes no figure.
"""

from audit.report.files import Format, write_agreement, write_report, write_trend

__all__ = ["Format", "write_agreement", "write_report", "write_trend"]
