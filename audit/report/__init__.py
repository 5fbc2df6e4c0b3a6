"""What people read: the HTML report, the trend page, and files such as JSON, CSV and Markdown.

Takes an `AuditResult` or a `History`, and writes files or prints to a terminal. It computes no figures.
"""

from audit.report.files import Format, write_agreement, write_report, write_trend

__all__ = ["Format", "write_agreement", "write_report", "write_trend"]
