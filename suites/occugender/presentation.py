"""The paper's printed figures and tables, and the charts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suites.base import Factor
from suites.common.data_files import load
from suites.common.gender_figures import group_columns, published_probabilities
from suites.common.groups.design import PAPERS_GROUPS, GroupDesign
from suites.common.published import PublishedDesign, published_source
from suites.occugender.measures import Measures, plus_minus_of, plus_minus_where
from suites.presentation import Chart, Drafts, PublishedFigure, TableColumn, TableLayout

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
            for figure in figures:  # the printed ± as figures of their own
                if figure.plus_minus is not None:
                    here = plus_minus_where(bias, None, str(figure.where["dominated_by"]))
                    measure, value = plus_minus_of(figure.measure), figure.plus_minus
                    yield replace(figure, measure=measure, where=here, value=value, plus_minus=None)
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
