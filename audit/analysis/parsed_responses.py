"""One model's stored answers to one suite, turned into rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from audit.analysis.responses import ItemResponse
from backends.base import ScoreResponse
from backends.errors import BackendError
from suites.base import Row, Suite


@dataclass
class ParsedResponses:
    """Rows, and what the validity ledger counts beside them.

    Attributes
    ----------
    rows : list of Row
        One an item; after `derive` also what the suite makes of them.
    keys, roots : mapping
        Of each item the keys of its answer, and the suite's own item it hangs on.
    failures : Counter
        Items without an answer, by reason.
    merged, straddled : int
        Answers in which a token crosses the end of the prompt.
    """

    suite: Suite
    rows: list[Row] = field(default_factory=list)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    merged: int = 0
    straddled: int = 0

    def add(self, one: ItemResponse) -> None:
        """Read one item's answer."""
        item, answer = one.item, one.answer
        self.keys[item.id] = one.keys
        self.roots[item.id] = one.root
        if answer is None or isinstance(answer, BackendError):
            reason = "not asked" if answer is None else answer.kind
            self.failures[reason] += 1
            row = Row(item.id, item.factors, {}, missing=reason)
        else:
            if isinstance(answer, ScoreResponse):
                boundaries = [score.boundary for score in answer.scores]
                self.merged += "merged" in boundaries
                self.straddled += "straddled" in boundaries
            row = self.suite.read(item, answer)
        self.rows.append(row)

    def derive(self) -> None:
        """Put the suite's derived rows in; once, after the last answer."""
        self.rows = list(self.suite.derive(self.rows))


def read_answers(suite: Suite, answered: Iterable[ItemResponse]) -> ParsedResponses:
    """All of a model's answers to a suite."""
    reading = ParsedResponses(suite)
    for one in answered:
        reading.add(one)
    return reading
