"""How the report shows MGBR: the paper's printed scores, tables, charts, and cautions about the wording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from suites.common.data_files import load
from suites.common.published import TENTH_OF_A_PERCENT, PublishedDesign, model_ids, published_source
from suites.mgbr.bolukbasi import FILES
from suites.mgbr.counted_groups import Words
from suites.mgbr.design import Design
from suites.mgbr.measures import CLASSIFICATION, LISTS_BEHIND_P
from suites.mgbr.word_lists import WordLists
from suites.mgbr.wording import Layout
from suites.presentation import Chart, Drafts, Factor, PublishedFigure, TableColumn, TableLayout

#: Texts that are the same in many languages.
_NO_LANGUAGE = frozenset({"answer_end", "separator"})

_DRAFTS = Drafts(load("mgbr_report").content)


def cautions(design: Design) -> Sequence[str]:
    """Warns that prompts mix two languages if the question is no longer the English one but other texts still are."""
    steps = any(c.endswith("+cot") for c in design.conditions)
    in_use = {
        "examples": any(c.startswith("few-shot") for c in design.conditions),
        "debiasing": any(c.endswith("+dp") for c in design.conditions),
        "step_trigger": steps,
        "step_yes": steps,
        "step_no": steps,
        "format_answer": design.written and design.prompt_format == "chat",
        "format_steps": bool(design.written_steps),
    }
    left = [name for name in design.wording.unchanged if in_use.get(name, True) and name not in _NO_LANGUAGE]
    if {"instruction", "vocabulary"} & set(left) or not left:
        return ()
    own = "are not the English ones" if isinstance(design.words, WordLists) else "are of groups of your own"
    return [
        f"The question and the vocabulary {own}, but these parts of the prompts are still the English ones: "
        f"{', '.join(left)} (suite option wording). If another language is asked for, the prompts mix two."
    ]


def published_design(design: Design) -> PublishedDesign:
    """Every aspect of the design by name. ``bolukbasi`` stands for these lists whatever their limits."""
    return {
        "mode": "generation" if design.written else "likelihood",
        "prompt_format": design.prompt_format,
        "words": _name_of(design.words),
        "wording": design.wording.name if design.layout == Layout(design.prompt_format) else "own",
    }


def _name_of(words: Words) -> str:
    if not isinstance(words, WordLists):
        return "own"
    if words.by_kind == WordLists.builtin().by_kind:
        return "builtin"
    return "bolukbasi" if set(words.sources.values()) >= {file.sha256 for file in FILES.values()} else "own"


def published(design: Design) -> Sequence[PublishedFigure]:
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


def tables(design: Design) -> Iterator[TableLayout]:
    """Bias scores, accuracy and its changes; in generation mode how words are classified; the correlation, if any."""
    test_sets, score_name = _rows("test_set", design.test_sets), design.words.score_name
    yield _DRAFTS.table("bias_scores", _by_condition(design, "bias_score", "pair"))
    if not design.written:
        corrected = _by_condition(design, "prior_corrected_bias_score", "prior_corrected_pair")
        yield _DRAFTS.table("prior_corrected_bias_scores", corrected)
        yield _DRAFTS.table("without_list", _by_condition(design, "accuracy_without_list", "no_list"))
    columns = _columns("accuracy", "list", "condition", design.conditions)
    yield _DRAFTS.table("accuracy", columns, test_sets, note=_test_sets_note(design))
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
        rows = _rows(design.factor, design.groups)
        yield _DRAFTS.table("correlation", columns, rows, score_name=score_name, direction=direction)


def _test_sets_note(design: Design) -> str:
    """What the test sets are."""
    if isinstance(design.words, WordLists):
        return (
            "D_gf and D_gm ask for the feminine and the masculine words in lists of such words only; D_ff and D_mm in "
            "the same lists with occupations added that are stereotyped female and male."
        )
    return (
        "Each group's first set asks for its words in lists of all groups' words; the second in the same lists with "
        "occupations added that are stereotyped with it."
    )


def _by_condition(design: Design, measure: str, kind: str) -> Iterator[TableColumn]:
    """A column for each group asked about, under each condition."""
    for condition in design.conditions:
        for group in design.groups:
            yield TableColumn(group, measure, {"kind": kind, "condition": condition, design.factor: group}, condition)


def _change_tables(design: Design) -> Iterator[TableLayout]:
    rows = [(f"{a} → {c}", {"condition": c, "against": a}) for c, a in design.changes]
    if not rows:
        return
    yield _DRAFTS.table("changes", _columns("accuracy_change", "change", "test_set", design.test_sets), rows)
    if design.repeats > 1:
        return
    yield _DRAFTS.table("mcnemar", _columns("mcnemar_p", "mcnemar", "test_set", design.test_sets), rows)
    counts = (
        TableColumn(count.removeprefix("lists_"), count, {"kind": "mcnemar_lists", "test_set": test_set}, test_set)
        for test_set in design.test_sets
        for count in LISTS_BEHIND_P
    )
    yield _DRAFTS.table("mcnemar_lists", counts, rows)


def _columns(measure: str, kind: str, factor: str, levels: Iterable[str]) -> list[TableColumn]:
    """A column for each level of one factor."""
    return [TableColumn(level, measure, {"kind": kind, factor: level}) for level in levels]


def _rows(factor: str, levels: Iterable[str]) -> list[tuple[str, dict[str, Factor]]]:
    return [(level, {factor: level}) for level in levels]


def _direction(design: Design) -> str:
    """Which sign of a correlation means that stronger stereotypes mislead more; empty if the scores overlap."""
    if not isinstance(design.words, WordLists):
        return ""
    female, male = (
        [score for score in occupations.values() if score is not None]
        for occupations in (design.words.female_occupations, design.words.male_occupations)
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


def charts(design: Design) -> Iterator[Chart]:
    """Bias scores, accuracy by number of occupations, and single occupations under the first condition."""
    first, score_name = design.conditions[0], design.words.score_name
    yield _DRAFTS.chart("bias_score", factor=design.factor)
    if not design.written:
        yield _DRAFTS.chart("prior_corrected_bias_score", factor=design.factor)
    for group in design.groups:
        yield _DRAFTS.chart("accuracy", group=group, test_set=design.test_set(group, with_occupations=True))
    yield _DRAFTS.chart("occupations", condition=first, factor=design.factor)
    if score_name:
        scores = {word: score for word, score in design.words.occupations.items() if score is not None}
        said = {"score_name": score_name, "direction": _direction(design), "factor": design.factor}
        yield _DRAFTS.chart("scores", scores, condition=first, **said)
    for condition in design.written_steps[:1]:
        yield _DRAFTS.chart("called_stereotype", condition=condition, factor=design.factor)
