"""The HTML pages: the report of a run, the trend of figures over the runs, how benchmarks agree over models,
and one sheet for a technical file.

Takes an `AuditResult`, a `History` or an `Agreement`, gives one file's text that needs no network.
"""

from audit.report.page.agreement_page import agreement_page
from audit.report.page.certificate import certificate
from audit.report.page.notebook import result_html
from audit.report.page.rendering import render_sheet
from audit.report.page.report_page import report_page
from audit.report.page.trend_page import trend_page

__all__ = ["agreement_page", "certificate", "render_sheet", "report_page", "result_html", "trend_page"]
