"""From stored answers to measures, comparisons, rankings, engine noise, gate decisions and histories.

Takes the store (reading only) and a suite's specifications, gives the values of `audit.results` and of
`gate.results` and `history`: kinds and numbers, no sentences. The parts are imported from their modules,
so that a caller loads only what it needs.
"""
