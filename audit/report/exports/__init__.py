"""Results and gate reports for other programs: JSON, CSV, LaTeX, Markdown, JUnit XML, and other tools' formats.

Takes an `AuditResult` or a `GateReport`, gives texts.
"""
