"""Texts that a model writes about groups: prompts from a file, read by expressions or classifiers.

A reading is a quantity of a text: 1 where the text contains one of the reading's expressions, else 0. Its figures are
the share of each group's texts, and contrasts of groups. Classifiers read as in `suites.kinds.texts`. An
expression matches whole words in any case; for scripts without spaces, it may match anywhere in the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import backends.base as base
from backends.errors import ConfigError
from backends.reading.words import finder_of
from suites.base import Factor, Item, MeasureSpec, Row, flag
from suites.common.data_files import content_sha256
from suites.common.groups.declared import is_name
from suites.common.groups.weights import contrasts_of, reading_meaning, score_meaning
from suites.common.planted import chance, planted_labels
from suites.common.raters import rater_cautions, rater_table
from suites.common.text_scorer import TextScorer, model_rater, text_scorer
from suites.custom.figures import Design, FromFile
from suites.custom.labelled import labelled_texts
from suites.custom.schema import TAKEN_BY_TEXTS, PromptRow, Rater, Texts
from suites.custom.source import Source
from suites.kinds.texts import ContinuedTexts, Contrasts, Opening
from suites.presentation import TableLayout


class TextsFromFile(FromFile, ContinuedTexts):
    """Prompts about groups, continued by the model and read by expressions or classifiers (from a file)."""

    version: ClassVar[int] = 5

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
        self._contrasts = self._contrasts_of()
        scored = [quantity for scorer in self.text_scorers.values() for quantity in scorer.labels]
        said = {**dict.fromkeys(scored, score_meaning), **dict.fromkeys(self._finders, reading_meaning)}
        self.meanings = {
            f"{quantity}_{contrast}": meaning(quantity, weights)
            for quantity, meaning in said.items()
            for contrast, weights in self._contrasts.items()
        }
        self.clusters = self.design.sampled
        self.strata = tuple(dict.fromkeys(("group", *self.design.by)))
        self.data_sha256 = content_sha256([[one.id, one.text, one.group, dict(one.factors)] for one in self.openings])
        self.specs = self.design.with_primary([*self._figures()])

    @property
    def contrasts(self) -> Contrasts:
        return self._contrasts

    @cached_property
    def needs(self) -> frozenset[base.Capability]:
        return super().needs | {"recorded"} if self.recorded else super().needs

    def signature(self) -> Mapping[str, Any]:
        return {
            **super().signature(),
            "readings": {name: list(words) for name, words in self._file.readings.items()},
            "match": self._file.match,
            "contrasts": {name: dict(weights) for name, weights in self.contrasts.items()},
        }

    def read(self, item: Item, response: base.Response) -> Row:
        row = super().read(item, response)
        if not isinstance(response, base.GenerateResponse) or not response.text.strip():
            return row
        found = {name: flag(is_in(response.text)) for name, is_in in self._finders.items()}
        return replace(row, values={**row.values, **found})

    def planted(self, item: Item, bias: float, draw: int) -> base.Response | None:
        """A text contains an expression of each reading with a probability of 0.3, which ``bias`` raises for one side
        of the first contrast and lowers for the other; so for the first quantity of each scorer, whose rater is nearly
        right about labelled texts."""
        if item.scorer is not None and item.is_control:
            return self._rated_right(item, draw)
        first = next(iter(self.contrasts.values()), {})
        side = (first.get(str(item.factors["group"]), 0.0) > 0) - (first.get(str(item.factors["group"]), 0.0) < 0)
        share = min(1.0, max(0.0, 0.3 + side * bias / 2))
        if item.scorer is not None:
            labels = [*self.text_scorers[item.scorer].labels.values()]
            return planted_labels(labels, labels[0], share, item.id, draw)
        said = [w[0] for name, w in self._file.readings.items() if chance(name, item.id, draw) < share]
        return base.GenerateResponse(f"This is made up: {', '.join(said) or 'nothing'}.", "stop")

    def _rated_right(self, item: Item, draw: int) -> base.ClassifyResponse:
        rater = self.raters[str(item.scorer)]
        labels = [*rater.labels.values()]
        own = [label for quantity, label in rater.labels.items() if rater.has(quantity, str(item.factors["label"]))]
        chosen, share = (own[0], 0.9) if own else (labels[0], 0.1)
        return planted_labels(labels, chosen, share, item.id, draw)

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The readings of an empty text are missing, not 0."""
        read = [
            Row(row.item_id, row.factors, {}, "empty", row.items) if _is_empty(row) and self._finders else row
            for row in rows
        ]
        derived = super().derive(read)
        texts = [row for row in read if row.factors["kind"] == "text" and self._finders]
        return [*derived, *(one for row in texts for one in self.contrasted(row, {}))]

    def _figures(self) -> Iterator[MeasureSpec]:
        population: dict[str, Any] = {"population": "new prompts of these kinds"}
        for place, name in enumerate(self._finders):
            for contrast, weights in self.contrasts.items():
                counted = all(abs(weight) == 1 for weight in weights.values())
                spec = self.contrast_of(contrast, name, "text", primary=place == 0, is_count=counted, **population)
                yield from self.design.figures(replace(spec, family=name), all_strata=True)
            for group in self.groups:
                where = {"kind": "text", "group": group}
                spec = MeasureSpec(name, name, where, unit="share", kind="share", family=name, **population)
                yield from self.design.figures(spec, having=self._is_of(group))
        for spec in ContinuedTexts.measures(self, ()):
            if spec.measure == "empty_share" and self._finders:
                continue  # an empty text is a missing answer
            if "group" in spec.where:
                yield from self.design.figures(spec, having=self._is_of(str(spec.where["group"])))
            else:
                yield from self.design.figures(spec, all_strata=True) if spec.stratum == "group" else (spec,)

    def _is_of(self, group: str) -> list[bool]:
        """Which questions are about this group."""
        return [one.group == group for one in self.openings]

    def tables(self) -> Sequence[TableLayout]:
        return [rater_table(self.raters.values())] if self.raters else []

    def cautions(self) -> Sequence[str]:
        said = [*super().cautions()]
        if empty := sum(not text.strip() for _, text in self.recorded):
            said.append(f"Of {len(self.recorded)} stored completions {empty} are empty: they count as missing answers.")
        return [*said, *rater_cautions(self.raters.values(), self.groups)]

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

    def _text_scorer(self, name: str, choice: str | Rater | TextScorer) -> TextScorer:
        try:
            if isinstance(choice, Rater):
                return self._by_rubric(name, choice)
            return text_scorer(name, self._near(choice, Path.is_dir) if isinstance(choice, str) else choice)
        except ConfigError as error:
            if ":" in error.field:  # a line of another file
                raise
            inner = error.field.removeprefix(f"{name}.").split(".")
            place = ("scorers", name, *(inner if inner[0] in Rater.model_fields else ()))
            raise self._source.refuse(place, error.value, error.problem, error.hint) from None

    def _by_rubric(self, name: str, rater: Rater) -> TextScorer:
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

    def _contrasts_of(self) -> Contrasts:
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
