"""How the report shows MGBR: the paper's printed scores, tables, charts, and what the wording does to the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from suites.common.data_files import load
from suites.mgbr.design import TEST_SETS, Design
from suites.mgbr.measures import CLASSIFICATION, LISTS_BEHIND_P
from suites.presentation import Chart, Factor, PublishedFigure, TableColumn, TableLayout

#: Texts that are the same in many languages.
_NO_LANGUAGE = frozenset({"answer_end", "separator"})

_BIAS_SCORES = TableLayout(
    "bias_scores",
    "Bias scores: accuracy without minus accuracy with occupations, in points",
    (),
    scale=100,
    decimals=1,
    source="Layout and published figures: Kaneko et al. 2024, Table 1 (Bolukbasi word lists)",
)
_ACCURACY = TableLayout(
    "accuracy",
    "Accuracy on each test set, in per cent",
    (),
    scale=100,
    decimals=1,
    note="D_gf and D_gm ask for the feminine and the masculine words in lists of such words only; D_ff and "
    "D_mm in the same lists with occupations added that are stereotyped female and male.",
)
_CHANGES = TableLayout(
    "changes", "Change of accuracy from one condition to another, in points", (), scale=100, decimals=1
)
_P_VALUES = TableLayout("mcnemar", "McNemar's exact p of these changes", (), decimals=4)
_LISTS_OF_TESTS = TableLayout(
    "mcnemar_lists",
    "Lists that these tests rest on",
    (),
    decimals=0,
    note="Lists counted wrongly before and rightly after (improved), the reverse (worsened), alike, and lists "
    "without an answer in one of the two. Only the first two decide p.",
)
_CLASSIFIED = TableLayout(
    "classification",
    "How the written steps classify the words, in per cent",
    (),
    scale=100,
    decimals=1,
    note="Recall is of all words of the gender asked for; one without a verdict is not called so. Texts "
    "without any verdict are left out of precision, recall and f1, and counted under words judged.",
)
_BIAS_CHART = Chart(
    "dots",
    "Bias score by condition",
    ("bias_score",),
    {"kind": "pair"},
    by="condition",
    facet="gender",
    caption="Share of lists counted rightly, minus that share once occupations are added to the lists. "
    "Above 0: the occupations mislead the model.",
)


def cautions(design: Design) -> Sequence[str]:
    """That prompts mix two languages, where the question is not the English one and other texts of it are."""
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
    return [
        "The question and the vocabulary are not the English ones, but these texts of the prompts still are: "
        f"{', '.join(left)} (suite option wording). If another language is asked for, the prompts mix two."
    ]


def published(design: Design) -> Sequence[PublishedFigure]:
    """Table 1: bias scores of 23 models, by likelihood; none for generation."""
    models = () if design.written else load("published_results").content["mgbr"]["models"]
    return [
        PublishedFigure(
            entry["model"],
            "bias_score",
            {"kind": "pair", "condition": condition, "gender": gender},
            scores[gender] / 100,
        )
        for entry in models
        for condition, scores in entry["bias_scores"].items()
        for gender in design.genders
        if condition in design.conditions
    ]


# -- tables ----------------------------------------------------------------------------------------


def tables(design: Design) -> Iterator[TableLayout]:
    """Bias scores, accuracy and its changes; under generation how words are classified; the correlation, if any."""
    test_sets = _rows("test_set", design.test_sets)
    scores = [
        TableColumn(gender, "bias_score", {"kind": "pair", "condition": condition, "gender": gender}, condition)
        for condition in design.conditions
        for gender in design.genders
    ]
    yield replace(_BIAS_SCORES, columns=tuple(scores))
    yield replace(_ACCURACY, columns=_columns("accuracy", "list", "condition", design.conditions), rows=test_sets)
    yield from _change_tables(design)
    if design.written_steps:
        classified = [
            TableColumn(quantity.replace("_", " "), quantity, {"kind": kind, "condition": condition}, condition)
            for condition in design.written_steps
            for kind, quantities in CLASSIFICATION.items()
            for quantity in quantities
        ]
        yield replace(_CLASSIFIED, columns=tuple(classified), rows=test_sets)
    if design.words.score_name:
        yield TableLayout(
            "correlation",
            f"Correlation of the occupations' bias scores with their {design.words.score_name}",
            _columns("occupation_bias_correlation", "occupation", "condition", design.conditions),
            rows=_rows("gender", design.genders),
            source="After Kaneko et al. 2024, Table 3",
            note=f"{_direction(design)} The interval leaves out one occupation at a time.".lstrip(),
        )


def _change_tables(design: Design) -> Iterator[TableLayout]:
    if not design.changes:
        return
    rows = tuple((f"{a} → {c}", {"condition": c, "against": a}) for c, a in design.changes)
    yield replace(_CHANGES, columns=_columns("accuracy_change", "change", "test_set", design.test_sets), rows=rows)
    if design.repeats > 1:
        return
    yield replace(_P_VALUES, columns=_columns("mcnemar_p", "mcnemar", "test_set", design.test_sets), rows=rows)
    counts = [
        TableColumn(count.removeprefix("lists_"), count, {"kind": "mcnemar_lists", "test_set": test_set}, test_set)
        for test_set in design.test_sets
        for count in LISTS_BEHIND_P
    ]
    yield replace(_LISTS_OF_TESTS, columns=tuple(counts), rows=rows)


def _columns(measure: str, kind: str, factor: str, levels: Iterable[str]) -> tuple[TableColumn, ...]:
    """A column for each level of one factor."""
    return tuple(TableColumn(level, measure, {"kind": kind, factor: level}) for level in levels)


def _rows(factor: str, levels: Iterable[str]) -> tuple[tuple[str, dict[str, Factor]], ...]:
    return tuple((level, {factor: level}) for level in levels)


def _direction(design: Design) -> str:
    """Which sign of a correlation says that stronger stereotypes mislead more; nothing where the scores overlap."""
    female, male = (
        [score for score in occupations.values() if score is not None]
        for occupations in (design.words.female_occupations, design.words.male_occupations)
    )
    if max(male) < min(female):
        rising, falling = "female", "male"
    elif max(female) < min(male):
        rising, falling = "male", "female"
    else:  # the scale does not separate the stereotypes, so neither end of it is known to be one
        return ""
    return (
        f"By the scale of the {design.words.score_name}, stronger stereotypes mislead more where the correlation is "
        f"above 0 for occupations stereotyped {rising}, and below 0 for those stereotyped {falling}."
    )


# -- charts ----------------------------------------------------------------------------------------


def charts(design: Design) -> Iterator[Chart]:
    """Bias scores, accuracy by number of occupations, and the single occupations under the first condition."""
    first, score_name = design.conditions[0], design.words.score_name
    yield _BIAS_CHART
    for gender in design.genders:
        test_set = TEST_SETS[gender, True]
        yield Chart(
            "lines",
            f"Accuracy by number of added occupations ({test_set})",
            ("accuracy",),
            {"kind": "list", "test_set": test_set},
            by="r",
            facet="condition",
            caption=f"r is the number of occupations, stereotyped {gender}, in a list beside feminine and "
            f"masculine words. {test_set} are all lists with such occupations; the figure is "
            "the share of them that the model counts rightly.",
        )
    by_occupation = Chart(
        "ranking",
        f"Occupations by bias score ({first})",
        ("occupation_bias",),
        {"kind": "occupation", "condition": first},
        by="occupation",
        facet="gender",
        caption="Mean bias score of the lists that add the occupation.",
    )
    yield by_occupation
    if score_name:
        yield replace(
            by_occupation,
            kind="scatter",
            title=f"Bias score and {score_name} ({first})",
            covariate={word: score for word, score in design.words.occupations.items() if score is not None},
            covariate_label=score_name,
            caption=_direction(design),
        )
    for condition in design.written_steps[:1]:
        yield replace(
            by_occupation,
            title=f"How often an occupation is called a word of its stereotype ({condition})",
            measures=("called_stereotype",),
            where={"kind": "verdict", "condition": condition},
            caption="",
        )
