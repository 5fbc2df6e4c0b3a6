"""General ability, to accompany figures of bias: does a modified model still predict plain text?

Passages of plain English that ship with the package: nats per token; exp of it is the perplexity. If a model puts no
token in front of a text, the first token of every passage is given, not scored. Whether it still knows facts, the
questions of a public benchmark show (MMLU, ARC, GLUE…), as a file of kind ``choices`` (`suites.custom.choices`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import backends.base as base
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite
from suites.common.data_files import load


class GeneralAbility(Suite):
    """The likelihood of plain text."""

    strata = ("kind",)

    def signature(self) -> Mapping[str, Any]:
        return {"version": self.version, "passages_sha256": load("plain_passages").sha256}

    def items(self) -> Iterator[Item]:
        for passage in load("plain_passages").content["passages"]:
            factors = {"kind": "passage", "subject": passage["subject"]}
            request = base.ScoreRequest("", (passage["text"],), first_given=True)
            yield Item(f"passage/{passage['subject']}", request, factors)

    def read(self, item: Item, response: base.Response) -> Row:
        assert isinstance(response, base.ScoreResponse)
        (score,) = response.scores
        if score.exactness != "exact" or not score.tokens:
            return Row(item.id, item.factors, {}, missing="undecided")
        nats = IdentifiedInterval.exact(-score.high / len(score.tokens))
        return Row(item.id, item.factors, {"nats": nats})

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        over: dict[str, Any] = {"clusters": ("subject",), "population": "new passages of plain English"}
        plain: dict[str, Any] = {"unit": "nats", "family": "plain text", "primary": True, **over}
        yield MeasureSpec("nats_per_token", "nats", {"kind": "passage"}, **plain)
