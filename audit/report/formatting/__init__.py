"""Formatting: numbers with intervals, readable names, and text that is safe to show.

Takes figures, factors and untrusted text; gives strings. The rest of the report builds on it.
"""

from audit.report.formatting.labels import (
    distinct_labels,
    factor_label,
    level_label,
    measure_label,
    short_level,
    unit_label,
    where_label,
)
from audit.report.formatting.numbers import (
    MISSING,
    bounded,
    distinct_decimals,
    figure,
    hundredths,
    level,
    number,
    p_value,
    percent,
    shortened,
    significant,
    with_interval,
)
from audit.report.formatting.safe_text import (
    csv_cell,
    distinct_names,
    encodable,
    encoded,
    file_name,
    json_for_script,
    latex_text,
    markdown_text,
    one_line,
    visible,
)
from audit.report.formatting.terminal_text import make_encodable, plain_console, say, say_json

__all__ = [
    "MISSING",
    "bounded",
    "csv_cell",
    "distinct_decimals",
    "distinct_labels",
    "distinct_names",
    "encodable",
    "encoded",
    "factor_label",
    "figure",
    "file_name",
    "hundredths",
    "json_for_script",
    "latex_text",
    "level",
    "level_label",
    "make_encodable",
    "markdown_text",
    "measure_label",
    "number",
    "one_line",
    "p_value",
    "percent",
    "plain_console",
    "say",
    "say_json",
    "short_level",
    "shortened",
    "significant",
    "unit_label",
    "visible",
    "where_label",
    "with_interval",
]
