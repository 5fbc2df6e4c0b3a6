"""Compares models: paired differences, decisions about them, and the effect of changing a model.

Takes the rows of two or more models; gives comparisons, rankings, steps of a ladder, engine noise and agreement.
"""
