"""How the report shows GenderPair: tables, charts, the paper's printed figures, and how they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from backends.base import Sampling
from suites.common.data_files import load, published_source
from suites.common.raters import rater_table
from suites.common.text_scorer import REGARD_OF_THE_PAPER, TOXICITY_OF_THE_PAPER
from suites.genderpair.design import DEFAULT_FORM, Design, deviation_kind
from suites.genderpair.pairs import GROUPS
from suites.presentation import Beside, Chart, Drafts, Meaning, PublishedFigure, Shown, TableColumn, TableLayout

#: Figures in the table on how picks were made, with the kind of their rows.
_PICKS = (
    ("bias_pair_ratio_balanced", "contrast"),
    ("position_effect", "contrast"),
    ("bias_pair_ratio_by_text", "answer"),
    ("bias_pair_ratio_by_likelihood", "answer"),
    ("fallback_share", "answer"),
    ("refusal_share", "answer"),
)
_DRAFTS = Drafts(load("genderpair_report").content)
_MEANING = Meaning(
    "it picks the biased descriptor {points} times in 100, where 50 is even",
    finding="pick{s} the biased descriptor",
    opposite="pick{s} the unbiased descriptor",
    beside=(Beside("fallback_share", "{points} in 100 picks are by likelihood, not by the text", {"kind": "answer"}),),
)
_RELEASED_RULE = (
    "The published bias-pair ratios (Table 4) are read by the authors' rule, which looks for substrings: "
    "bias_pair_ratio_released is the comparable figure."
)
_ENGLISH_RULES = (
    "A pick is read where a text marks it, in any language, but what denies a pick or declines the task is known in "
    "English alone."
)
_SCORERS = (
    "How much the text scorers depend on the identity alone was not measured: a difference of toxicity or regard "
    "between these groups may be the scorer's."
)
#: Figures of Table 4 that come from a classifier, named after it.
_CLASSIFIED = ("toxicity", "regard_positive", "regard_negative")
_PAPERS_CLASSIFIERS = (TOXICITY_OF_THE_PAPER, REGARD_OF_THE_PAPER)
#: One unit of the last printed digit.
_HUNDREDTH = 0.01
_REFUSED_TEXTS = (
    "A text that declines the task counts in toxicity and regard like any other, as in the paper: a model that refuses "
    "often looks harmless there. refusal_share says how often."
)
_SLURS = "The published pairs contain slurs, which this report shows."


def shown(design: Design, sampling: Sampling) -> Shown:
    """How a report shows the suite."""
    return Shown(
        {"bias_pair_ratio": _MEANING},
        cautions=_cautions(design),
        published=[*_published(design, sampling)],
        tables=[*_tables(design)],
        charts=[*_charts(design)],
    )


def _cautions(design: Design) -> Sequence[str]:
    """How the published figures and pairs differ from their description in the paper."""
    refused = [_REFUSED_TEXTS] if design.text_scorers else []
    if design.pairs.is_own:
        return [_ENGLISH_RULES, *([_SCORERS] if design.text_scorers else []), *refused]
    if not design.pairs.is_published:
        return [_RELEASED_RULE, *refused]
    differences = "; ".join(design.pairs.differences())
    return [
        f"The published pairs are not all as the paper counts them: {differences}.",
        _RELEASED_RULE,
        *refused,
        _SLURS,
    ]


def _published(design: Design, sampling: Sampling) -> Iterator[PublishedFigure]:
    """Table 4, as far as its design is the same: pairs, wording, reading, classifiers, and length of the texts."""
    pairs = "published" if design.pairs.is_published else "other"
    aspects = {"pairs": pairs, "tokens": str(sampling.max_tokens)}
    aspects["stop"] = "some" if sampling.stop else "none"
    aspects["form"] = "default" if (design.form, design.separator) == (DEFAULT_FORM, "") else "other"
    aspects["tie"] = "bare words" if design.asks_bare_words else "none"
    #: measure → key in the data file, kind of its rows, provenance
    printed = {"bias_pair_ratio_released": ("bias_pair_ratio", "answer", "bias_pair_ratio")}
    if design.variant == "as_released":  # then the suite's own ratio is by the authors' rule too
        printed["bias_pair_ratio"] = ("bias_pair_ratio", "selection", "bias_pair_ratio")
    printed |= {name: (name, name.partition("_")[0], name.partition("_")[0]) for name in _CLASSIFIED}
    for measure, (key, kind, figures) in printed.items():
        scorer = design.text_scorers.get(kind)
        classifier = "paper" if scorer is not None and scorer.what in _PAPERS_CLASSIFIERS else "other"
        source = published_source(f"genderpair/{figures}", {**aspects, "classifier": classifier})
        for entry in load("published_results").content["genderpair"]["models"] if source else ():
            more: dict[str, Any] = {"source": source, "step": _HUNDREDTH}
            for group, value in zip(GROUPS, entry[key], strict=True):
                if group in design.groups:
                    yield PublishedFigure(entry["model"], measure, {"kind": kind, "group": group}, value, **more)
            if (name := f"{key}_sd") in entry and set(design.groups) == set(GROUPS):
                yield PublishedFigure(entry["model"], name, {"kind": deviation_kind(measure)}, entry[name], **more)


def _tables(design: Design) -> Iterator[TableLayout]:
    """The paper's Table 4, how the picks were made, and how the scorers read labelled texts."""
    figures = _columns(design, "bias_pair_ratio", "selection", "Bias-pair ratio")
    figures += _columns(design, "fallback_share", "answer", "Of it, picks by likelihood")
    figures += _columns(design, "bias_pair_ratio_released", "answer", "Bias-pair ratio by the authors' rule")
    for name, quantity in design.scored:
        title = f"{_title(quantity)} ({design.text_scorers[name].what})"
        figures += _columns(design, quantity, name, title)
        if quantity != "toxicity" and len(design.groups) > 1:
            figures.append(TableColumn("σ", f"{quantity}_sd", {"kind": deviation_kind(quantity)}, title))
    picks = [column for measure, kind in _PICKS for column in _columns(design, measure, kind, _title(measure))]
    yield _DRAFTS.table("table4", figures)
    yield _DRAFTS.table("picks", picks)
    if design.raters:
        yield rater_table(design.raters.values())


def _columns(design: Design, measure: str, kind: str, title: str) -> list[TableColumn]:
    return [TableColumn(group, measure, {"kind": kind, "group": group}, title) for group in design.groups]


def _title(measure: str) -> str:
    return measure.replace("_", " ").capitalize()


def _charts(design: Design) -> Iterator[Chart]:
    """Picks by group, the effect of the order, and how often each group's pairs are picked."""
    yield _DRAFTS.chart("bias_pair_ratio")
    yield _DRAFTS.chart("fallback_share")
    yield _DRAFTS.chart("position_effect")
    for group in design.groups:
        yield _DRAFTS.chart("pairs", group=group)
