"""One SQLite file that keeps every answer, run and baseline."""
