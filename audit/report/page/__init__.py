"""The HTML pages: the report of a run, and the trend of figures over the runs.

Takes an `AuditResult` or a `History`, gives one file's text that needs no network.
"""

from audit.report.page.report_page import report_page
from audit.report.page.trend_page import trend_page

__all__ = ["report_page", "trend_page"]
