"""The figures of OccuGender, their tables and charts, and the paper's printed values."""

from __future__ import annotations

import math
import operator
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suites.base import UNKNOWN_SHARE, Factor, IdentifiedInterval, MeasureSpec, Row
from suites.common.data_files import PublishedDesign, load, published_source
from suites.common.gender_figures import contrast_figures, figure, group_columns, published_probabilities
from suites.common.groups.design import NEUTRAL, PAPERS_GROUPS, GroupDesign
from suites.common.occupations import Occupation
from suites.occugender.material import Template
from suites.presentation import Chart, Drafts, PublishedFigure, TableColumn, TableLayout


@dataclass(frozen=True, slots=True)
class Measures:
    """All figures of a design.

    ``instructions``: debiasing instruction → its degree of abstraction.
    """

    biases: tuple[str, ...]
    instructions: Mapping[int, str]
    templates: tuple[Template, ...]
    occupations: tuple[Occupation, ...]
    groups: GroupDesign

    def specs(self) -> Iterator[MeasureSpec]:
        """The figures, bias by bias."""
        none: dict[str, Factor] = {"debiasing": None}
        instructions: list[dict[str, Factor]] = [{"debiasing": i} for i in self.instructions]
        ten_templates = [{**none, "ten_templates": True}] if self.instructions else []
        abstractions: list[dict[str, Factor]] = [{"abstraction": degree} for degree in self.abstractions]
        for bias in self.biases:
            for level in (none, *ten_templates, *instructions, *abstractions):
                yield from self._answers({"bias": bias, **level})
            yield from self._effects(bias)
            for level in (none, *instructions):
                yield from self._occupations({"bias": bias, **level})
                for template in self.templates:
                    if template.bias == bias and (level is none or template.for_debiasing):
                        yield from self._template({"bias": bias, **level, "template": template.id})
            if sum(t.bias == bias for t in self.templates) > 1:
                yield from self._plus_minus(bias)

    @property
    def abstractions(self) -> list[str]:
        """The degrees of abstraction of the chosen instructions."""
        return list(dict.fromkeys(self.instructions.values()))

    def _effects(self, bias: str) -> Iterator[MeasureSpec]:
        measures = {"effect": self._stereotyped} if self._stereotyped else {}
        measures |= {f"effect_p_{group}": self.dominated for group in self.groups.others}
        for measure, groups in measures.items():
            for i in self.instructions:
                where: dict[str, Factor] = {"bias": bias, "instruction": i}
                yield figure(measure, where, f"{measure}, {bias}", groups=groups)
            for degree in self.abstractions:
                where = {"bias": bias, "degree": degree}
                yield figure(measure, where, f"{measure}, {bias}, by abstraction", groups=groups)
        for i in self.instructions:
            family = f"effect_{{}}, {bias}"
            yield from contrast_figures(self.groups, {"bias": bias, "instruction": i}, family, "effect_{}")

    @property
    def dominated(self) -> list[str]:
        """The groups of occupations: one per stereotype, and the neutral ones."""
        return sorted({o.dominated_by for o in self.occupations})

    @property
    def _stereotyped(self) -> list[str]:
        """The groups of occupations with a stereotype."""
        return [group for group in self.dominated if group != NEUTRAL]

    def _answers(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        """The figures over all occupations."""
        primary = where.get("debiasing", "") is None and "ten_templates" not in where
        for group in self.dominated:
            of_group = {**where, "dominated_by": group}
            for measure in self.groups.probabilities:
                yield figure(measure, of_group, "group probabilities")
            yield figure("coverage", of_group, "group probabilities: raw mass")
        if self._stereotyped:
            yield figure("stereotype_gap", where, "stereotype", groups=self._stereotyped, primary=primary)
        yield from contrast_figures(self.groups, where, "contrasts", primary=primary and not self._stereotyped)
        if len({o.female_share for o in self.occupations} - {None}) > 1 and "female" in self.groups.names:
            share = figure("p_female", where, "stereotype", primary=primary)
            share = replace(share, measure="share_correlation", estimator="correlation", covariate="female_share")
            yield replace(share, unit="correlation", neutral=0.0)

    def _occupations(self, level: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        """The figures of each occupation."""
        for occupation in self.occupations:
            families = {**dict.fromkeys(self.groups.probabilities, "occupations"), "coverage": "occupations: raw mass"}
            if occupation.dominated_by != NEUTRAL:
                families["stereotype_gap"] = "occupations"
            for measure, family in families.items():
                where = {**level, "occupation": occupation.name}
                yield figure(measure, where, family, clusters=("template",), is_subgroup=True)

    def _template(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        """The probabilities and the gap of one template, clustered by occupation."""
        of_one: dict[str, Any] = {"clusters": ("occupation",), "is_subgroup": True}
        for group in self.dominated:
            for measure in self.groups.probabilities:
                yield figure(measure, {**where, "dominated_by": group}, "templates", **of_one)
        if self._stereotyped:
            yield figure("stereotype_gap", where, "templates", groups=self._stereotyped, **of_one)

    def _plus_minus(self, bias: str) -> Iterator[MeasureSpec]:
        """The ± of every condition. It has no interval: it is a single number for the whole design."""
        unit = "standard deviation over templates ÷ √occupations"
        for level in (None, *self.instructions):
            for group in self.dominated:
                for measure in map(plus_minus_of, self.groups.probabilities):
                    where, family = plus_minus_where(bias, level, group), "plus-minus"
                    yield MeasureSpec(measure, measure, where, unit=unit, family=family, is_subgroup=True)


# -- by template -------------------------------------------------------------------------------------


#: Value of the factor ``debiasing`` in rows over templates, which keeps them out of figures over answers.
OVER_TEMPLATES = "over templates"


def plus_minus_of(measure: str) -> str:
    """The name of a probability's ±."""
    return f"{measure}_plus_minus"


def plus_minus_where(bias: str, level: Factor, group: str) -> dict[str, Factor]:
    """The factors of one condition's ±."""
    return {"bias": bias, "debiasing": OVER_TEMPLATES, "of": level, "dominated_by": group}


def plus_minus_rows(rows: Sequence[Row], probabilities: Sequence[str]) -> Iterator[Row]:
    """The ± of each condition and group of occupations, as printed in the paper.

    The sample standard deviation over templates of a template's mean over the group's occupations, divided by the
    root of the number of occupations (25 templates and √20 in the paper). Missing if any answer is. Left out if an
    answer is only known by bounds, with fewer than two templates, or if the templates were not asked the same
    occupations: in a sample, they would differ by the occupations that each happened to get.
    """
    conditions: dict[tuple[Factor, ...], dict[Factor, list[Row]]] = defaultdict(lambda: defaultdict(list))
    condition_of = operator.itemgetter("bias", "debiasing", "dominated_by")
    for row in rows:
        conditions[condition_of(row.factors)][row.factors["template"]].append(row)
    for (bias, level, group), by_template in conditions.items():
        of_one = [row for asked in by_template.values() for row in asked]
        missing = next((row.missing for row in of_one if row.missing is not None), None)
        if len({frozenset(row.factors["occupation"] for row in asked) for asked in by_template.values()}) > 1:
            continue
        values: dict[str, IdentifiedInterval] = {}
        for measure in probabilities if missing is None else ():
            of_templates = ([row.values.get(measure, UNKNOWN_SHARE) for row in asked] for asked in by_template.values())
            means = [*map(IdentifiedInterval.mean, of_templates)]  # no share where no drawn answer names a group
            known = [mean.value for mean in means if mean.value is not None]
            if len(known) == len(means) > 1:
                occupations = len(of_one) / len(means)
                error = statistics.stdev(known) / math.sqrt(occupations)
                values[plus_minus_of(measure)] = IdentifiedInterval.exact(error)
        if missing is not None or len(by_template) > 1:
            factors = {**plus_minus_where(str(bias), level, str(group)), "template": None, "occupation": None}
            sources = tuple(row.item_id for row in of_one)
            yield Row(f"{OVER_TEMPLATES}/{bias}/{level}/{group}", factors, values, missing, sources)


_DRAFTS = Drafts(load("occugender_report").content)


def published_figures(
    design: PublishedDesign, biases: Sequence[str], instructions: Sequence[int]
) -> Iterator[PublishedFigure]:
    """Tables 3 and 4, and Appendix E (ten templates) if instructions are asked, as far as the design is the same."""
    printed = load("published_results").content
    for bias in biases:
        where: dict[str, Factor] = {"bias": bias, "debiasing": None}
        source = published_source(f"occugender/{bias}", design)
        for entry in printed["occugender"][bias] if source is not None else ():
            figures = [*published_probabilities(entry["model"], where, [entry], source)]
            yield from figures
            for of in figures:  # the printed ± as figures of their own
                if of.plus_minus is not None:
                    here = plus_minus_where(bias, None, str(of.where["dominated_by"]))
                    measure, value = plus_minus_of(of.measure), of.plus_minus
                    yield replace(of, measure=measure, where=here, value=value, plus_minus=None)
        source = published_source(f"occugender_debiasing/{bias}", design) if instructions else None
        for model, conditions in printed["occugender_debiasing"]["models"].items() if source is not None else ():
            for condition in conditions:
                if condition["debiasing"] in (None, *instructions):
                    where = {"bias": bias, **_appendix_row(condition["debiasing"])}
                    yield from published_probabilities(model, where, [condition[bias]], source)


def table_layouts(design: PublishedDesign, measures: Measures) -> Iterator[TableLayout]:
    """Tables 3 and 4 with their ±, each template's figures, and Appendix E if instructions are asked."""
    printed = load("published_results").content
    source = printed["occugender"]["source"].partition("; pm = ")[0]  # the rest explains the fields of the data file
    of_appendix, each = printed["occugender_debiasing"]["source"], "gender"
    of: dict[str, Any] = {}
    if not (is_papers := measures.groups.names == PAPERS_GROUPS.names):
        source, of_appendix, each = "", "", "group"
        of = {"dominated": measures.dominated, "groups": measures.groups.names}
    columns = {b: [*group_columns({"bias": b, "debiasing": None}, **of)] for b in measures.biases}
    for bias in measures.biases:
        shown = published_source(f"occugender/{bias}", design) is not None
        note = "" if shown or not is_papers else str(_DRAFTS.content["of_another_design"])
        yield _DRAFTS.table(f"{bias}_bias", columns[bias], source=source, note=note, group=each)
        yield _DRAFTS.table(f"{bias}_plus_minus", map(_over_templates, columns[bias]), source=source)
    for bias in measures.biases:
        by_template = [(t.id, {"template": t.id}) for t in measures.templates if t.bias == bias]
        yield _DRAFTS.table(f"{bias}_by_template", columns[bias], by_template, source=source)
    if instructions := measures.instructions:
        of_biases = (c for b in measures.biases for c in group_columns({"bias": b}, f"{b.capitalize()}, ", **of))
        rows = [("None", _appendix_row(None)), *((str(i), _appendix_row(i)) for i in instructions)]
        rows += [(f"Average {degree}", {"abstraction": degree}) for degree in dict.fromkeys(instructions.values())]
        yield _DRAFTS.table("debiasing", of_biases, rows, source=of_appendix)


def _over_templates(column: TableColumn) -> TableColumn:
    where = plus_minus_where(str(column.where["bias"]), None, str(column.where["dominated_by"]))
    return replace(column, measure=plus_minus_of(column.measure), where=where)


def _appendix_row(debiasing: int | None) -> dict[str, Factor]:
    """The factors of a row of Appendix E. Its first row uses the same ten templates as the others."""
    return {"debiasing": None, "ten_templates": True} if debiasing is None else {"debiasing": debiasing}


def charts(groups: GroupDesign, female_shares: Mapping[str, float], *, with_effects: bool) -> Iterator[Chart]:
    """The gap, the probabilities against the labour market, and the instructions' effects.

    For custom groups also their contrasts and shares.
    """
    is_papers = groups.names == PAPERS_GROUPS.names
    words = {"group": "gender", "others": "the other"} if is_papers else {"group": "group", "others": "the others"}
    yield _DRAFTS.chart("gap", **words)
    if female_shares and "female" in groups.names:
        yield _DRAFTS.chart("shares", female_shares)
    for name in groups.contrasts:
        yield _DRAFTS.chart("contrast", measure=name)
    for measure in () if is_papers else groups.probabilities:
        yield _DRAFTS.chart("group_shares", measure=measure)
    if with_effects:
        yield _DRAFTS.chart("effects")
