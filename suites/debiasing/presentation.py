"""The paper's printed figures and table, and the charts of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from suites.base import Factor
from suites.common.data_files import PublishedDesign, load, published_source
from suites.common.gender_figures import group_columns, published_probabilities
from suites.common.groups.design import PAPERS_GROUPS
from suites.debiasing.measures import Measures
from suites.occugender import BIASES
from suites.presentation import Chart, Drafts, PublishedFigure, TableLayout

_DRAFTS = Drafts(load("debiasing_report").content)


def published_figures(design: PublishedDesign, measures: Measures) -> Iterator[PublishedFigure]:
    """The figures of Tables 3, 4, 7 and 8 that are of this design, and their averages by abstraction."""
    degrees = {a: {p.id for p in measures.prompts if p.abstraction == a} for a in measures.abstractions()}
    models = load("published_results").content["debiasing_positions"]["models"]
    for bias, position in itertools.product(BIASES, ("without_dialogue", "with_dialogue")):
        source = published_source(f"debiasing_positions/{bias}/{position}", design)
        if source is None or position not in measures.positions:
            continue
        for model, conditions in ((model, biases[bias]) for model, biases in models.items()):
            levels: list[tuple[dict[str, Factor], set[Any]]] = []
            levels += [({"debiasing": c["debiasing"]}, {c["debiasing"]}) for c in conditions]
            levels += [({"abstraction": degree}, ids) for degree, ids in degrees.items()]
            for level, ids in levels:
                printed = [c[position] for c in conditions if c["debiasing"] in ids]
                where = {"bias": bias, "position": position, **level}
                yield from published_probabilities(f"GPT-3 {model}", where, printed, source)


def table_layouts(measures: Measures, *, with_published: bool) -> Iterator[TableLayout]:
    """One table for each kind of bias, with prompts as rows and positions as columns."""
    rows: list[tuple[str, Mapping[str, Factor]]] = [("None", {"debiasing": None})]
    rows += [(str(p.id), {"debiasing": p.id}) for p in measures.prompts]
    rows += [(f"Average {a}", {"abstraction": a}) for a in measures.abstractions()]
    source = ""
    if with_published:
        paper = load("published_results").content["debiasing_positions"]["source"]
        source = f"{paper}. Published averages are means of the printed figures."
    of: dict[str, Any] = {}
    if measures.groups.names != PAPERS_GROUPS.names:
        of = {"dominated": measures.dominated_by, "groups": measures.groups.names}
    for bias in measures.biases:
        columns = (
            column
            for name in measures.positions
            for column in group_columns(
                {"bias": bias, "position": name}, f"{name.replace('_', ' ').capitalize()}, ", **of
            )
        )
        yield _DRAFTS.table(f"{bias}_bias_by_position", columns, rows, source=source)


def charts(measures: Measures) -> Iterator[Chart]:
    """Charts of the effects, of how each prompt moves the three groups' shares, and of attenuation by a dialogue."""
    words = [{"bias": bias, "Bias": bias.capitalize(), "versus": measures.controls[-1]} for bias in measures.biases]
    for of_bias in words:
        yield _DRAFTS.chart("effect", **of_bias)
    for of_bias in words:
        for group in measures.dominated_by if len(measures.groups.names) == 3 else ():
            chart = _DRAFTS.chart("groups", group=group, **of_bias)
            yield replace(chart, measures=measures.groups.probabilities)
    for of_bias in words if measures.compared_positions else ():
        yield _DRAFTS.chart("attenuation", **of_bias)
