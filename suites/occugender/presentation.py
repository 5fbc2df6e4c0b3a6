"""The paper's printed figures and tables, and the charts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from suites.base import Factor
from suites.common.data_files import load
from suites.common.gender_figures import group_columns, published_probabilities
from suites.common.published import PublishedDesign, published_source
from suites.presentation import Chart, Drafts, PublishedFigure, TableLayout

_DRAFTS = Drafts(load("occugender_report").content)


def published_figures(
    design: PublishedDesign, biases: Sequence[str], instructions: Sequence[int]
) -> Iterator[PublishedFigure]:
    """Tables 3 and 4, and Appendix E (ten templates) when instructions are asked, as far as they are of this design."""
    printed = load("published_results").content
    for bias in biases:
        if (source := published_source(f"occugender/{bias}", design)) is not None:
            for entry in printed["occugender"][bias]:
                yield from published_probabilities(entry["model"], {"bias": bias, "debiasing": None}, [entry], source)
        if instructions and (source := published_source(f"occugender_debiasing/{bias}", design)) is not None:
            for model, conditions in printed["occugender_debiasing"]["models"].items():
                for condition in conditions:
                    if condition["debiasing"] in (None, *instructions):
                        where = {"bias": bias, **_appendix_row(condition["debiasing"])}
                        yield from published_probabilities(model, where, [condition[bias]], source)


def table_layouts(biases: Sequence[str], instructions: Sequence[int]) -> Iterator[TableLayout]:
    """Tables 3 and 4, and Appendix E when instructions are asked."""
    printed = load("published_results").content
    source = printed["occugender"]["source"].partition("; pm = ")[0]  # what follows explains the data file's fields
    for bias in biases:
        yield _DRAFTS.table(f"{bias}_bias", group_columns({"bias": bias, "debiasing": None}), source=source)
    if instructions:
        columns = (c for bias in biases for c in group_columns({"bias": bias}, f"{bias.capitalize()}, "))
        rows = [("None", _appendix_row(None)), *((str(i), _appendix_row(i)) for i in instructions)]
        yield _DRAFTS.table("debiasing", columns, rows, source=printed["occugender_debiasing"]["source"])


def _appendix_row(debiasing: int | None) -> dict[str, Factor]:
    """Where of a row of Appendix E. Its first row is over the same ten templates as the others."""
    return {"debiasing": None, "ten_templates": True} if debiasing is None else {"debiasing": debiasing}


def charts(female_shares: Mapping[str, float], *, with_effects: bool) -> Iterator[Chart]:
    """The gap, the probabilities against the labour market, and the effects of the instructions."""
    yield _DRAFTS.chart("gap")
    if female_shares:
        yield _DRAFTS.chart("shares", female_shares)
    if with_effects:
        yield _DRAFTS.chart("effects")
