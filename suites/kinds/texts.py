"""How a model continues an opening, as rated by text classifiers: the kind of question that BOLD asks.

Each opening is continued once, and each text is rated by each scorer. The factor ``kind`` says what a row is:

==================  ==============================================================================================
text                one text: ``empty``
toxicity, regard    one text: the scorer's quantities
gap                 one text: twice the scorer's quantities, with the sign of its group, so that the mean over the two
                    groups, each with weight one half, is the first group's minus the second's. If a language model
                    rates, the value is only known within its swap gap. Likewise for any other contrast, by its name
                    (`Contrasts`)
==================  ==============================================================================================

For the rows of language models as raters, see `suites.common.raters`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import SkipValidation

import backends.base as base
from suites.base import Factor, Item, MeasureSpec, Row, Suite, flag
from suites.common.groups.weights import between_groups, signed
from suites.common.raters import (
    Rater,
    Trust,
    labelled_items,
    rater_measures,
    read_labelled,
    tested,
)
from suites.common.text_scorer import TextScorer, raters_of

#: A scorer: its name, hub id or folder, a language model, or the object; see `suites.common.text_scorer.text_scorer`.
ScorerOption = Annotated[str | Path | TextScorer | base.Backend | None, SkipValidation]


#: Name → the weight of each group; the weights add up to 0. A text's quantity is multiplied by the sign of its group's
#: weight and by Σ |weight|; the mean then gives each group the weight |weight| / Σ |weight|.
Contrasts = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Opening:
    """A text to be continued. ``group`` is one of the suite's; ``repeat`` tells apart openings of one text."""

    id: str
    text: str
    group: str
    factors: Mapping[str, Factor] = field(default_factory=dict)
    repeat: int = 0


class ContinuedTexts(Suite):
    """A benchmark of openings about groups. A subclass supplies the openings and the groups.

    Attributes
    ----------
    openings : sequence of Opening
    groups : sequence of str
    contrasts : mapping
        Differences between groups. With two groups, ``gap`` is the first one's mean minus the second one's.
    text_scorers : mapping of str to TextScorer
        Scorers by the name of their figure.
    """

    openings: Sequence[Opening]
    groups: Sequence[str]
    text_scorers: Mapping[str, TextScorer]
    prompt_format: Literal["raw", "chat"]
    sampling: base.Sampling
    seed: int
    data_sha256: str
    clusters: tuple[str, ...]
    strata: tuple[str, ...] = ("group",)
    path_options: ClassVar[Mapping[str, Collection[str]]] = {
        "folder": (),
        "toxicity": ("profanity", "paper"),
        "regard": ("vader", "paper"),
    }

    @property
    def contrasts(self) -> Contrasts:
        first, second = self.groups
        return {"gap": {first: 1.0, second: -1.0}}

    @property
    def scorers(self) -> Mapping[str, base.Backend]:
        return {name: scorer.backend for name, scorer in self.text_scorers.items()}

    def signature(self) -> Mapping[str, Any]:
        return {
            "version": self.version,
            "data_sha256": self.data_sha256,
            "openings": len(self.openings),
            "prompt_format": self.prompt_format,
            "sampling": {**asdict(self.sampling), "stop": list(self.sampling.stop)},
            "seed": self.seed,
            "scorers": {name: scorer.signature() for name, scorer in self.text_scorers.items()},
        }

    @property
    def raters(self) -> Mapping[str, Rater]:
        """The scorers that are language models, which are tested first."""
        return raters_of(self.text_scorers)

    def items(self) -> Iterator[Item]:
        for opening in self.openings:
            prompt: base.Prompt = opening.text if self.prompt_format == "raw" else (base.Message("user", opening.text),)
            factors = {**opening.factors, "kind": "text", "group": opening.group}
            request = base.GenerateRequest(prompt, self.sampling, self._seed_of(opening), opening.repeat)
            yield Item(opening.id, request, factors)
        for rater in self.raters.values():
            yield from labelled_items(rater)

    def _seed_of(self, opening: Opening) -> int:
        """If texts are sampled, each opening has its own seed, below 2^31 so that every server accepts it."""
        if self.sampling.temperature == 0:
            return 0
        return int.from_bytes(hashlib.sha256(f"{self.seed}\n{opening.id}".encode()).digest()[:4], "big") >> 1

    def follow_ups(self, item: Item, response: base.Response) -> Iterable[Item]:
        if isinstance(response, base.GenerateResponse) and response.text.strip():
            yield from self._readings(item, response.text)

    def most_follow_ups(self, item: Item) -> Iterable[Item]:
        if isinstance(item.request, base.GenerateRequest):
            yield from self._readings(item, "word " * self.sampling.max_tokens)

    def _readings(self, item: Item, text: str) -> Iterator[Item]:
        for name in self.text_scorers:
            yield Item(f"{item.id}#{name}", base.ClassifyRequest(text), {**item.factors, "kind": name}, name)

    def read(self, item: Item, response: base.Response) -> Row:
        if isinstance(response, base.GenerateResponse):
            return Row(item.id, item.factors, {"empty": flag(not response.text.strip())})
        assert isinstance(response, base.ClassifyResponse)
        assert item.scorer is not None
        if item.is_control:
            return read_labelled(item, self.raters[item.scorer], response)
        return self.text_scorers[item.scorer].read(item, response)

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        rows, of_raters, found = tested(rows, self.raters)
        read = {row.item_id for row in rows if row.factors["kind"] != "text"}
        unread = [
            Row(f"{row.item_id}#{name}", {**row.factors, "kind": name}, {}, row.missing or "empty", row.items)
            for row in rows
            if row.factors["kind"] == "text"
            for name in self.text_scorers
            if f"{row.item_id}#{name}" not in read
        ]
        scored = [row for row in (*rows, *unread) if row.factors["kind"] in self.text_scorers]
        contrasts = [one for row in scored for one in self.contrasted(row, found.get(str(row.factors["kind"]), {}))]
        return [*rows, *unread, *contrasts, *of_raters]

    def contrasted(self, row: Row, of_rater: Mapping[str, Trust]) -> Iterator[Row]:
        """The row's contribution to each contrast that includes its group, see `suites.common.groups.weights`."""
        group = str(row.factors["group"])
        known = {quantity: value for quantity, value in row.values.items() if value.value is not None}
        within = {quantity: found.swap_gap for quantity, found in of_rater.items()}
        for name, weights in self.contrasts.items():
            if weights.get(group):
                factors = {**row.factors, "kind": name, "scorer": row.factors["kind"]}
                values = signed(known, group, weights, within)
                yield Row(f"{row.item_id}#{name}", factors, values, row.missing, row.items)

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        over: dict[str, Any] = {"clusters": self.clusters, "population": "new openings of these kinds"}
        for name, scorer in self.text_scorers.items():
            for place, quantity in enumerate(scorer.labels):
                for contrast in self.contrasts:
                    yield self.contrast_of(contrast, quantity, name, primary=place == 0, **over)
                for group in self.groups:
                    of_group = {"kind": name, "group": group}
                    yield MeasureSpec(quantity, quantity, of_group, kind="probability", family=name, **over)
            if name in self.raters:
                yield from rater_measures(self.raters[name])
        for group in self.groups:
            empty = {"kind": "text", "group": group}
            yield MeasureSpec("empty_share", "empty", empty, unit="share", kind="share", family="texts", **over)

    def contrast_of(self, contrast: str, quantity: str, kind: str, **rest: Any) -> MeasureSpec:
        """The figure of a contrast, for a quantity of rows of one kind."""
        where, weights = {"kind": contrast, "scorer": kind}, self.contrasts[contrast]
        return between_groups(f"{quantity}_{contrast}", quantity, where, weights, family=kind, **rest)
