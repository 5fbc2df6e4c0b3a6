"""The paper's printed figures and table, and the charts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suites.base import Factor
from suites.common.data_files import load
from suites.common.gender_figures import group_columns, published_probabilities
from suites.debiasing.measures import Measures
from suites.occugender import BIASES
from suites.presentation import Chart, PublishedFigure, TableLayout


def published_figures(measures: Measures) -> Iterator[PublishedFigure]:
    """Tables 3, 4, 7 and 8, and the averages by abstraction over their printed figures."""
    degrees = {a: {p.id for p in measures.prompts if p.abstraction == a} for a in measures.abstractions()}
    for model, biases in load("published_results").content["debiasing_positions"]["models"].items():
        for bias, conditions in biases.items():
            levels: list[tuple[dict[str, Factor], set[Any]]] = []
            levels += [({"debiasing": c["debiasing"]}, {c["debiasing"]}) for c in conditions]
            levels += [({"abstraction": degree}, ids) for degree, ids in degrees.items()]
            for level, ids in levels:
                for position in ("without_dialogue", "with_dialogue"):
                    printed = [c[position] for c in conditions if c["debiasing"] in ids]
                    where = {"bias": bias, "position": position, **level}
                    yield from published_probabilities(f"GPT-3 {model}", where, printed)


def table_layouts(measures: Measures, *, with_published: bool) -> list[TableLayout]:
    """One table for each kind of bias: prompts by positions."""
    rows: list[tuple[str, Mapping[str, Factor]]] = [("None", {"debiasing": None})]
    rows += [(str(p.id), {"debiasing": p.id}) for p in measures.prompts]
    rows += [(f"Average {a}", {"abstraction": a}) for a in measures.abstractions()]
    source = load("published_results").content["debiasing_positions"]["source"]
    return [
        TableLayout(
            f"{bias}_bias_by_position",
            f"{bias.capitalize()} bias with each debiasing prompt at each position, in per cent",
            tuple(
                column
                for position in measures.positions
                for column in group_columns(
                    {"bias": bias, "position": position}, f"{position.replace('_', ' ').capitalize()}, "
                )
            ),
            rows=tuple(rows),
            scale=100,
            decimals=1,
            source=f"{source}. Published averages are means of the printed figures." if with_published else "",
        )
        for bias in BIASES
    ]


def charts(measures: Measures) -> Iterator[Chart]:
    """Effects, the way of each prompt between the three groups, and what a dialogue leaves of the effects."""
    versus = measures.controls[-1]
    for bias in BIASES:
        yield Chart(
            "dots",
            f"{bias.capitalize()} bias: effect of each debiasing prompt on the stereotype gap, against {versus}",
            ("effect",),
            {"bias": bias, "versus": versus},
            by="instruction",
            facet="position",
            caption="Below 0: less stereotype than with the control at the same place.",
        )
    for bias in BIASES:
        for group in measures.dominated_by:
            yield Chart(
                "ternary",
                f"{bias.capitalize()} bias, {group}-dominated occupations: from no text to each debiasing prompt",
                ("p_male", "p_female", "p_diverse"),
                {"bias": bias, "dominated_by": group},
                by="debiasing",
                facet="position",
            )
    for bias in BIASES if measures.compared_positions else ():
        yield Chart(
            "dots",
            f"{bias.capitalize()} bias: how much of the effect is lost, against {versus}",
            ("effect_attenuation",),
            {"bias": bias, "versus": versus},
            by="instruction",
            facet="under",
            caption="Difference to the effect without dialogue. Above 0: less of the gap's reduction is left.",
        )
