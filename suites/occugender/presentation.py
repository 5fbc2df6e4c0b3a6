"""The paper's printed figures and tables, and the charts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from suites.base import Factor
from suites.common.data_files import load
from suites.common.gender_figures import group_columns, published_probabilities
from suites.presentation import Chart, PublishedFigure, TableLayout

_TABLES = {"explicit": "3", "implicit": "4"}
_GAPS = Chart(
    "dots",
    "Stereotype gap: how far each model follows the stereotype",
    ("stereotype_gap",),
    {"debiasing": None},
    facet="bias",
    caption="0: no lean to either gender's occupations. 1: every occupation gets its stereotype.",
)
_EFFECTS = Chart(
    "dots",
    "Effect of each debiasing instruction on the stereotype gap",
    ("effect",),
    by="instruction",
    facet="bias",
    caption="Difference on the same templates and occupations. Below 0: less stereotype.",
)


def published_figures(biases: Sequence[str], instructions: Sequence[int]) -> Iterator[PublishedFigure]:
    """Tables 3 and 4, and Appendix E (ten templates) when instructions are asked."""
    printed = load("published_results").content
    for bias in biases:
        for entry in printed["occugender"][bias]:
            yield from published_probabilities(entry["model"], {"bias": bias, "debiasing": None}, [entry])
    if not instructions:
        return
    for model, conditions in printed["occugender_debiasing"]["models"].items():
        for condition in conditions:
            if condition["debiasing"] in (None, *instructions):
                for bias in biases:
                    where = {"bias": bias, **_appendix_row(condition["debiasing"])}
                    yield from published_probabilities(model, where, [condition[bias]])


def table_layouts(biases: Sequence[str], instructions: Sequence[int]) -> list[TableLayout]:
    """Tables 3 and 4, and Appendix E when instructions are asked."""
    printed = load("published_results").content
    source = printed["occugender"]["source"].partition("; pm = ")[0]  # what follows explains the data file's fields
    layouts = [
        TableLayout(
            f"{bias}_bias",
            f"{bias.capitalize()} bias: probability of each gender, in per cent (layout of Table {_TABLES[bias]})",
            tuple(group_columns({"bias": bias, "debiasing": None})),
            scale=100,
            decimals=1,
            source=source,
        )
        for bias in biases
    ]
    if instructions:
        layouts.append(
            TableLayout(
                "debiasing",
                "With each debiasing instruction, over ten templates, in per cent (layout of Appendix E)",
                tuple(c for bias in biases for c in group_columns({"bias": bias}, f"{bias.capitalize()}, ")),
                rows=(("None", _appendix_row(None)), *((str(i), _appendix_row(i)) for i in instructions)),
                scale=100,
                decimals=1,
                source=printed["occugender_debiasing"]["source"],
            )
        )
    return layouts


def _appendix_row(debiasing: int | None) -> dict[str, Factor]:
    """Where of a row of Appendix E. Its first row is over the same ten templates as the others."""
    return {"debiasing": None, "ten_templates": True} if debiasing is None else {"debiasing": debiasing}


def charts(female_shares: Mapping[str, float], *, with_effects: bool) -> list[Chart]:
    """The gap, the probabilities against the labour market, and the effects of the instructions."""
    pictures = [_GAPS]
    if female_shares:
        pictures.append(
            Chart(
                "scatter",
                "Probability of female against the real share of women",
                ("p_female",),
                {"debiasing": None},
                by="occupation",
                facet="bias",
                covariate=female_shares,
                covariate_label="Share of women in the occupation",
                caption="A model that mirrors the labour market lies on the diagonal; an even one on a level line.",
            )
        )
    return [*pictures, _EFFECTS] if with_effects else pictures
