"""Before anything is asked: a config is made ready, tried on made-up answers, and its cost and power are told.

Takes a checked config; gives described backends with sampled items (`resolve`), mistakes of suites (`rehearsal`), and
requests, cost and what the items could find (`forecast`). Asks no model.
"""
