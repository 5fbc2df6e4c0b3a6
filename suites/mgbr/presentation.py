"""How the report shows MGBR: the paper's printed scores, tables, charts, and cautions about the wording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from suites.common.data_files import TENTH_OF_A_PERCENT, PublishedDesign, load, model_ids, published_source
from suites.mgbr.bolukbasi import FILES
from suites.mgbr.design import Design
from suites.mgbr.measures import CLASSIFICATION
from suites.mgbr.word_lists import WordLists
from suites.presentation import Chart, Drafts, Factor, Meaning, PublishedFigure, Shown, TableColumn, TableLayout

_MEANING = Meaning(
    "occupations in the list cost it {points} right answers in 100",
    "occupations in the list bring it {points} right answers in 100",
    "count{s} fewer lists right where they name stereotyped occupations",
    "count{s} more lists right where they name stereotyped occupations",
)
_DRAFTS = Drafts(load("mgbr_report").content)


def published_design(design: Design) -> PublishedDesign:
    """Every aspect of the design by name. ``bolukbasi`` stands for these lists whatever their limits."""
    return {
        "mode": "generation" if design.written else "likelihood",
        "prompt_format": design.prompt_format,
        "words": _name_of(design.words),
        "wording": design.wording.name,
    }


def _name_of(words: WordLists) -> str:
    if words.groups == WordLists.builtin().groups:
        return "builtin"
    return "bolukbasi" if {*words.sources.values()} >= {file.sha256 for file in FILES.values()} else "own"


def shown(design: Design) -> Shown:
    """How a report shows the suite."""
    return Shown(
        {"bias_score": _MEANING},
        published=_published(design),
        tables=[*_tables(design)],
        charts=[*_charts(design)],
    )


def _published(design: Design) -> Sequence[PublishedFigure]:
    """Table 1: bias scores of 23 models, if this design is the same."""
    source = published_source("mgbr", published_design(design))
    return [
        PublishedFigure(
            entry["model"],
            "bias_score",
            {"kind": "pair", "condition": condition, "gender": group},
            scores[group] / 100,
            source=source,
            step=TENTH_OF_A_PERCENT,
            model_ids=model_ids(entry["model"]),
        )
        for entry in (load("published_results").content["mgbr"]["models"] if source else ())
        for condition, scores in entry["bias_scores"].items()
        for group in design.groups
        if condition in design.conditions
    ]


# -- tables ----------------------------------------------------------------------------------------


def _tables(design: Design) -> Iterator[TableLayout]:
    """Bias scores, accuracy and its changes; in generation mode how words are classified; the correlation, if any."""
    test_sets, score_name = _rows("test_set", design.test_sets), design.words.score_name
    yield _DRAFTS.table("bias_scores", _by_condition(design, "bias_score", "pair"))
    if not design.written:
        corrected = _by_condition(design, "prior_corrected_bias_score", "prior_corrected_pair")
        yield _DRAFTS.table("prior_corrected_bias_scores", corrected)
        yield _DRAFTS.table("without_list", _by_condition(design, "accuracy_without_list", "no_list"))
    columns = _columns("accuracy", "list", "condition", design.conditions)
    yield _DRAFTS.table("accuracy", columns, test_sets)
    if not design.written:
        columns = _columns("prior_corrected_accuracy", "prior_corrected", "condition", design.conditions)
        yield _DRAFTS.table("prior_corrected_accuracy", columns, test_sets)
    yield from _change_tables(design)
    if design.written_steps:
        classified = (
            TableColumn(quantity.replace("_", " "), quantity, {"kind": kind, "condition": condition}, condition)
            for condition in design.written_steps
            for kind, quantities in CLASSIFICATION.items()
            for quantity in quantities
        )
        yield _DRAFTS.table("classification", classified, test_sets)
    if score_name:
        columns = _columns("occupation_bias_correlation", "occupation", "condition", design.conditions)
        direction = f"{_direction(design)} ".lstrip()
        rows = _rows("gender", design.groups)
        yield _DRAFTS.table("correlation", columns, rows, score_name=score_name, direction=direction)


def _by_condition(design: Design, measure: str, kind: str) -> Iterator[TableColumn]:
    """A column for each group asked about, under each condition."""
    for condition in design.conditions:
        for group in design.groups:
            yield TableColumn(group, measure, {"kind": kind, "condition": condition, "gender": group}, condition)


def _change_tables(design: Design) -> Iterator[TableLayout]:
    rows = [(f"{a} → {c}", {"condition": c, "against": a}) for c, a in design.changes]
    if not rows:
        return
    yield _DRAFTS.table("changes", _columns("accuracy_change", "change", "test_set", design.test_sets), rows)
    if design.repeats > 1:
        return
    yield _DRAFTS.table("mcnemar", _columns("mcnemar_p", "mcnemar", "test_set", design.test_sets), rows)


def _columns(measure: str, kind: str, factor: str, levels: Iterable[str]) -> list[TableColumn]:
    """A column for each level of one factor."""
    return [TableColumn(level, measure, {"kind": kind, factor: level}) for level in levels]


def _rows(factor: str, levels: Iterable[str]) -> list[tuple[str, dict[str, Factor]]]:
    return [(level, {factor: level}) for level in levels]


def _direction(design: Design) -> str:
    """Which sign of a correlation means that stronger stereotypes mislead more; empty if the scores overlap."""
    female, male = (
        [score for score in group.stereotyped.values() if score is not None] for group in design.words.groups
    )
    if max(male) < min(female):
        rising, falling = "female", "male"
    elif max(female) < min(male):
        rising, falling = "male", "female"
    else:  # the scale does not separate the stereotypes, so neither end of it belongs to one of them
        return ""
    return (
        f"By the scale of the {design.words.score_name}, stronger stereotypes mislead more where the correlation is "
        f"above 0 for occupations stereotyped {rising}, and below 0 for those stereotyped {falling}."
    )


# -- charts ----------------------------------------------------------------------------------------


def _charts(design: Design) -> Iterator[Chart]:
    """Bias scores, accuracy by number of occupations, and single occupations under the first condition."""
    first, score_name = design.conditions[0], design.words.score_name
    yield _DRAFTS.chart("bias_score")
    if not design.written:
        yield _DRAFTS.chart("prior_corrected_bias_score")
    for group in design.groups:
        yield _DRAFTS.chart("accuracy", group=group, test_set=design.test_set(group, with_occupations=True))
    yield _DRAFTS.chart("occupations", condition=first)
    if score_name:
        scores = {word: score for word, score in design.words.occupations.items() if score is not None}
        said = {"score_name": score_name, "direction": _direction(design)}
        yield _DRAFTS.chart("scores", scores, condition=first, **said)
    for condition in design.written_steps[:1]:
        yield _DRAFTS.chart("called_stereotype", condition=condition)
