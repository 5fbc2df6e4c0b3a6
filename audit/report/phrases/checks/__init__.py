"""Sentences about what was checked: gate, limits, a suite's rehearsal, a server's self-checks, forecasts, parts."""
