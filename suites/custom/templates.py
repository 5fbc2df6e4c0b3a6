"""Templates × fillers from a file, continued by the expressions of groups.

The quantities of an answer are those of `suites.common.groups.design`. The fillers of each stereotype have the same
weight in total, so that a model that favours one group everywhere has no ``stereotype_gap``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import backends.base as base
from suites.base import Factor, Item, MeasureSpec, Row, Suite, primary_charts
from suites.common.expressions import Expressions, continuations
from suites.common.groups.baseline import BASELINE, Baseline, is_baseline
from suites.common.groups.design import declared_groups
from suites.common.groups.weights import group_meanings
from suites.common.planted import planted_groups
from suites.common.task_prompt import TaskPrompt
from suites.custom.figures import Design, FromFile
from suites.custom.schema import Filler, Template, Templates
from suites.custom.source import Source
from suites.presentation import Chart

#: The factor of a filler's stereotype.
STEREOTYPE = "stereotype"


class TemplatesFromFile(FromFile):
    """Templates × fillers × groups of expressions: which group a model associates with a filler (from a file)."""

    kind = Templates
    file: Templates
    version = 2

    def set_up(self, file: Templates, source: Source) -> None:
        self.file = file
        self.groups = declared_groups(
            file.groups,
            contrasts=file.contrasts,
            stereotypes=file.stereotypes,
            both_cases=file.both_cases,
            refuse=source.refuse,
        )
        self.contrasts = self.groups.contrasts
        source.refuse_twice((t.id or str(n) for n, t in enumerate(file.templates, 1)), "templates", "id", "Change one")
        asked = ((template.question, template.start) for template in file.templates)
        source.refuse_twice(asked, "templates", "question", "Remove one of the two")
        for place, filler in enumerate(file.fillers):
            self.groups.check_stereotype(filler.stereotype, ("fillers", place, STEREOTYPE))
        self._words = {filler.text: self._expressions(place, filler) for place, filler in enumerate(file.fillers)}
        self.questions = [*self._questions(file)]
        self.baseline = Baseline(
            self.groups,
            file.form or "{question}",
            file.separator,
            file.prompt_format,
            [*self._words.values()],
            file.prior_corrected,
        )
        several = {file.slot: len(file.fillers), "template": len(file.templates)}
        sampled = file.sampled or tuple(name for name, n in several.items() if n > 1 and name != file.stratum)
        self.design = Design(file, source, [question.factors for question in self.questions], sampled)
        self._stereotyped = list(dict.fromkeys(f.stereotype for f in file.fillers if f.stereotype is not None))
        if self._stereotyped and file.stratum is not None:
            problem = "the fillers' stereotypes are the strata, each with the same weight"
            raise source.refuse(("stratum",), file.stratum, problem, "Name it in `by`, for a figure of each level")
        self.specs = self.design.with_primary([*self._figures()])
        strata = file.levels_with_figures or (("template", STEREOTYPE) if self._stereotyped else ("template",))
        shares = Chart("dots", "Each group's share of the probability", self.groups.probabilities)
        charts, meanings = [*primary_charts(self.specs), shares], group_meanings(self.contrasts)
        Suite.__init__(self, **self.data_of(strata, self._of_expressions(), charts=charts, meanings=meanings))

    # -- questions ---------------------------------------------------------------------------------

    def items(self) -> Iterator[Item]:
        yield from (*self.baseline.items(), *self.questions)

    def _questions(self, file: Templates) -> Iterator[Item]:
        for number, template in enumerate(file.templates, 1):
            template_id = template.id or str(number)
            for filler in file.fillers:
                prompt, separator = self._prompt(template, filler)
                factors: dict[str, Factor] = {"template": template_id, file.slot: filler.text, **filler.attributes}
                if filler.stereotype is not None:
                    factors[STEREOTYPE] = filler.stereotype
                words = continuations(self._words[filler.text], separator)
                yield Item(f"{template_id}/{filler.id or filler.text}", base.ScoreRequest(prompt, words), factors)

    def _prompt(self, template: Template, filler: Filler) -> tuple[base.Prompt, str]:
        """The prompt, and what separates it from an expression: nothing at the start of a chat turn."""
        file = self.file
        question, start = (text.replace(file.place, filler.text) for text in (template.question, template.start))
        form = file.form or ("{question}\n{start}" if start else "{question}")
        prompt = TaskPrompt(question, start, form, file.separator)
        return prompt.prompt(file.prompt_format), prompt.space(file.prompt_format)

    def _expressions(self, place: int, filler: Filler) -> Expressions:
        """Each group's expressions for one filler, in all the spellings that are scored."""
        own, at = filler.expressions or {}, ("fillers", place, "expressions")
        found = self.groups.spelled(own, at, filler.text)
        if not self.file.separator and self.file.prompt_format == "raw":
            prompts = (str(self._prompt(template, filler)[0]) for template in self.file.templates)
            self.groups.check_separated(found, prompts, at if own else ("groups",))
        return found

    # -- rows --------------------------------------------------------------------------------------

    def read(self, item: Item, response: base.Response) -> Row:
        if is_baseline(item.factors):
            return self.baseline.read(item, response)
        return self.groups.read(item.id, item.factors, response, self._words_of(item), item.factors.get(STEREOTYPE))

    def _words_of(self, asked: Item | Row) -> Expressions:
        return self._words[str(asked.factors[self.file.slot])]

    def planted(self, item: Item, bias: float, draw: int) -> base.Response:
        """A part ``bias`` of equal shares goes to the groups that the first primary figure is about."""
        if is_baseline(item.factors):
            return self.baseline.planted(item)
        return planted_groups(self._words_of(item), item, self._favoured(item), bias, item.id, draw)

    def _favoured(self, item: Item) -> Sequence[str]:
        primary = self.file.primary[0] if self.file.primary else "stereotype_gap"
        if primary in self.contrasts:
            return self.groups.favoured(primary)
        if primary in self.groups.probabilities:
            return [primary.removeprefix("p_")]
        if STEREOTYPE in item.factors:
            return [str(item.factors[STEREOTYPE])]
        return self.groups.favoured() or self.groups.names[:1]

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        asked, neutral = self.baseline.derive(rows, self._words_of)
        return [*asked, *neutral]

    def _figures(self) -> Iterator[MeasureSpec]:
        file = self.file
        own = {"template": "templates", file.slot: f"words for {file.place}"}
        sampled = " and ".join(own.get(name, f"levels of {name}") for name in self.design.sampled)
        population = f"new {sampled} of these kinds"
        mass: dict[str, Any] = {"probability_mass": "coverage", "population": population}
        difference: dict[str, Any] = {
            "kind": "difference",
            "neutral": 0.0,
            "unit": "difference of probabilities",
            **mass,
        }
        if stereotyped := self._stereotyped:
            gap = MeasureSpec("stereotype_gap", "stereotype_gap", primary=True, family="stereotype", **difference)
            if len(stereotyped) > 1:
                gap = replace(gap, stratum=STEREOTYPE, weights=dict.fromkeys(stereotyped, 1 / len(stereotyped)))
            # Of a level without fillers of every stereotype, it would be a general preference.
            yield from self.design.figures(gap, [STEREOTYPE in one for one in self.design.factors])
        for name in self.contrasts:
            primary, ends = not stereotyped, self.groups.reach(name)
            contrast = MeasureSpec(name, name, range=ends, primary=primary, family="contrasts", **difference)
            yield from self.design.figures(replace(contrast, baseline=f"{name}_{BASELINE}"))
            yield from self.baseline.measures(next(self.design.figures(contrast)))
        for name in self.groups.probabilities:
            share = MeasureSpec(name, name, kind="probability", family="group probabilities", **mass)
            yield from self.design.figures(share)
        raw = MeasureSpec("coverage", "coverage", kind="probability", family="group probabilities: raw mass")
        yield from self.design.figures(replace(raw, population=population))
        clusters = tuple(name for name in self.design.sampled if name != file.slot)
        for filler in file.fillers if file.slot not in file.levels_with_figures else ():
            for name in self.groups.probabilities:
                where = {file.slot: filler.text}
                spec = MeasureSpec(name, name, where, kind="probability", is_subgroup=True, clusters=clusters, **mass)
                yield replace(spec, family=f"by {file.slot}")

    def _of_expressions(self) -> Iterator[str]:
        if len({len(words) for of_filler in self._words.values() for words in of_filler.values()}) > 1:
            yield "Groups have different numbers of expressions, which affects their shares."
        if len(self._stereotyped) == 1:
            yield (
                f"All fillers with a stereotype have the same, {self._stereotyped[0]}: stereotype_gap is then also a "
                "model's preference for that group whatever the filler. Add fillers of other stereotypes."
            )
