"""The report's first sentence: what was decided about the models, in the suites' own words.

A figure is decided if its interval excludes the neutral value, after correction, or lies close around it. The others
are named as open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from audit.analysis.decisions import DEFAULT_MARGIN
from audit.report.figures import Figures
from audit.report.formatting import hundredths
from audit.report.plain_text import one_line
from audit.report.templating import enumeration, words
from audit.results import Measure, SuiteInfo

Side = Literal["above", "below", "close", "open", "missing", "no interval"]

_NAMED = 3  # models that a sentence names; of more it says how many


def verdict(figures: Figures, suite: str | None = None) -> list[str]:
    """One sentence or two for each suite, or for one, whose headline figure says what it means."""
    if not figures.result.has_answers:
        return [words("verdict", "no_answer")]
    if suite is not None:
        return list(_of_suite(figures, figures.suite(suite)))
    found = ((info, list(_of_suite(figures, info))) for info in figures.result.suites)
    told = [(info, sentences) for info, sentences in found if sentences]
    if len(told) == 1:
        return told[0][1]
    return [f"{one_line(info.title)}: {' '.join(sentences)}" for info, sentences in told]


def _of_suite(figures: Figures, info: SuiteInfo) -> Iterator[str]:
    headline = figures.headline(info.name)
    if not headline:
        return
    meaning = info.meanings.get(headline[0][0])
    if meaning is None or not meaning.get("finding"):
        return
    conditions = list(zip(headline, figures.headline_labels(info.name), strict=True))
    sides: dict[tuple[str, str], list[tuple[str, Measure]]] = {}
    for (measure, where), label in conditions:
        for one in figures.by_model(info.name, measure, where):
            sides.setdefault((one.model, _side(figures, one)), []).append((label, one))
    for side, does in (("above", meaning["finding"]), ("below", meaning["opposite"])):
        for labels, of_models in _alike(sides, side).items() if does else ():
            does = does.format(s="s" if len(of_models) == 1 else "")
            by = list(_points_by_condition(of_models, meaning, labels))
            yield words("verdict", "decided", _models(figures, list(of_models)), does, by)
    for side in ("close", "open"):
        for labels, of_models in _alike(sides, side).items():
            named = labels if len(labels) < len(conditions) and all(labels) else ()
            models = _models(figures, list(of_models), start=side == "close")
            more = (len(of_models) > 1, DEFAULT_MARGIN) if side == "close" else ()
            yield words("verdict", side, models, named, *more)


def _alike(
    sides: Mapping[tuple[str, str], list[tuple[str, Measure]]], side: str
) -> dict[tuple[str, ...], dict[str, list[tuple[str, Measure]]]]:
    """The models on one side of neutral, by the conditions in which they are."""
    alike: dict[tuple[str, ...], dict[str, list[tuple[str, Measure]]]] = {}
    for (model, of), found in sides.items():
        if of == side:
            alike.setdefault(tuple(label for label, _ in found), {})[model] = found
    return alike


def _side(figures: Figures, measure: Measure) -> str:
    if measure.neutral is None:
        return "open"
    side = side_of(measure, measure.neutral, 1 - figures.result.confidence)
    if side in ("above", "below"):
        return side
    ends = measure.low, measure.high
    is_close = all(end is not None and abs(end - measure.neutral) <= DEFAULT_MARGIN for end in ends)
    return "close" if is_close else "open"


def _points_by_condition(
    found: Mapping[str, Sequence[tuple[str, Measure]]], meaning: Mapping[str, Any], labels: Sequence[str]
) -> Iterator[str]:
    """``by 12 and 16 points (asked directly)``, ``by 47 and 57 (completing a sentence)``."""
    unit = " points"
    for label in labels:
        values = [_points(one, meaning) for of in found.values() for its, one in of if its == label]
        if all(values):  # of a figure known only by bounds no number is told
            few = len(values) <= _NAMED
            said = enumeration(values) if few else f"{min(values, key=float)} to {max(values, key=float)}"
            yield f"by {said}{unit.removesuffix('s') if values == ['1'] else unit}{f' ({label})' if label else ''}"
            unit = ""


def _models(figures: Figures, names: Sequence[str], *, start: bool = True) -> str:
    total = len(figures.models)
    if total == 1:
        return "The model" if start else "the model"
    if len(names) == total:
        said = "both models" if total == 2 else f"all {total} models"
        return said[0].upper() + said[1:] if start else said
    return enumeration(map(one_line, names)) if len(names) <= _NAMED else f"{len(names)} of {total} models"


def _points(measure: Measure, meaning: Mapping[str, Any]) -> str:
    """The distance from neutral in hundredths, without a sign."""
    if measure.value is None:
        return ""
    distance = abs(measure.value - (measure.neutral or 0.0))
    return hundredths(distance, 0 if distance >= 0.01 else 1)


def side_of(measure: Measure, neutral: float, alpha: float) -> Side:
    """On which side of neutral the whole interval lies, also after correction; or why on neither.

    Without a p-value the interval alone decides.
    """
    if measure.low is None or measure.high is None:
        return "no interval"
    is_sure = measure.p_adjusted is None or measure.p_adjusted < alpha
    if is_sure and not measure.low <= neutral <= measure.high:
        return "above" if measure.low > neutral else "below"
    low, high = measure.complete_case_low, measure.complete_case_high
    return "open" if low is None or high is None or low <= neutral <= high else "missing"
