"""Templates × fillers from a file, continued by the expressions of groups.

    P̃(group) = mass of the group's expressions / mass of all        (equation 4 of Chen et al. 2025, for any groups)

A contrast is Σ weight · P̃(group). ``stereotype_gap`` of a filler is P̃ of the group that it is stereotyped with minus
the mean over the other groups that stereotypes speak of: fillers of each stereotype count alike, so that a model that
favours one group everywhere has no gap. An expression counts only where no longer one goes on from it
(`suites.common.groups`).
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import backends.base as base
from backends.options import Place
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, Suite
from suites.common.data_files import content_sha256
from suites.common.expressions import Expressions, both_cases, continuations
from suites.common.groups import read_groups, refuse_double
from suites.common.planted import planted_groups
from suites.common.probabilities import ImpossibleMassError
from suites.custom.contrasts import Weights, contrasts_of
from suites.custom.figures import Design
from suites.custom.schema import Filler, Template, Templates
from suites.custom.source import Source, refuse_repeated, without_spaces
from suites.presentation import Chart

#: The factor of a filler's stereotype, and its level where there is none.
STEREOTYPE = "stereotype"


@dataclass(frozen=True, slots=True)
class _Question:
    """One prompt: its text or turns, what follows, and the design."""

    id: str
    prompt: base.Prompt
    separator: str
    expressions: Expressions
    factors: Mapping[str, Factor]


class TemplatesFromFile(Suite):
    """Templates × fillers × groups of expressions: which group a model has in mind (from a file)."""

    version: ClassVar[int] = 1

    def __init__(self, file: Templates, source: Source) -> None:
        self._file, self._source = file, source
        self.groups = {name: group.attributes for name, group in file.groups.items()}
        _check_templates(file, source)
        self.stereotypes = self._stereotypes()
        self.questions = [*self._questions()]
        self._by_id = {question.id: question for question in self.questions}
        rows = [row for _ in file.templates for row in range(len(file.fillers))]
        several = {file.slot: len(file.fillers), "template": len(file.templates)}
        sampled = file.sampled or tuple(name for name, n in several.items() if n > 1 and name != file.stratum)
        self.design = Design(file, source, [question.factors for question in self.questions], sampled)
        self.design.check_factors(rows)
        taken = {"coverage", "stereotype_gap", *(f"p_{group}" for group in self.groups)}
        self.contrasts = contrasts_of(file.contrasts, self.groups, source, taken)
        has_stereotypes = any(filler.stereotype is not None for filler in file.fillers)
        self.strata = self.design.by or (("template", STEREOTYPE) if has_stereotypes else ("template",))
        self._specs = self.design.with_primary([*self._figures()])

    # -- questions ---------------------------------------------------------------------------------

    @property
    def needs(self) -> frozenset[base.Capability]:
        return frozenset({"score", "chat"} if self._file.prompt_format == "chat" else {"score"})

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
            "stereotypes": list(self.stereotypes),
            **self.design.signature(),
        }

    def items(self) -> Iterator[Item]:
        for question in self.questions:
            words = continuations(question.expressions, question.separator)
            yield Item(question.id, base.ScoreRequest(question.prompt, words), question.factors)

    def _questions(self) -> Iterator[_Question]:
        file = self._file
        for number, template in enumerate(file.templates, 1):
            template_id = template.id or str(number)
            for place, filler in enumerate(file.fillers):
                prompt, separator = self._prompt(template, filler)
                factors: dict[str, Factor] = {"template": template_id, file.slot: filler.text, **filler.factors}
                if filler.stereotype is not None:
                    factors[STEREOTYPE] = filler.stereotype
                expressions = self._expressions(place, filler)
                yield _Question(f"{template_id}/{filler.id or filler.text}", prompt, separator, expressions, factors)

    def _prompt(self, template: Template, filler: Filler) -> tuple[base.Prompt, str]:
        """The prompt, and what separates it from an expression: nothing at the start of a chat turn."""
        slot = _slot(self._file)
        question, start = (text.replace(slot, filler.text) for text in (template.question, template.start))
        if self._file.prompt_format == "chat":
            turns = [base.Message("user", question), *([base.Message("assistant", start)] if start else [])]
            return tuple(turns), self._file.separator if start else ""
        if self._file.form is not None:
            return self._file.form.format(question=question, start=start), self._file.separator
        return f"{question}\n{start}" if start else question, self._file.separator

    def _expressions(self, place: int, filler: Filler) -> Expressions:
        """Each group's expressions for one filler, in all the spellings that are scored."""
        own, rows_field = filler.expressions or {}, self._source.rows_field
        for group in own:
            if group not in self.groups:
                where = (rows_field, place, "expressions", group)
                raise self._source.refuse(where, group, "no such group", f"Groups: {', '.join(self.groups)}")
        found: dict[str, tuple[str, ...]] = {}
        for name, declared in self._file.groups.items():
            words = own.get(name) or declared.expressions
            if words is None:
                problem = f"neither the group nor {filler.text!r} has expressions"
                raise self._source.refuse(("groups", name), name, problem, "Give them in one of the two")
            found[name] = both_cases(words) if self._file.both_cases else tuple(dict.fromkeys(words))
        at = (rows_field, place, "expressions") if own else ("groups",)
        self._check_separator(found, filler, at)
        refuse_double(found, self._shared(), lambda group, *rest: self._source.refuse((*at, group), *rest))
        return found

    def _check_separator(self, found: Expressions, filler: Filler, at: Place) -> None:
        """Refuse an expression that runs into the word before it."""
        if self._file.separator or self._file.prompt_format == "chat":
            return
        ends = {self._prompt(template, filler)[0][-1:] for template in self._file.templates}
        for group, words in found.items():
            for word in words:
                if any(str(end).isalnum() and not without_spaces(str(end)) for end in ends) and word[0].isalnum():
                    problem = 'runs into the word before it: the separator is ""'
                    raise self._source.refuse((*at, group), word, problem, 'Leave separator out, or give " "')

    def _shared(self) -> tuple[str, ...]:
        return both_cases(self._file.shared) if self._file.both_cases else self._file.shared

    def _stereotypes(self) -> tuple[str, ...]:
        """The groups that stereotypes speak of."""
        named = self._file.stereotypes or tuple(self.groups)
        for group in named:
            if group not in self.groups:
                hint = f"Groups: {', '.join(self.groups)}"
                raise self._source.refuse(("stereotypes",), group, "no such group", hint)
        if len(set(named)) < 2:
            raise self._source.refuse(("stereotypes",), named, "one group only", "Name two or more, or leave it out")
        for place, filler in enumerate(self._file.fillers):
            if filler.stereotype is not None and filler.stereotype not in named:
                where = (self._source.rows_field, place, "stereotype")
                raise self._source.refuse(where, filler.stereotype, "no such group", f"Groups: {', '.join(named)}")
        return named

    # -- rows --------------------------------------------------------------------------------------

    def read(self, item: Item, response: base.Response) -> Row:
        assert isinstance(response, base.ScoreResponse)
        try:
            answer = read_groups(response.scores, self._by_id[item.id].expressions)
        except ImpossibleMassError:
            return Row(item.id, item.factors, {}, missing="inconsistent")
        values: dict[str, IdentifiedInterval] = {f"p_{group}": share for group, share in answer.normalised.items()}
        values["coverage"] = answer.probability_mass
        for name, weights in self.contrasts.items():
            values[name] = answer.contrast(weights)
        if (stereotype := item.factors.get(STEREOTYPE)) is not None:
            values["stereotype_gap"] = answer.contrast(self._gap_of(str(stereotype)))
        return Row(item.id, item.factors, values)

    def planted(self, item: Item, bias: float, draw: int) -> base.Response:
        """The part ``bias`` of equal shares goes to the stereotype's group, else to those of the first contrast."""
        question = self._by_id[item.id]
        first = next(iter(self.contrasts.values()), {next(iter(self.groups)): 1.0})
        favoured = [group for group, weight in first.items() if weight > 0]
        towards = [str(item.factors[STEREOTYPE])] if STEREOTYPE in item.factors else favoured
        return planted_groups(question.expressions, question.separator, towards, bias, item.id, draw)

    def _gap_of(self, stereotype: str) -> Weights:
        others = [group for group in self.stereotypes if group != stereotype]
        return {stereotype: 1.0, **dict.fromkeys(others, -1 / len(others))}

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield from self._specs

    def _figures(self) -> Iterator[MeasureSpec]:
        population = f"new {' and '.join(f'{name}s' for name in self.design.sampled)} of these kinds"
        mass: dict[str, Any] = {"probability_mass": "coverage", "population": population}
        stereotyped = list(dict.fromkeys(f.stereotype for f in self._file.fillers if f.stereotype is not None))
        if stereotyped:
            gap = MeasureSpec("stereotype_gap", "stereotype_gap", kind="difference", neutral=0.0, primary=True, **mass)
            gap = replace(gap, unit="difference of probabilities", family="stereotype")
            if len(stereotyped) > 1:
                gap = replace(gap, stratum=STEREOTYPE, weights=dict.fromkeys(stereotyped, 1 / len(stereotyped)))
            yield from self.design.figures(gap)
        for name, weights in self.contrasts.items():
            ends = min(0.0, *weights.values()), max(0.0, *weights.values())
            contrast = MeasureSpec(
                name, name, kind="difference", range=ends, neutral=0.0, primary=not stereotyped, **mass
            )
            yield from self.design.figures(replace(contrast, unit="difference of probabilities", family="contrasts"))
        for group in self.groups:
            share = MeasureSpec(f"p_{group}", f"p_{group}", kind="probability", family="group probabilities", **mass)
            yield from self.design.figures(share)
        raw = MeasureSpec("coverage", "coverage", kind="probability", family="group probabilities: raw mass")
        yield from self.design.figures(replace(raw, population=population))
        if self._file.slot not in self.design.by:
            yield from self._by_filler(mass)

    def _by_filler(self, mass: Mapping[str, Any]) -> Iterator[MeasureSpec]:
        """The groups' probabilities of each filler."""
        slot = self._file.slot
        clusters = tuple(name for name in self.design.sampled if name != slot)
        for filler in self._file.fillers:
            for group in self.groups:
                name = f"p_{group}"
                spec = MeasureSpec(name, name, {slot: filler.text}, kind="probability", is_subgroup=True, **mass)
                yield replace(spec, clusters=clusters, family=f"by {slot}")

    def charts(self) -> Sequence[Chart]:
        shares = tuple(f"p_{group}" for group in self.groups)
        primary = tuple(dict.fromkeys(spec.measure for spec in self._specs if spec.primary))
        found = [Chart("dots", f"{name}: 0 is no difference", (name,)) for name in primary]
        found += [Chart("dots", "Each group's share of the probability", (share,)) for share in shares]
        return found

    def cautions(self) -> Sequence[str]:
        sizes = {len(words) for question in self.questions for words in question.expressions.values()}
        counted = ["Groups have different numbers of expressions, which moves their shares."] if len(sizes) > 1 else []
        return [*counted, *self.design.cautions()]


def _slot(file: Templates) -> str:
    return f"[{file.slot.upper()}]"


def _check_templates(file: Templates, source: Source) -> None:
    """Templates, their form, and that no two questions are the same."""
    slot, first, texts = _slot(file), dict[str, int](), dict[tuple[str, str], int]()
    for number, template in enumerate(file.templates):
        at = ("templates", number)
        if slot not in template.question + template.start:
            raise source.refuse(at, template.question, "has no place for a filler", f"Write {slot} there")
        name = template.id or str(number + 1)
        if name in first:
            raise source.refuse((*at, "id"), name, "given twice", "Give each template an id of its own")
        first[name] = number
        asked = (template.question, template.start)
        if asked in texts:
            problem = f"the same as {source.where(('templates', texts[asked]))}: it would count as another one"
            raise source.refuse(at, template.question, problem, "Remove one of the two")
        texts[asked] = number
        if file.separator.startswith(" ") and (template.start or template.question)[-1:].isspace():
            raise source.refuse(
                (*at, "start"), template.start, "ends in a space, and so begins the separator", "Keep one"
            )
    _check_form(file, source)
    refuse_repeated(file.fillers, lambda filler: filler.text, "text", source)


def _check_form(file: Templates, source: Source) -> None:
    if file.form is None:
        return
    hint = 'Write e.g. "Pregunta: {question}\\nRespuesta:{start}"'
    try:
        named = [name for _, name, _, _ in string.Formatter().parse(file.form) if name is not None]
    except ValueError as error:
        raise source.refuse(("form",), file.form, str(error), hint) from None
    if sorted(named) != sorted({*named}) or "question" not in named or set(named) - {"question", "start"}:
        raise source.refuse(("form",), file.form, "does not hold {question} once, and {start}", hint)
    if any(template.start for template in file.templates) and "start" not in named:
        raise source.refuse(("form",), file.form, "has no place for the templates' start", hint)
    if file.prompt_format == "chat":
        hint = "Leave it out: in chat the question and the start are turns"
        raise source.refuse(("form",), file.form, "is for raw prompts", hint)
