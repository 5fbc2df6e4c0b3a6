"""Suites from a file: pairs of sentences, templates with groups of expressions, multiple choice, texts.

Takes a .csv, .jsonl or .toml file; gives a suite. `suites.custom.schema` defines what a file may contain; any mistake
is reported with its file, line and field before a model is loaded.
"""

from suites.custom.labelled import labelled_texts
from suites.custom.load import from_file, suite_schema

__all__ = ["from_file", "labelled_texts", "suite_schema"]
