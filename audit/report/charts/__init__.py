"""The plots: Vega-Lite specifications, and the rows each of their panels draws.

Takes `Figures`, or a `History`, gives `Plot` values that a page draws; computes places and axes, no figure.
"""
