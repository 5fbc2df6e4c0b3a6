"""One model's answers to one suite as a table of rows, with what the report says of the answers themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from audit.analysis.table import Floats, Table
from suites.base import Suite


@dataclass
class SuiteAnswers:
    """One model's answers to one suite, complete.

    Attributes
    ----------
    table : Table
        A row for each item, and those that the suite derives.
    items : mapping of str to bytes
        The items asked, in the order in which they are shown, and the keys of their answers in the store.
    failures : Counter
        Items without an answer, by reason.
    merged, straddled, straddled_in_part : int
        Items with such a boundary; of the straddled, those with other continuations that are not.
    logprobs : dict of str to array (k,)
        Natural log-probabilities of each scored item's continuations, NaN if only bounded; only if they were wanted.
    """

    suite: Suite
    table: Table
    items: dict[str, Any]
    failures: Counter[str] = field(default_factory=Counter)
    merged: int = 0
    straddled: int = 0
    straddled_in_part: int = 0
    logprobs: dict[str, Floats] = field(default_factory=dict)
