"""How models stand to each other: paired differences, their decisions, and what a change of a model does.

Takes the rows of two models or more, gives comparisons, rankings, steps of a ladder, engine noise and agreement.
"""
