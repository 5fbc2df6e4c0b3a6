"""Texts that a model writes about groups: prompts from a file, read by expressions or classifiers.

A reading is a quantity of a text: 1 where the text contains one of the reading's expressions, else 0. An expression
matches whole words in any case; for scripts without spaces, it may match anywhere in the text. A scorer rates each text
too. Figures are the mean of each group's texts, and contrasts of groups. The factor ``kind`` says what a row is:

==================  ==============================================================================================
text                one text: ``empty``, and its readings; without any for an empty text
toxicity, regard…   one text: the scorer's quantities
gap                 one text: twice its quantities, with the sign of its group, so that the mean over the two groups,
                    each with weight one half, is the first group's minus the second's. If a language model rates, the
                    value is only known within its swap gap. Likewise for any other contrast, by its name
==================  ==============================================================================================

For the rows of language models as raters, see `suites.common.raters`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import backends.base as base
from backends.errors import ConfigError
from backends.reading.words import finder_of
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, flag
from suites.common.data_files import content_sha256
from suites.common.groups.declared import is_name
from suites.common.groups.weights import Weights, between_groups, contrasts_of, reading_meaning, score_meaning, signed
from suites.common.planted import chance, planted_labels
from suites.common.raters import (
    Rater,
    labelled_items,
    rater_cautions,
    rater_measures,
    rater_table,
    read_labelled,
    tested,
)
from suites.common.text_scorer import TextScorer, model_rater, raters_of, text_scorer
from suites.custom.figures import Design, FromFile
from suites.custom.labelled import labelled_texts
from suites.custom.schema import TAKEN_BY_TEXTS, PromptRow, Texts
from suites.custom.schema import Rater as DeclaredRater
from suites.custom.source import Source
from suites.presentation import TableLayout


@dataclass(frozen=True, slots=True)
class Opening:
    """A text to be continued. ``repeat`` tells apart openings of one text."""

    id: str
    text: str
    group: str
    factors: Mapping[str, Factor] = field(default_factory=dict)
    repeat: int = 0


class TextsFromFile(FromFile):
    """Prompts about groups, continued by the model and read by expressions or classifiers (from a file)."""

    version: ClassVar[int] = 5
    path_options: ClassVar[Mapping[str, Collection[str]]] = {
        "folder": (),
        "toxicity": ("profanity", "paper"),
        "regard": ("vader", "paper"),
    }

    def declare(self, prompts: Sequence[Mapping[str, Any]], **options: Any) -> None:
        """Set up a published benchmark by its rows and the fields of `suites.custom.schema.Texts`."""
        rows = tuple(PromptRow.model_validate(row) for row in prompts)
        file = Texts(kind="texts", prompts=rows, repeated=True, **options)
        TextsFromFile.__init__(self, file, Source(Path(self.name), "prompts", {}))

    def __init__(self, file: Texts, source: Source) -> None:
        self._file, self._source = file, source
        self.groups = tuple(dict.fromkeys(row.group for row in file.prompts))
        self.prompt_format, self.seed = file.prompt_format, file.seed
        self.sampling = base.Sampling(**{**file.sampling.model_dump(), "stop": tuple(file.sampling.stop)})
        self.text_scorers = {name: self._text_scorer(name, choice) for name, choice in file.scorers.items()}
        self._check_quantities()
        self._finders = {
            name: finder_of(words, whole=file.match != "anywhere") for name, words in file.readings.items()
        }
        self.openings = [*self._openings()]
        # An empty cell or null among stored texts is a question that got no answer: a missing one.
        self.recorded = [(row.prompt, row.completion or "") for row in file.prompts] if file.is_stored else []
        factors = [{**one.factors, "group": one.group} for one in self.openings]
        self.design = Design(file, source, factors, file.sampled or ("prompt",))
        self.design.check_levels("group", "it is the group")
        self.contrasts = self._contrasts_of()
        scored = [quantity for scorer in self.text_scorers.values() for quantity in scorer.labels]
        said = {**dict.fromkeys(scored, score_meaning), **dict.fromkeys(self._finders, reading_meaning)}
        self.meanings = {
            f"{quantity}_{contrast}": meaning(quantity, weights)
            for quantity, meaning in said.items()
            for contrast, weights in self.contrasts.items()
        }
        self.strata = tuple(dict.fromkeys(("group", *self.design.by)))
        self.data_sha256 = content_sha256([[one.id, one.text, one.group, dict(one.factors)] for one in self.openings])
        self.specs = self.design.with_primary([*self._figures()])

    @cached_property
    def needs(self) -> frozenset[base.Capability]:
        return super().needs | {"recorded"} if self.recorded else super().needs

    @property
    def scorers(self) -> Mapping[str, base.Backend]:
        return {name: scorer.backend for name, scorer in self.text_scorers.items()}

    @property
    def raters(self) -> Mapping[str, Rater]:
        """The scorers that are language models, which are tested first."""
        return raters_of(self.text_scorers)

    def signature(self) -> Mapping[str, Any]:
        return {
            "version": self.version,
            "data_sha256": self.data_sha256,
            "openings": len(self.openings),
            "prompt_format": self.prompt_format,
            "sampling": {**asdict(self.sampling), "stop": list(self.sampling.stop)},
            "seed": self.seed,
            "scorers": {name: scorer.signature() for name, scorer in self.text_scorers.items()},
            "readings": {name: list(words) for name, words in self._file.readings.items()},
            "match": self._file.match,
            "contrasts": {name: dict(weights) for name, weights in self.contrasts.items()},
            **self.design.signature(),
        }

    # -- questions -----------------------------------------------------------------------------------

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
            yield from self._ratings(item, response.text)

    def most_follow_ups(self, item: Item) -> Iterable[Item]:
        if isinstance(item.request, base.GenerateRequest):
            yield from self._ratings(item, "word " * self.sampling.max_tokens)

    def _ratings(self, item: Item, text: str) -> Iterator[Item]:
        for name in self.text_scorers:
            yield Item(f"{item.id}#{name}", base.ClassifyRequest(text), {**item.factors, "kind": name}, name)

    def planted(self, item: Item, bias: float, draw: int) -> base.Response | None:
        """A text contains an expression of each reading with a probability of 0.3, which ``bias`` raises for one side
        of the first contrast and lowers for the other; so for the first quantity of each scorer, whose rater is nearly
        right about labelled texts."""
        labels = [*self.text_scorers[item.scorer].labels.values()] if item.scorer is not None else []
        if item.is_control:
            rater = self.raters[str(item.scorer)]
            own = [label for quantity, label in rater.labels.items() if rater.has(quantity, str(item.factors["label"]))]
            chosen, share = (own[0], 0.9) if own else (labels[0], 0.1)
            return planted_labels(labels, chosen, share, item.id, draw)
        weight = next(iter(self.contrasts.values()), {}).get(str(item.factors["group"]), 0.0)
        share = min(1.0, max(0.0, 0.3 + ((weight > 0) - (weight < 0)) * bias / 2))
        if labels:
            return planted_labels(labels, labels[0], share, item.id, draw)
        said = [w[0] for name, w in self._file.readings.items() if chance(name, item.id, draw) < share]
        return base.GenerateResponse(f"This is made up: {', '.join(said) or 'nothing'}.", "stop")

    # -- rows ----------------------------------------------------------------------------------------

    def read(self, item: Item, response: base.Response) -> Row:
        if isinstance(response, base.GenerateResponse):
            is_empty = not response.text.strip()
            found = {} if is_empty else {name: flag(is_in(response.text)) for name, is_in in self._finders.items()}
            return Row(item.id, item.factors, {"empty": flag(is_empty), **found})
        assert isinstance(response, base.ClassifyResponse)
        assert item.scorer is not None
        if item.is_control:
            return read_labelled(item, self.raters[item.scorer], response)
        return self.text_scorers[item.scorer].read(item, response)

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add the contrasts, and missing ratings of texts that are missing or empty; readings are missing too."""
        if self._finders:
            rows = [Row(row.item_id, row.factors, {}, "empty", row.items) if _is_empty(row) else row for row in rows]
        kept, of_raters, found = tested(rows, self.raters)
        texts = [row for row in kept if row.factors["kind"] == "text"]
        rated = {row.item_id for row in kept if row.factors["kind"] != "text"}
        unrated = [
            Row(f"{row.item_id}#{name}", {**row.factors, "kind": name}, {}, row.missing or "empty", row.items)
            for row in texts
            for name in self.text_scorers
            if f"{row.item_id}#{name}" not in rated
        ]
        scored = [row for row in (*kept, *unrated) if row.factors["kind"] in self.text_scorers]
        within = {name: {of: trust.swap_gap for of, trust in of_one.items()} for name, of_one in found.items()}
        contrasts = [one for row in scored for one in self._contrasted(row, within.get(str(row.factors["kind"]), {}))]
        readings = [one for row in (texts if self._finders else ()) for one in self._contrasted(row, {})]
        return [*kept, *unrated, *contrasts, *of_raters, *readings]

    def _contrasted(self, row: Row, within: Mapping[str, float]) -> Iterator[Row]:
        """The row's contribution to each contrast that includes its group, see `suites.common.groups.weights`."""
        group = str(row.factors["group"])
        known = {quantity: value for quantity, value in row.values.items() if value.value is not None}
        for name, weights in self.contrasts.items():
            if weights.get(group):
                factors = {**row.factors, "kind": name, "scorer": row.factors["kind"]}
                values: Mapping[str, IdentifiedInterval] = signed(known, group, weights, within)
                yield Row(f"{row.item_id}#{name}", factors, values, row.missing, row.items)

    # -- figures -------------------------------------------------------------------------------------

    def _figures(self) -> Iterator[MeasureSpec]:
        of_readings: dict[str, Any] = {"population": "new prompts of these kinds"}
        for place, name in enumerate(self._finders):
            of_one = {**of_readings, "family": name}
            yield from self._of_quantity(name, "text", place == 0, {"unit": "share", "kind": "share"}, of_one)
        of_texts: dict[str, Any] = {"population": "new openings of these kinds"}
        for name, scorer in self.text_scorers.items():
            for place, quantity in enumerate(scorer.labels):
                of_one = {**of_texts, "family": name}
                yield from self._of_quantity(quantity, name, place == 0, {"kind": "probability"}, of_one)
            if name in self.raters:
                yield from rater_measures(self.raters[name])
        for group in self.groups if not self._finders else ():  # with readings, an empty text is a missing answer
            empty: dict[str, Any] = {"unit": "share", "kind": "share", "family": "texts", **of_texts}
            yield from self._of_group("empty_share", "empty", "text", group, empty)

    def _of_quantity(
        self, quantity: str, kind: str, primary: bool, of_mean: Mapping[str, Any], rest: Mapping[str, Any]
    ) -> Iterator[MeasureSpec]:
        """The contrasts of a quantity of rows of one kind, and its mean for each group."""
        for contrast, weights in self.contrasts.items():
            where = {"kind": contrast, "scorer": kind}
            counted = of_mean["kind"] == "share" and all(abs(weight) == 1 for weight in weights.values())
            options = {"primary": primary, "is_count": counted, **rest}
            spec = between_groups(f"{quantity}_{contrast}", quantity, where, weights, **options)
            yield from self.design.figures(spec, all_strata=True)
        for group in self.groups:
            yield from self._of_group(quantity, quantity, kind, group, {**of_mean, **rest})

    def _of_group(
        self, measure: str, quantity: str, kind: str, group: str, options: Mapping[str, Any]
    ) -> Iterator[MeasureSpec]:
        spec = MeasureSpec(measure, quantity, {"kind": kind, "group": group}, **options)
        yield from self.design.figures(spec, having=[one.group == group for one in self.openings])

    def tables(self) -> Sequence[TableLayout]:
        return [rater_table(self.raters.values())] if self.raters else []

    def cautions(self) -> Sequence[str]:
        said = [*super().cautions()]
        if empty := sum(not text.strip() for _, text in self.recorded):
            said.append(f"Of {len(self.recorded)} stored completions {empty} are empty: they count as missing answers.")
        return [*said, *rater_cautions(self.raters.values(), self.groups)]

    # -- what the file declares ----------------------------------------------------------------------

    def _openings(self) -> Iterator[Opening]:
        """The prompts; stored completions of one prompt, and repeated prompts, are draws of one level."""
        before = Counter[str]()
        first: dict[tuple[str, str], str] = {}
        several = self._file.draws > 1
        for number, row in enumerate(self._file.prompts, 1):
            row_id = row.id or str(number)
            of = first.setdefault((row.group, row.prompt), row_id)
            for draw in range(1, self._file.draws + 1):
                factors: dict[str, Factor] = {**row.attributes, "prompt": of, **({"draw": draw} if several else {})}
                repeat = before[row.prompt] if self._file.is_stored else draw - 1
                yield Opening(f"{row_id}/{draw}" if several else row_id, row.prompt, row.group, factors, repeat)
                before[row.prompt] += 1

    def _text_scorer(self, name: str, choice: str | DeclaredRater | TextScorer) -> TextScorer:
        try:
            if isinstance(choice, DeclaredRater):
                return self._by_rubric(name, choice)
            return text_scorer(name, self._near(choice, Path.is_dir) if isinstance(choice, str) else choice)
        except ConfigError as error:
            if ":" in error.field:  # a line of another file
                raise
            inner = error.field.removeprefix(f"{name}.").split(".")
            place = ("scorers", name, *(inner if inner[0] in DeclaredRater.model_fields else ()))
            raise self._source.refuse(place, error.value, error.problem, error.hint) from None

    def _by_rubric(self, name: str, rater: DeclaredRater) -> TextScorer:
        return model_rater(
            name,
            str(self._near(rater.model, Path.exists)),
            str(self._near(rater.rubric, Path.is_file)) if isinstance(rater.rubric, str) else rater.rubric,
            answer=rater.answer,
            prompt_format=rater.prompt_format,
            quantities=rater.quantities,
            labelled=labelled_texts(self._near(rater.labelled, Path.is_file)) if rater.labelled else None,
        )

    def _near(self, name: str, is_one: Callable[[Path], bool]) -> str | Path:
        """The path of that name in the folder of the suite's file, if there is one; else the name itself."""
        path = self._source.path.parent / name
        return path if is_one(path) else name

    def _check_quantities(self) -> None:
        """Refuse two quantities of one name, and one whose name no measure may have."""
        known = {**dict.fromkeys(TAKEN_BY_TEXTS, "a reserved name")}
        known |= dict.fromkeys(self._file.readings, "also a reading")
        for name, scorer in self.text_scorers.items():
            for quantity, label in scorer.labels.items():
                hint = f'Name it: quantities = {{NAME = "{label}"}}'
                problem = known.get(quantity, "" if is_name(quantity) else "no name for a measure")
                if problem and name != "toxicity":
                    raise self._source.refuse(("scorers", name, "quantities", quantity), quantity, problem, hint)
                known[quantity] = f"also a quantity of scorers.{name}"

    def _contrasts_of(self) -> Mapping[str, Weights]:
        described = self._file.groups
        for group in described:
            if group not in self.groups:
                hint = f"Groups: {', '.join(self.groups)}"
                raise self._source.refuse(("groups", group), group, "no prompt is of this group", hint)
        groups = {name: described[name].attributes if name in described else {} for name in self.groups}
        taken = {*TAKEN_BY_TEXTS, *self._file.scorers}
        declared = contrasts_of(self._file.contrasts, groups, taken, self._source.refuse)
        return {"gap" if name not in self._file.contrasts else name: weights for name, weights in declared.items()}


def _is_empty(row: Row) -> bool:
    return row.factors["kind"] == "text" and row.missing is None and row.values["empty"].value == 1
