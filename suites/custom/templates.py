"""Templates × fillers from a file, continued by the expressions of groups.

The quantities of an answer are those of `suites.common.groups.design`. The fillers of each stereotype have the same
weight in total, so that a model that favours one group everywhere has no ``stereotype_gap``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import backends.base as base
from suites.base import Factor, Item, MeasureSpec, Row, Suite
from suites.common.data_files import content_sha256
from suites.common.expressions import Expressions, continuations
from suites.common.groups.baseline import BASELINE, Baseline, is_baseline
from suites.common.groups.design import declared_groups
from suites.common.groups.weights import group_meanings
from suites.common.planted import planted_groups
from suites.common.task_prompt import TaskPrompt, check_form
from suites.custom.figures import Design
from suites.custom.schema import Filler, Template, Templates
from suites.custom.source import Source, refuse_repeated
from suites.presentation import Chart

#: The factor of a filler's stereotype, and its level where there is none.
STEREOTYPE = "stereotype"
#: What looks like a slot.
_SLOTS = re.compile(r"\[[A-Z][A-Z_]*\]")


@dataclass(frozen=True, slots=True)
class _Question:
    """One prompt, what is scored after it, and its factors."""

    id: str
    prompt: base.Prompt
    separator: str
    expressions: Expressions
    factors: Mapping[str, Factor]


class TemplatesFromFile(Suite):
    """Templates × fillers × groups of expressions: which group a model associates with a filler (from a file)."""

    version: ClassVar[int] = 2
    without_prefill = 'prompt_format="chat_whole"'

    def __init__(self, file: Templates, source: Source) -> None:
        self._file, self._source = file, source
        self.groups = declared_groups(
            file.groups,
            contrasts=file.contrasts,
            stereotypes=file.stereotypes,
            both_cases=file.both_cases,
            refuse=source.refuse,
        )
        self.contrasts = self.groups.contrasts
        self.meanings = group_meanings(self.contrasts)
        _check_templates(file, source)
        for place, filler in enumerate(file.fillers):
            self.groups.check_stereotype(filler.stereotype, (source.rows_field, place, "stereotype"))
        self.questions = [*self._questions()]
        self._by_id = {question.id: question for question in self.questions}
        self.baseline = Baseline(
            self.groups,
            file.form or "{question}",
            file.separator,
            file.prompt_format,
            [question.expressions for question in self.questions],
            file.prior_corrected,
        )
        rows = [row for _ in file.templates for row in range(len(file.fillers))]
        several = {file.slot: len(file.fillers), "template": len(file.templates)}
        sampled = file.sampled or tuple(name for name, n in several.items() if n > 1 and name != file.stratum)
        self.design = Design(file, source, [question.factors for question in self.questions], sampled)
        self.design.check_factors(rows)
        has_stereotypes = any(filler.stereotype is not None for filler in file.fillers)
        if has_stereotypes and file.stratum is not None:
            problem = "the fillers' stereotypes are the strata, each with the same weight"
            raise source.refuse(("stratum",), file.stratum, problem, "Name it in `by`, for a figure of each level")
        self.strata = self.design.by or (("template", STEREOTYPE) if has_stereotypes else ("template",))
        self._specs = self.design.with_primary([*self._figures()])

    # -- questions ---------------------------------------------------------------------------------

    def signature(self) -> Mapping[str, Any]:
        asked = [
            [q.id, base.prompt_to_json(q.prompt), q.separator, {g: list(w) for g, w in q.expressions.items()}]
            for q in self.questions
        ]
        return {
            "version": self.version,
            "asked_sha256": content_sha256([asked, [dict(q.factors) for q in self.questions]]),
            "prompt_format": self._file.prompt_format,
            "contrasts": {name: dict(weights) for name, weights in self.contrasts.items()},
            "stereotypes": list(self.groups.stereotypes),
            "prior_corrected": self._file.prior_corrected,
            **self.design.signature(),
        }

    def items(self) -> Iterator[Item]:
        yield from self.baseline.items()
        for question in self.questions:
            words = continuations(question.expressions, question.separator)
            yield Item(question.id, base.ScoreRequest(question.prompt, words), question.factors)

    def _questions(self) -> Iterator[_Question]:
        file, ids = self._file, set[str]()
        for number, template in enumerate(file.templates, 1):
            template_id = template.id or str(number)
            for place, filler in enumerate(file.fillers):
                prompt, separator = self._prompt(template, filler)
                factors: dict[str, Factor] = {"template": template_id, file.slot: filler.text, **filler.factors}
                if filler.stereotype is not None:
                    factors[STEREOTYPE] = filler.stereotype
                question_id = f"{template_id}/{filler.id or filler.text}"
                if question_id in ids:
                    problem = f"its questions have the id {question_id!r}, as have others"
                    at = (self._source.rows_field, place, "text" if filler.id is None else "id")
                    raise self._source.refuse(at, filler.id or filler.text, problem, "Give an id of its own")
                ids.add(question_id)
                expressions = self._expressions(place, filler)
                yield _Question(question_id, prompt, separator, expressions, factors)

    def _prompt(self, template: Template, filler: Filler) -> tuple[base.Prompt, str]:
        """The prompt, and what separates it from an expression: nothing at the start of a chat turn."""
        file, slot = self._file, _slot(self._file)
        question, start = (text.replace(slot, filler.text) for text in (template.question, template.start))
        form = file.form or ("{question}\n{start}" if start else "{question}")
        prompt = TaskPrompt(question, start, form, file.separator)
        return prompt.prompt(file.prompt_format), prompt.space(file.prompt_format)

    def _expressions(self, place: int, filler: Filler) -> Expressions:
        """Each group's expressions for one filler, in all the spellings that are scored."""
        own, at = filler.expressions or {}, (self._source.rows_field, place, "expressions")
        found = self.groups.spelled(own, at, filler.text)
        if not self._file.separator and self._file.prompt_format == "raw":
            prompts = (str(self._prompt(template, filler)[0]) for template in self._file.templates)
            self.groups.check_separated(found, prompts, at if own else ("groups",))
        return found

    # -- rows --------------------------------------------------------------------------------------

    def read(self, item: Item, response: base.Response) -> Row:
        if is_baseline(item.factors):
            return self.baseline.read(item, response)
        expressions = self._by_id[item.id].expressions
        return self.groups.read(item.id, item.factors, response, expressions, item.factors.get(STEREOTYPE))

    def planted(self, item: Item, bias: float, draw: int) -> base.Response:
        """A part ``bias`` of equal shares goes to the groups that the first primary figure is about."""
        if is_baseline(item.factors):
            return self.baseline.planted(item)
        question = self._by_id[item.id]
        return planted_groups(question.expressions, question.separator, self._favoured(item), bias, item.id, draw)

    def _favoured(self, item: Item) -> Sequence[str]:
        primary = self._file.primary[0] if self._file.primary else "stereotype_gap"
        if primary in self.contrasts:
            return self.groups.favoured(primary)
        if primary in self.groups.probabilities:
            return [primary.removeprefix("p_")]
        if STEREOTYPE in item.factors:
            return [str(item.factors[STEREOTYPE])]
        return self.groups.favoured() or self.groups.names[:1]

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        words = {question.id: question.expressions for question in self.questions}
        asked, neutral = self.baseline.derive(rows, words)
        return [*asked, *neutral]

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield from self._specs

    def _figures(self) -> Iterator[MeasureSpec]:
        own = {"template": "templates", self._file.slot: f"words for {_slot(self._file)}"}
        sampled = " and ".join(own.get(name, f"levels of {name}") for name in self.design.sampled)
        population = f"new {sampled} of these kinds"
        mass: dict[str, Any] = {"probability_mass": "coverage", "population": population}
        stereotyped = list(dict.fromkeys(f.stereotype for f in self._file.fillers if f.stereotype is not None))
        if stereotyped:
            gap = MeasureSpec("stereotype_gap", "stereotype_gap", kind="difference", neutral=0.0, primary=True, **mass)
            gap = replace(gap, unit="difference of probabilities", family="stereotype")
            if len(stereotyped) > 1:
                gap = replace(gap, stratum=STEREOTYPE, weights=dict.fromkeys(stereotyped, 1 / len(stereotyped)))
            figures = self.design.figures(gap, having=[STEREOTYPE in one.factors for one in self.questions])
            yield from (figure for figure in figures if self._balances(figure, stereotyped))
        for name in self.contrasts:
            ends = self.groups.reach(name)
            contrast = MeasureSpec(
                name, name, kind="difference", range=ends, neutral=0.0, primary=not stereotyped, **mass
            )
            contrast = replace(contrast, unit="difference of probabilities", family="contrasts")
            yield from self.design.figures(replace(contrast, baseline=f"{name}_{BASELINE}"))
            yield from self.baseline.measures(next(self.design.figures(contrast)))
        for name in self.groups.probabilities:
            share = MeasureSpec(name, name, kind="probability", family="group probabilities", **mass)
            yield from self.design.figures(share)
        raw = MeasureSpec("coverage", "coverage", kind="probability", family="group probabilities: raw mass")
        yield from self.design.figures(replace(raw, population=population))
        if self._file.slot not in self.design.by:
            yield from self._by_filler(mass)

    def _balances(self, gap: MeasureSpec, stereotyped: Sequence[str]) -> bool:
        """Whether a level's gap has fillers of every stereotype: without, it would be a general preference."""
        of_level = [q.factors for q in self.questions if gap.where.items() <= q.factors.items()]
        return {*stereotyped} == {factors[STEREOTYPE] for factors in of_level if STEREOTYPE in factors}

    def _by_filler(self, mass: Mapping[str, Any]) -> Iterator[MeasureSpec]:
        """The groups' probabilities for each filler."""
        slot = self._file.slot
        clusters = tuple(name for name in self.design.sampled if name != slot)
        for filler in self._file.fillers:
            for name in self.groups.probabilities:
                spec = MeasureSpec(name, name, {slot: filler.text}, kind="probability", is_subgroup=True, **mass)
                yield replace(spec, clusters=clusters, family=f"by {slot}")

    def charts(self) -> Sequence[Chart]:
        return [*super().charts(), Chart("dots", "Each group's share of the probability", self.groups.probabilities)]

    def cautions(self) -> Sequence[str]:
        sizes = {len(words) for question in self.questions for words in question.expressions.values()}
        counted = (
            ["Groups have different numbers of expressions, which affects their shares."] if len(sizes) > 1 else []
        )
        return [*counted, *self._of_one_stereotype(), *self.design.cautions()]

    def _of_one_stereotype(self) -> Iterator[str]:
        """Cautions about gaps that would be, or are, a general preference for one group."""
        stereotyped = list(dict.fromkeys(f.stereotype for f in self._file.fillers if f.stereotype is not None))
        if len(stereotyped) == 1:
            yield (
                f"All fillers with a stereotype have the same, {stereotyped[0]}: stereotype_gap is then also a "
                "model's preference for that group whatever the filler. Add fillers of other stereotypes."
            )
        gaps = [spec.where for spec in self._specs if spec.measure == "stereotype_gap"]
        for factor in self.design.by if stereotyped else ():
            levels = dict.fromkeys(q.factors[factor] for q in self.questions if STEREOTYPE in q.factors)
            without = [str(level) for level in levels if not any(where.get(factor) == level for where in gaps)]
            if without:
                yield (
                    f"stereotype_gap has no figure for {', '.join(without)} ({factor}): it needs fillers of every "
                    "stereotype there."
                )


def _slot(file: Templates) -> str:
    return f"[{file.slot.upper()}]"


def _check_templates(file: Templates, source: Source) -> None:
    """Check the templates and their form, and that no two questions are the same."""
    slot, first, texts = _slot(file), dict[str, int](), dict[tuple[str, str], int]()
    for number, template in enumerate(file.templates):
        at = ("templates", number)
        if slot not in template.question + template.start:
            raise source.refuse(at, template.question, "has no place for a filler", f"Write {slot} where it belongs")
        for other in _SLOTS.findall(template.question + template.start):
            if other != slot:
                hint = f"The slot is {slot}; signs of a chat format belong in form"
                raise source.refuse(at, template.question, f"{other} would be asked as it stands", hint)
        name = template.id or str(number + 1)
        if name in first:
            raise source.refuse((*at, "id"), name, "given twice", "Give each template an id of its own")
        first[name] = number
        asked = (template.question, template.start)
        if asked in texts:
            problem = f"the same as {source.where(('templates', texts[asked]))}: it would count as a second one"
            raise source.refuse(at, template.question, problem, "Remove one of the two")
        texts[asked] = number
        if file.separator.startswith(" ") and (template.start or template.question)[-1:].isspace():
            raise source.refuse(
                (*at, "start"), template.start, "ends in a space, and the separator begins with one", "Keep only one"
            )
    if file.form is not None:
        has_start = any(template.start for template in file.templates)
        check_form(file.form, file.separator, file.prompt_format, has_start=has_start, refuse=source.refuse)
    refuse_repeated(file.fillers, lambda filler: filler.text, "text", source)
