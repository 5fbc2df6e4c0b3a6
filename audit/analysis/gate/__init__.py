"""Did it get worse? A run against a stored baseline, and against absolute limits.

Takes two results and their rows, margins and limits; gives a `GateReport` of decisions: kinds and numbers. How it is
told, as JSON, JUnit XML or Markdown, is `audit.report`'s.
"""
