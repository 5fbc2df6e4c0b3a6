"""The HTML pages: the report of a run, the trend of figures over the runs, how benchmarks agree over models,
and one sheet for a technical file.

Takes an `AuditResult`, a `History` or an `Agreement`, gives one file's text that needs no network.
"""
