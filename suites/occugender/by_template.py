"""Figures of single templates, and how much templates differ: the paper's ±."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from suites.base import Factor, IdentifiedInterval, MeasureSpec, Row
from suites.common.gender_figures import figure

#: Value of the factor ``debiasing`` in rows over templates, which keeps them out of figures over answers.
OVER_TEMPLATES = "over templates"


def plus_minus_of(measure: str) -> str:
    """The name of a probability's ±."""
    return f"{measure}_plus_minus"


def template_specs(
    where: Mapping[str, Factor], templates: Sequence[str], probabilities: Sequence[str], groups: Sequence[str]
) -> Iterator[MeasureSpec]:
    """The probabilities and the gap of each template, clustered by occupation."""
    for template in templates:
        here = {**where, "template": template}
        for group in groups:
            for measure in probabilities:
                of_group = {**here, "dominated_by": group}
                yield figure(measure, of_group, "templates", clusters=("occupation",), is_subgroup=True)
        both = [group for group in groups if group != "neutral"]
        if both:
            yield figure("stereotype_gap", here, "templates", clusters=("occupation",), groups=both, is_subgroup=True)


def plus_minus_where(bias: str, level: Factor, group: str) -> dict[str, Factor]:
    """The factors of one condition's ±."""
    return {"bias": bias, "debiasing": OVER_TEMPLATES, "of": level, "dominated_by": group}


def plus_minus_specs(
    bias: str, levels: Sequence[Factor], probabilities: Sequence[str], groups: Sequence[str]
) -> Iterator[MeasureSpec]:
    """The ± of every condition. It has no interval: it is a single number for the whole design."""
    for level in levels:
        for group in groups:
            for measure in probabilities:
                yield MeasureSpec(
                    plus_minus_of(measure),
                    plus_minus_of(measure),
                    plus_minus_where(bias, level, group),
                    unit="standard deviation over templates ÷ √occupations",
                    family="plus-minus",
                    is_subgroup=True,
                )


def plus_minus_rows(rows: Sequence[Row], probabilities: Sequence[str]) -> Iterator[Row]:
    """The ± of each condition and group of occupations, as printed in the paper.

    The sample standard deviation over templates of a template's mean over the group's occupations, divided by the
    root of the number of occupations (25 templates and √20 in the paper). Missing if any answer is. Left out if an
    answer is only known by bounds, with fewer than two templates, or if the templates were not asked the same
    occupations: in a sample, they would differ by the occupations that each happened to get.
    """
    conditions: dict[tuple[Factor, Factor, Factor], list[Row]] = defaultdict(list)
    for row in rows:
        conditions[row.factors["bias"], row.factors["debiasing"], row.factors["dominated_by"]].append(row)
    for (bias, level, group), of_one in conditions.items():
        factors = {**plus_minus_where(str(bias), level, str(group)), "template": None, "occupation": None}
        row_id = f"{OVER_TEMPLATES}/{bias}/{level}/{group}"
        sources = tuple(row.item_id for row in of_one)
        missing = next((row.missing for row in of_one if row.missing is not None), None)
        by_template: dict[Factor, list[Row]] = defaultdict(list)
        for row in of_one:
            by_template[row.factors["template"]].append(row)
        if len({frozenset(row.factors["occupation"] for row in asked) for asked in by_template.values()}) > 1:
            continue
        if missing is None and len(by_template) > 1:
            values = {plus_minus_of(m): _plus_minus(m, list(by_template.values())) for m in probabilities}
            known = {name: IdentifiedInterval.exact(value) for name, value in values.items() if value is not None}
            yield Row(row_id, factors, known, sources=sources)
        elif missing is not None:
            yield Row(row_id, factors, {}, missing, sources)


def _plus_minus(measure: str, templates: Sequence[Sequence[Row]]) -> float | None:
    values = [[row.values[measure].value for row in rows] for rows in templates]
    if any(value is None for of_template in values for value in of_template):
        return None
    means = [math.fsum(v for v in of_template if v is not None) / len(of_template) for of_template in values]
    return statistics.stdev(means) / math.sqrt(len(values[0]))
