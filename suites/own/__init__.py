"""Suites from a file: pairs of sentences, templates with groups of expressions, multiple choice, texts.

Takes a .csv, .jsonl or .toml file; gives a suite. What a file may say is in `suites.own.schema`; whatever is wrong with
it is refused with its file, line and field before a model is loaded.
"""

from suites.own.load import from_file, suite_schema

__all__ = ["from_file", "suite_schema"]
