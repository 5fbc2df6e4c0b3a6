"""What statistics stand on: one row per answer, and how rows belong together.

Takes stored answers; gives parsed responses, a table of their quantities, its strata and sampled factors, bounds for
what is missing, and examples to show. Computes no estimate.
"""
