"""Did the model get worse? Checks a run against a stored baseline, and against absolute limits.

Takes two results and their rows, margins and limits; gives a `GateReport` of decisions: categories and numbers.
`audit.report` formats it as JSON, JUnit XML or Markdown.
"""
