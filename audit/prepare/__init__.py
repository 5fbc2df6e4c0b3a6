"""Before anything is asked: a config is resolved, tried on made-up answers, and its cost and power are estimated.

Takes a checked config; gives described backends with sampled items (`resolve`), mistakes of suites (`rehearsal`), and
requests, cost and what the items could find (`forecast`). Asks no model.
"""
