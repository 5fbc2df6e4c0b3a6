"""The first page: one question with its answers, and the findings in plain words.

It makes no decisions of its own: it uses the same intervals as `audit.report.phrases.findings.summary`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.report.figures import Condition, Figures, Leading
from audit.report.formatting import bounded, figure, hundredths, measure_label, number, one_line
from audit.report.formatting.questions import continuation_text, prompt_text
from audit.report.phrases.counted import count, enumeration
from audit.report.phrases.findings.reach import rests_on
from audit.report.phrases.findings.sides import Side, side_of
from audit.results import Example, Measure, SuiteInfo

#: What pages for a technical file say about themselves.
EVIDENCE_NOT_CONFORMITY = (
    "These are measurements on specific questions, with the data behind them: evidence for an assessment. They do not "
    "establish conformity with any law or standard, and say nothing about questions that were not asked."
)

_PROMPT = 300  # characters of a question: its end, where the answer begins
_ANSWER = 200  # characters of a text that a model wrote
_LIKELIEST = 3  # continuations that are named
_MODELS_NAMED = 4
_MOST_NAMED = 8  # where some are equally likely; of more it is said how many
_ROUNDING = 1e-9  # relative: sums of a word's spellings in another order
_ROWS_OF_A_SUITE, _ROWS_OF_ONE_SUITE = 3, 8

#: Remarks on numbers whose interval does not show on which side of ``{neutral}`` they lie.
_REMARKS: Mapping[Side, str] = {
    "open": "may be {neutral}",
    "missing": "open: answers are missing",
    "no interval": "no interval",
}


#: What is said of figures that a table leaves out.
_STANDINGS = ("off the neutral value", "undecided", "without a value")


@dataclass(frozen=True, slots=True)
class ExampleQuestion:
    """One question of a suite, verbatim, and each model's answer."""

    suite: str
    question: str
    answers: Sequence[tuple[str, str]]
    remark: str = ""


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


def asked(figures: Figures, suite: str) -> ExampleQuestion | None:
    """The first stored question behind the suite's first headline figure with a value; None if there is none."""
    headline = figures.headline(suite)
    # One of a figure that has a value comes first: the table beside it has no row of the others.
    for measure, where in sorted(headline, key=lambda of: not _is_known(figures, suite, *of)):
        behind = {m.id for m in figures.by_model(suite, measure, where)}
        examples = [e for e in figures.result.examples if e.suite == suite and behind & set(e.figures)]
        if examples:
            break
    else:
        return None
    # One that all models answered, if there is one: of an interrupted run the last had not come to each.
    answered = Counter(item for item, _ in {(e.item_id, e.model) for e in examples if _is_answered(e)})
    item = max((e.item_id for e in examples), key=lambda item: answered[item])
    of_item = {e.model: e for e in examples if e.item_id == item}
    answers = [(one_line(name), answer_line(of_item[name].answer)) for name in figures.models if name in of_item]
    remark = _of_which(of_item.values())
    if remark and (held := _held(figures.by_model(suite, measure, where))):
        remark += f". Of what comes next, they hold {held} on average"
    return ExampleQuestion(suite, _question(next(iter(of_item.values())).prompt), answers, remark)


def _is_answered(example: Example) -> bool:
    return isinstance(example.answer, Mapping) and "error" not in example.answer


def _of_which(examples: Collection[Example]) -> str:
    """What the shares are relative to: a continuation known only by bounds has none, which must not read as 0."""
    counts = {(len(_scores(e.answer)), _n_asked(e)) for e in examples if _n_asked(e)}
    known, asked = min((n for n, _ in counts), default=0), max((n for _, n in counts), default=0)
    if not known:
        return ""
    things = "continuations scored" if any(e.prompt for e in examples) else "whole texts"
    if known == asked:
        return f"shares among the {known} {things}"
    return f"shares among those of the {asked} {things} whose probability is known: {known} or more"


def _held(measures: Sequence[Measure]) -> str:
    """Each model's mean coverage of a figure, "" without one; of many models the lowest and the highest."""
    held = {m.model: m for m in measures if m.probability_mass is not None}

    def share(m: Measure) -> str:
        return ("at least " if m.censored else "") + _share(m.probability_mass or 0.0)

    if len(held) == 1:
        return "".join(map(share, held.values()))
    named = [f"{share(m)} ({one_line(model)})" for model, m in held.items()]
    if len(set(map(share, held.values()))) == 1:
        return f"{share(next(iter(held.values())))} for each model"
    if len(held) <= _MODELS_NAMED:
        return enumeration(named)
    in_order = sorted(range(len(named)), key=lambda i: list(held.values())[i].probability_mass or 0.0)
    return f"{named[in_order[0]]} to {named[in_order[-1]]}"


def _n_asked(example: Example) -> int:
    return len(example.answer.get("scores", ())) if isinstance(example.answer, Mapping) else 0


def _question(prompt: Any) -> str:
    """The end of a prompt, or the last turns of a chat."""
    text = prompt_text(prompt).strip() or "(Which of these whole texts is likelier?)"
    return text if len(text) <= _PROMPT else f"… {text[-_PROMPT:]}"


def _scores(answer: Any) -> list[tuple[str, float]]:
    """(continuation, probability) for those known exactly, the likeliest first."""
    scores = answer.get("scores", ()) if isinstance(answer, Mapping) else ()
    known = [(continuation_text(s), math.exp(s["logprob"])) for s in scores if s["logprob"] is not None]
    return sorted(known, key=lambda of: -of[1])


def answer_line(answer: Any) -> str:
    """What a model answered, in a line; ``answer`` as in `audit.results.Example`."""
    if not isinstance(answer, Mapping):
        return "no answer"
    if "error" in answer:
        return "failed"
    if "text" in answer:
        text = one_line(str(answer["text"]).strip())
        return text if len(text) <= _ANSWER else f"{text[:_ANSWER]} …"
    if "labels" in answer:
        return json.dumps(answer["labels"], ensure_ascii=False)
    known = _scores(answer)
    total = sum(p for _, p in known)
    if not total:
        return "known only by bounds"
    words: dict[str, tuple[str, float]] = {}  # "She" and "she" are one word to a reader: the likelier spelling stands
    for text, p in known:
        spelt, so_far = words.get(text.strip().casefold(), (one_line(text.strip()), 0.0))
        words[text.strip().casefold()] = spelt, so_far + p
    return ", ".join(_likeliest([(spelt, p / total) for spelt, p in words.values()]))


def _likeliest(shares: Sequence[tuple[str, float]]) -> Iterator[str]:
    """The likeliest words with their shares. No order of asking chooses between words that are equally likely."""
    named = 0
    for share, tied in _by_share(shares):
        if named >= _LIKELIEST:
            return
        if len(tied) == 1:
            is_number = tied[0][-1:].isdigit()
            yield f"{tied[0]} ({_share(share)})" if is_number else f"{tied[0]} {_share(share)}"
        elif named + len(tied) <= _MOST_NAMED:
            yield f"{', '.join(tied[:-1])} and {tied[-1]} equally likely, {_share(share)} each"
        else:
            yield f"{len(tied)} {'others ' if named else ''}equally likely, {_share(share)} each"
        named += len(tied)


def _by_share(shares: Sequence[tuple[str, float]]) -> Iterator[tuple[float, list[str]]]:
    """Each share with the words that have it, the largest first; sums that differ by rounding alone are equal."""
    found: list[tuple[float, list[str]]] = []
    for word, share in sorted(shares, key=lambda of: -of[1]):
        if found and math.isclose(share, found[-1][0], rel_tol=_ROUNDING):
            found[-1][1].append(word)
        else:
            found.append((share, [word]))
    yield from found


def _share(share: float) -> str:
    """In whole per cent; a share that is not 0 or 1 never reads as 0 or 100."""
    if 0 < share < 0.01 or 0.99 < share < 1:
        return "<1 %" if share < 0.5 else ">99 %"
    return f"{hundredths(share, 0)} %"


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
            found.append(PlainRows(one_line(info.title), rows, _left_out(figures, info.name, left_out)))
    return found


def _row(figures: Figures, info: SuiteInfo, one: Leading) -> PlainRow:
    meaning = info.meanings.get(one.measure)
    cells = []
    for model in figures.models:
        measure = figures.get(info.name, one.measure, one.where, model)
        cells.append(PlainCell(None, "", "") if measure is None else _cell(figures, measure))
    words = measure_label(one.measure) if meaning is None else meaning["above"].format(points="…")
    return PlainRow(info.name, one.label, one_line(words[:1].upper() + words[1:]), cells)


def _is_known(figures: Figures, suite: str, measure: str, where: Condition) -> bool:
    return any(m.bound_low is not None for m in figures.by_model(suite, measure, where))


def _left_out(figures: Figures, suite: str, left_out: Sequence[Leading]) -> str:
    """How many figures a table leaves out; how many of them lie off neutral for some model, and of how many that is
    undecided for all, or not known."""
    if not left_out:
        return ""
    counts = Counter(_standing(figures, suite, one) for one in left_out)
    said = [f"{counts[one]} {one}" for one in _STANDINGS if counts[one]]
    if len(counts) == 1 and said:
        said = list(counts)
    return f"{count(len(left_out), 'more figure')}{': ' if said else ''}{', '.join(said)}"


def _standing(figures: Figures, suite: str, one: Leading) -> str:
    """One of `_STANDINGS`; "" for a figure without a neutral value."""
    if not _is_known(figures, suite, one.measure, one.where):
        return "without a value"
    alpha = 1 - figures.result.confidence
    known = [m for m in figures.by_model(suite, one.measure, one.where) if m.neutral is not None]
    sides = {side_of(m, m.neutral, alpha) for m in known if m.neutral is not None}
    if not sides:
        return ""
    return "off the neutral value" if sides & {"above", "below"} else "undecided"


def _cell(figures: Figures, measure: Measure) -> PlainCell:
    remark = remark_on(figures, measure)
    meaning = figures.suite(measure.suite).meanings.get(measure.measure)
    if meaning is None:
        return PlainCell(measure, figure(measure), remark)
    return PlainCell(measure, _points(measure, _origin(measure, meaning), 1), remark)


def _origin(measure: Measure, meaning: Mapping[str, Any]) -> float:
    """What points are counted from."""
    return (measure.neutral or 0.0) if meaning["below"] else 0.0


def remark_on(figures: Figures, measure: Measure) -> str:
    """Why a figure does not show on which side of neutral it lies, what it rests on, and the figures that it must be
    seen beside; "" if there is no need."""
    meaning = figures.suite(measure.suite).meanings.get(measure.measure)
    said = [_certainty(measure, meaning, 1 - figures.result.confidence), _beside(figures, measure, meaning)]
    return "; ".join(filter(None, said))


def _beside(figures: Figures, measure: Measure, meaning: Mapping[str, Any] | None) -> str:
    said = []
    for one in (meaning or {}).get("beside", ()):  # results of older versions have none
        other = figures.get(measure.suite, one["measure"], {**measure.where, **one["where"]}, measure.model)
        if other is not None and (other.value is not None or bounded(other)):
            said.append(one_line(one["words"].format(points=_points(other, 0.0, 1, interval=False))))
    return ", ".join(said)


def _certainty(measure: Measure, meaning: Mapping[str, Any] | None, alpha: float) -> str:
    neutral = measure.neutral
    if measure.value is None and measure.bound_low is None:
        return "no value"
    remark = "" if neutral is None else _REMARKS.get(side_of(measure, neutral, alpha), "")
    remark = remark or rests_on(measure.levels)
    if meaning is None:
        return remark.format(neutral=number(neutral, 2))
    at_neutral = "" if neutral is None else number(100 * (neutral - _origin(measure, meaning)), 0)
    return remark.format(neutral=at_neutral)


def stands_alone(measure: Measure, alpha: float) -> bool:
    """Whether a figure and its interval may be quoted without the report: not one that missing answers
    leave open, nor one without an interval."""
    if measure.low is None or measure.high is None:
        return False
    return measure.neutral is None or side_of(measure, measure.neutral, alpha) not in ("no interval", "missing")


def plain_sentence(measure: Measure, meaning: Mapping[str, Any]) -> str:
    """A figure in one sentence, worded for its side of neutral."""
    neutral = measure.neutral or 0.0
    middle = measure.value
    if middle is None and measure.bound_low is not None and measure.bound_high is not None:
        middle = (measure.bound_low + measure.bound_high) / 2
    if not meaning["below"]:
        return str(meaning["above"]).format(points=_points(measure, 0.0, 1))
    sign = -1 if middle is not None and middle < neutral else 1
    return str(meaning["above" if sign > 0 else "below"]).format(points=_points(measure, neutral, sign))


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
