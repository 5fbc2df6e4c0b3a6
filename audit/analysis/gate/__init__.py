"""Did the model get worse? Checks a run against a stored baseline, and against absolute limits."""
