"""The plots: Vega-Lite specifications, and the rows each of their panels draws.

Takes `Figures`, or a `History`, gives `Plot` values that a page draws; computes places and axes, no figure.
"""

from audit.report.charts.components import components_plot
from audit.report.charts.differences import drift_plot, forest_plot, ladder_plot, noise_plot
from audit.report.charts.plots import FigureTable, Plot
from audit.report.charts.suite_charts import headline_plot, suite_plots
from audit.report.charts.trend import time_ends, trend_pictures

__all__ = [
    "FigureTable",
    "Plot",
    "components_plot",
    "drift_plot",
    "forest_plot",
    "headline_plot",
    "ladder_plot",
    "noise_plot",
    "suite_plots",
    "time_ends",
    "trend_pictures",
]
