"""Turns stored answers into measures, comparisons, rankings, engine noise, gate decisions and histories.

Takes the store (read-only) and a suite's specifications; gives the values of `audit.results` and `history`: categories
and numbers, no sentences. Import the parts from their modules, so that a caller loads only what it needs.
"""
