"""Audits at set times, and a journal of what came of each."""
