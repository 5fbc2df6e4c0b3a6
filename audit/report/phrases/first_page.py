"""The headline figures in plain words: a row each, a cell for each model.

It makes no decisions of its own: it uses the same intervals as the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.report.figures import Condition, Figures, Leading
from audit.report.formatting import bounded, factor_label, figure, hundredths, measure_label, number
from audit.report.phrases.comparisons import rests_on
from audit.report.phrases.verdict import Side, side_of
from audit.report.plain_text import one_line
from audit.report.templating import count, words
from audit.results import Measure, SuiteInfo

_ROWS_OF_A_SUITE, _ROWS_OF_ONE_SUITE = 3, 8

#: Remarks on numbers whose interval does not show on which side of ``{neutral}`` they lie.
_REMARKS: Mapping[Side, str] = {
    "open": "may be {neutral}",
    "missing": "open: answers are missing",
    "no interval": "no interval",
}


@dataclass(frozen=True, slots=True)
class PlainCell:
    """One model's number in a row, and a remark; ``measure`` is None if it was not measured."""

    measure: Measure | None
    points: str
    remark: str


@dataclass(frozen=True, slots=True)
class PlainRow:
    """One headline figure: what the numbers count, and the number of each model."""

    suite: str
    condition: str
    words: str
    cells: Sequence[PlainCell]


@dataclass(frozen=True, slots=True)
class PlainRows:
    """A suite's rows; ``left_out`` says how many more there are, "" for none."""

    title: str
    rows: Sequence[PlainRow]
    left_out: str


def plain_rows(figures: Figures) -> Iterator[PlainRow]:
    """Every suite's leading figures in plain words, in the suites' order."""
    for info in figures.result.suites:
        for one in figures.leading(info.name):
            yield _row(figures, info, one)


def first_rows(figures: Figures) -> list[PlainRows]:
    """Each suite's rows for one sheet, the rows of figures that show most; where there are several suites, three."""
    infos = figures.result.suites
    found = []
    for info in infos:
        shown, left_out = figures.chosen(info.name, _ROWS_OF_A_SUITE if len(infos) > 1 else _ROWS_OF_ONE_SUITE)
        known = [one for one in shown if _is_known(figures, info.name, one.measure, one.where)]
        rows = [_row(figures, info, one) for one in known or shown[:1]]
        left_out += [one for one in shown if known and one not in known]
        if rows:
            found.append(PlainRows(one_line(info.title), rows, count(len(left_out), "more figure") if left_out else ""))
    return found


def _row(figures: Figures, info: SuiteInfo, one: Leading) -> PlainRow:
    meaning = info.meanings.get(one.measure)
    cells = []
    for model in figures.models:
        measure = figures.get(info.name, one.measure, one.where, model)
        cells.append(PlainCell(None, "", "") if measure is None else _cell(figures, measure))
    said = measure_label(one.measure) if meaning is None else meaning["above"].format(points="…")
    return PlainRow(info.name, one.label, one_line(said[:1].upper() + said[1:]), cells)


def _is_known(figures: Figures, suite: str, measure: str, where: Condition) -> bool:
    return any(m.bound_low is not None for m in figures.by_model(suite, measure, where))


def _cell(figures: Figures, measure: Measure) -> PlainCell:
    meaning = figures.suite(measure.suite).meanings.get(measure.measure)
    said = [_certainty(measure, meaning, 1 - figures.result.confidence), _beside(figures, measure, meaning)]
    remark = "; ".join(filter(None, said))
    if meaning is None:
        return PlainCell(measure, figure(measure), remark)
    return PlainCell(measure, _points(measure, _origin(measure, meaning), 1), remark)


def _origin(measure: Measure, meaning: Mapping[str, Any]) -> float:
    """What points are counted from."""
    return (measure.neutral or 0.0) if meaning["below"] else 0.0


def _beside(figures: Figures, measure: Measure, meaning: Mapping[str, Any] | None) -> str:
    """The figures that this one must be seen beside."""
    said = []
    for one in (meaning or {}).get("beside", ()):  # results of older versions have none
        other = figures.get(measure.suite, one["measure"], {**measure.where, **one["where"]}, measure.model)
        if other is not None and (other.value is not None or bounded(other)):
            said.append(one_line(one["words"].format(points=_points(other, 0.0, 1, interval=False))))
    return ", ".join(said)


def _certainty(measure: Measure, meaning: Mapping[str, Any] | None, alpha: float) -> str:
    """Why a figure does not show on which side of neutral it lies, or what it rests on; "" if there is no need."""
    neutral = measure.neutral
    if measure.value is None and measure.bound_low is None:
        return "no value"
    remark = "" if neutral is None else _REMARKS.get(side_of(measure, neutral, alpha), "")
    remark = remark or rests_on(measure.levels)
    if meaning is None:
        return remark.format(neutral=number(neutral, 2))
    at_neutral = "" if neutral is None else number(100 * (neutral - _origin(measure, meaning)), 0)
    return remark.format(neutral=at_neutral)


def _points(measure: Measure, origin: float, sign: int, *, interval: bool = True) -> str:
    """``47 (37 to 56)``: hundredths from ``origin``, counted along ``sign``. No other value reads like an end of the
    scale or like ``origin``, and bounds that differ do not read alike."""
    marks = [sign * (end - origin) for end in measure.spec.limits if math.isfinite(end)]

    def points(x: float, more: int = 0) -> str:
        places = more + (0 if abs(100 * (x - origin)) >= 1 else 1)
        return hundredths(sign * (x - origin), places, marks)

    ends = [x for x in (measure.low, measure.high) if x is not None]
    said = "" if len(ends) < 2 or not interval else " to ".join(map(points, ends[::sign]))
    if measure.value is not None:
        return points(measure.value) + (f" ({said})" if said else "")
    if measure.bound_low is None or measure.bound_high is None:
        return "–"
    bounds = [measure.bound_low, measure.bound_high][::sign]
    more = next((n for n in range(4) if points(bounds[0], n) != points(bounds[1], n)), 4)
    known = " to ".join(points(bound, more) for bound in bounds)
    return f"{known}, not known closer" + (f" ({said})" if said else "")


def missing_kinds(levels: Mapping[str, int]) -> str:
    """What share of all templates may be of a kind that none of those asked is of.

    With n levels, a kind that is a share p of all is missed with probability (1 - p)^n: at most 5 % from
    p = 1 - .05^(1/n) on.
    """
    sampled = {factor: n for factor, n in levels.items() if factor != "item" and n > 0}
    if not sampled:
        return ""
    factor, n = min(sampled.items(), key=lambda entry: entry[1])
    return words("summary", "missing_kinds", factor_label(factor), n, 1 - 0.05 ** (1 / n))
