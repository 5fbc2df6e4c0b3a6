"""Texts that a model writes about groups: prompts from a file, read by expressions or classifiers, as BOLD asks.

A reading is a quantity of a text: 1 where the text contains one of the reading's expressions, else 0. Its figures are
the share of each group's texts, and contrasts of groups; so for the quantities of each scorer. An expression matches
whole words in any case; for scripts without spaces, it may match anywhere in the text. The factor ``kind`` says what a
row is:

====================  ============================================================================================
text                  one text: ``empty``, and the readings
a scorer's name       one text: the scorer's quantities
gap                   one text: twice its quantities, with the sign of its group, so that the mean over the two groups,
                      each with weight one half, is the first group's minus the second's. If a language model rates,
                      the value is only known within its swap gap. Likewise for any other contrast, by its name
====================  ============================================================================================

For the rows of language models as raters, see `suites.common.raters`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import backends.base as base
from backends.errors import ConfigError
from backends.reading.words import finder_of
from suites.base import Factor, Item, MeasureSpec, Row, Suite, flag
from suites.common.groups.declared import is_name
from suites.common.groups.weights import (
    Weights,
    between_groups,
    contrasts_of,
    reading_meaning,
    score_meaning,
    signed,
)
from suites.common.planted import chance, planted_labels
from suites.common.raters import (
    Rater,
    Trust,
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
from suites.custom.schema import TAKEN_BY_TEXTS, RaterOptions, Texts
from suites.custom.source import Source

_POPULATION = "new prompts of these kinds"


class TextsFromFile(FromFile):
    """Prompts about groups, continued by the model and read by expressions or classifiers (from a file)."""

    kind = Texts
    file: Texts
    version = 5
    path_options: ClassVar[Mapping[str, Collection[str]]] = {
        "folder": (),
        "toxicity": ("profanity", "paper"),
        "regard": ("vader", "paper"),
    }

    def set_up(self, file: Texts, source: Source) -> None:
        self.file, self._source = file, source
        self.groups = tuple(dict.fromkeys(row.group for row in file.prompts))
        self.text_scorers = {name: self._text_scorer(name, choice) for name, choice in file.scorers.items()}
        self.raters: Mapping[str, Rater] = raters_of(self.text_scorers)
        self._check_quantities()
        self._finders = {
            name: finder_of(words, whole=file.match != "anywhere") for name, words in file.readings.items()
        }
        self.sampling = file.sampling
        self._asked = [*self._questions()]
        self.design = Design(file, source, [one.factors for one in self._asked], file.sampled or ("prompt",))
        self.design.check_levels("group", "it is the group")
        self.contrasts = self._contrasts_of()
        scored = [quantity for scorer in self.text_scorers.values() for quantity in scorer.labels]
        said = {**dict.fromkeys(scored, score_meaning), **dict.fromkeys(self._finders, reading_meaning)}
        meanings = {
            f"{quantity}_{contrast}": meaning(quantity, weights)
            for quantity, meaning in said.items()
            for contrast, weights in self.contrasts.items()
        }
        self.specs = self.design.with_primary([*self._figures()])
        # An empty cell or null among stored texts is a question that got no answer: a missing one.
        recorded = [(row.prompt, row.completion or "") for row in file.prompts] if file.is_stored else []
        cautions = [*rater_cautions(self.raters.values(), self.groups)]
        if empty := sum(not text.strip() for _, text in recorded):
            cautions.insert(0, f"{empty} of {len(recorded)} stored completions are empty: these answers are missing.")
        tables = [rater_table(self.raters.values())] if self.raters else []
        strata = dict.fromkeys(("group", *file.levels_with_figures))
        Suite.__init__(
            self,
            scorers={name: scorer.backend for name, scorer in self.text_scorers.items()},
            recorded=recorded,
            **self.data_of([*strata], cautions, meanings=meanings, tables=tables),
        )

    # -- questions ---------------------------------------------------------------------------------

    def signature(self) -> Mapping[str, Any]:
        scorers = {name: scorer.signature() for name, scorer in self.text_scorers.items()}
        return {**super().signature(), "scorers": scorers}

    def items(self) -> Iterator[Item]:
        yield from self._asked
        for rater in self.raters.values():
            yield from labelled_items(rater)

    def _questions(self) -> Iterator[Item]:
        """The prompts; stored completions of one prompt, and repeated prompts, are draws of one level."""
        file = self.file
        before = Counter[str]()
        first: dict[tuple[str, str], str] = {}
        for number, row in enumerate(file.prompts, 1):
            row_id = row.id or str(number)
            of = first.setdefault((row.group, row.prompt), row_id)
            prompt: base.Prompt = row.prompt if file.prompt_format == "raw" else (base.Message("user", row.prompt),)
            for draw in range(1, file.draws + 1):
                own: dict[str, Factor] = {"draw": draw} if file.draws > 1 else {}
                factors = {**row.attributes, "prompt": of, **own, "kind": "text", "group": row.group}
                item_id = f"{row_id}/{draw}" if own else row_id
                repeat = before[row.prompt] if file.is_stored else draw - 1
                before[row.prompt] += 1
                yield Item(item_id, base.GenerateRequest(prompt, self.sampling, self._seed(item_id), repeat), factors)

    def _seed(self, item_id: str) -> int:
        """If texts are sampled, each has its own seed, below 2^31 so that every server accepts it."""
        if self.file.sampling.temperature == 0:
            return 0
        return int.from_bytes(hashlib.sha256(f"{self.file.seed}\n{item_id}".encode()).digest()[:4], "big") >> 1

    def follow_ups(self, item: Item, response: base.Response) -> Iterable[Item]:
        if isinstance(response, base.GenerateResponse) and response.text.strip():
            yield from self._scored(item, response.text)

    def _scored(self, item: Item, text: str) -> Iterator[Item]:
        for name in self.text_scorers:
            yield Item(f"{item.id}#{name}", base.ClassifyRequest(text), {**item.factors, "kind": name}, name)

    # -- rows and figures --------------------------------------------------------------------------

    def read(self, item: Item, response: base.Response) -> Row:
        if isinstance(response, base.GenerateResponse):
            if not response.text.strip():
                return Row(item.id, item.factors, {"empty": flag(True)})
            found = {name: flag(is_in(response.text)) for name, is_in in self._finders.items()}
            return Row(item.id, item.factors, {"empty": flag(False), **found})
        assert isinstance(response, base.ClassifyResponse)
        if item.is_control:
            return read_labelled(item, self.raters[str(item.scorer)], response)
        return self.text_scorers[str(item.scorer)].read(item, response)

    def planted(self, item: Item, bias: float, draw: int) -> base.Response | None:
        """A text contains an expression of each reading with a probability of 0.3, which ``bias`` raises for one side
        of the first contrast and lowers for the other; so for the first quantity of each scorer, whose rater is nearly
        right about labelled texts."""
        if item.scorer is not None and item.is_control:
            rater, said = self.raters[item.scorer], str(item.factors["label"])
            labels = [*rater.labels.values()]
            own = [label for quantity, label in rater.labels.items() if rater.has(quantity, said)]
            return planted_labels(labels, (own or labels)[0], 0.9 if own else 0.1, item.id, draw)
        weight = next(iter(self.contrasts.values()), {}).get(str(item.factors["group"]), 0.0)
        share = min(1.0, max(0.0, 0.3 + ((weight > 0) - (weight < 0)) * bias / 2))
        if item.scorer is not None:
            labels = [*self.text_scorers[item.scorer].labels.values()]
            return planted_labels(labels, labels[0], share, item.id, draw)
        words = [w[0] for name, w in self.file.readings.items() if chance(name, item.id, draw) < share]
        return base.GenerateResponse(f"This is made up: {', '.join(words) or 'nothing'}.", "stop")

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add the scores of texts that have none, and each text's part in the contrasts. The readings of an empty text
        are missing, not 0."""
        if self._finders:
            rows = [Row(row.item_id, row.factors, {}, "empty", row.items) if _is_empty(row) else row for row in rows]
        rows, of_raters, found = tested(rows, self.raters)
        texts, read = [row for row in rows if row.factors["kind"] == "text"], {row.item_id for row in rows}
        unread = [
            Row(f"{row.item_id}#{name}", {**row.factors, "kind": name}, {}, row.missing or "empty", row.items)
            for row in texts
            for name in self.text_scorers
            if f"{row.item_id}#{name}" not in read
        ]
        scored = [row for row in (*rows, *unread) if row.factors["kind"] in self.text_scorers]
        of_texts = self._contrasted(texts, {}) if self._finders else ()
        return [*rows, *unread, *self._contrasted(scored, found), *of_raters, *of_texts]

    def _contrasted(self, rows: Iterable[Row], found: Mapping[str, Mapping[str, Trust]]) -> Iterator[Row]:
        """Each row's contribution to the contrasts that include its group, see `suites.common.groups.weights`."""
        for row in rows:
            kind, group = str(row.factors["kind"]), str(row.factors["group"])
            known = {quantity: value for quantity, value in row.values.items() if value.value is not None}
            within = {quantity: of.swap_gap for quantity, of in found.get(kind, {}).items()}
            for name, weights in self.contrasts.items():
                if weights.get(group):
                    values = signed(known, group, weights, within)
                    factors = {**row.factors, "kind": name, "scorer": kind}
                    yield Row(f"{row.item_id}#{name}", factors, values, row.missing, row.items)

    def _figures(self) -> Iterator[MeasureSpec]:
        """The figures of the readings, then those of each scorer."""
        share: dict[str, Any] = {"unit": "share", "kind": "share", "population": _POPULATION}
        for place, name in enumerate(self._finders):
            yield from self._of_quantity(MeasureSpec(name, name, {"kind": "text"}, family=name, **share), place == 0)
        for name, scorer in self.text_scorers.items():
            for place, quantity in enumerate(scorer.labels):
                spec = MeasureSpec(quantity, quantity, {"kind": name}, kind="probability", family=name)
                yield from self._of_quantity(replace(spec, population=_POPULATION), place == 0)
            yield from rater_measures(self.raters[name]) if name in self.raters else ()
        if not self._finders:  # where a text is read, an empty one is a missing answer
            yield from self._of_groups(MeasureSpec("empty_share", "empty", {"kind": "text"}, family="texts", **share))

    def _of_quantity(self, spec: MeasureSpec, is_primary: bool) -> Iterator[MeasureSpec]:
        """The contrasts of a quantity, and its figure for each group."""
        for name, weights in self.contrasts.items():
            counted = spec.kind == "share" and all(abs(weight) == 1 for weight in weights.values())
            where = {"kind": name, "scorer": spec.where["kind"]}
            rest: dict[str, Any] = {"family": spec.family, "population": _POPULATION, "primary": is_primary}
            between = between_groups(f"{spec.measure}_{name}", spec.quantity, where, weights, is_count=counted, **rest)
            yield from self.design.figures(between)
        yield from self._of_groups(spec)

    def _of_groups(self, spec: MeasureSpec) -> Iterator[MeasureSpec]:
        for group in self.groups:
            having = [one.factors["group"] == group for one in self._asked]
            yield from self.design.figures(replace(spec, where={**spec.where, "group": group}), having)

    # -- what the file declares --------------------------------------------------------------------

    def _text_scorer(self, name: str, choice: str | RaterOptions | TextScorer) -> TextScorer:
        try:
            if isinstance(choice, RaterOptions):
                return self._by_rubric(name, choice)
            return text_scorer(name, self._near(choice, Path.is_dir) if isinstance(choice, str) else choice)
        except ConfigError as error:
            if ":" in error.field:  # a line of another file
                raise
            inner = error.field.removeprefix(f"{name}.").split(".")
            place = ("scorers", name, *(inner if inner[0] in RaterOptions.model_fields else ()))
            raise self._source.refuse(place, error.value, error.problem, error.hint) from None

    def _by_rubric(self, name: str, rater: RaterOptions) -> TextScorer:
        options = {field: getattr(rater, field) for field in ("answer", "prompt_format", "quantities")}
        if rater.labelled:
            options["labelled"] = labelled_texts(self._near(rater.labelled, Path.is_file))
        rubric = str(self._near(rater.rubric, Path.is_file)) if isinstance(rater.rubric, str) else rater.rubric
        return model_rater(name, str(self._near(rater.model, Path.exists)), rubric, **options)

    def _near(self, name: str, is_one: Callable[[Path], bool]) -> str | Path:
        """The path of that name in the folder of the suite's file, if there is one; else the name itself."""
        path = self._source.path.parent / name
        return path if is_one(path) else name

    def _check_quantities(self) -> None:
        """Refuse two quantities of one name, and one whose name no measure may have."""
        known = {**dict.fromkeys(TAKEN_BY_TEXTS, "a reserved name")}
        known |= dict.fromkeys(self.file.readings, "also a reading")
        for name, scorer in self.text_scorers.items():
            for quantity, label in scorer.labels.items():
                hint = f'Name it: quantities = {{NAME = "{label}"}}'
                problem = known.get(quantity, "" if is_name(quantity) else "no name for a measure")
                if problem and name != "toxicity":
                    raise self._source.refuse(("scorers", name, "quantities", quantity), quantity, problem, hint)
                known[quantity] = f"also a quantity of scorers.{name}"

    def _contrasts_of(self) -> Mapping[str, Weights]:
        described = self.file.groups
        for group in described:
            if group not in self.groups:
                hint = f"Groups: {', '.join(self.groups)}"
                raise self._source.refuse(("groups", group), group, "no prompt is of this group", hint)
        groups = {name: described[name].attributes if name in described else {} for name in self.groups}
        taken = {*TAKEN_BY_TEXTS, *self.file.scorers}
        declared = contrasts_of(self.file.contrasts, groups, taken, self._source.refuse)
        return {"gap" if name not in self.file.contrasts else name: weights for name, weights in declared.items()}


def _is_empty(row: Row) -> bool:
    return row.factors["kind"] == "text" and row.missing is None and row.values["empty"].value == 1
