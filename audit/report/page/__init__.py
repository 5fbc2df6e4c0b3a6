"""The HTML pages: the report of a run, the trend of figures over the runs, and one sheet for a technical file.

Takes an `AuditResult` or a `History`, gives one file's text that needs no network.
"""
