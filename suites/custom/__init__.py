"""Suites that are declared, in a file or by their rows: pairs of sentences, templates with groups of expressions,
multiple choice, texts.

Takes a .csv, .jsonl or .toml file, or a published benchmark's rows; gives a suite. `suites.custom.schema` defines what
may be declared; any mistake is reported with its file, line and field before a model is loaded.
"""

from suites.custom.choices import ChoicesFromFile
from suites.custom.labelled import labelled_texts
from suites.custom.load import from_file, suite_schema
from suites.custom.pairs import PairsFromFile
from suites.custom.templates import TemplatesFromFile
from suites.custom.texts import TextsFromFile

__all__ = [
    "ChoicesFromFile",
    "PairsFromFile",
    "TemplatesFromFile",
    "TextsFromFile",
    "from_file",
    "labelled_texts",
    "suite_schema",
]
