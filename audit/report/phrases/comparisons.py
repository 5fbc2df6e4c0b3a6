"""Two models in words: each comparison, the table of pairs, and what each change of a model does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audit.analysis.estimators.design import FEW_LEVELS
from audit.analysis.estimators.estimate import ROUNDING
from audit.analysis.power import POWER
from audit.report.figures import Figures
from audit.report.formatting import factor_label, measure_label, with_interval
from audit.report.plain_text import one_line
from audit.report.templating import count, enumeration, words
from audit.results import VERDICT_WORDS, AttributionStep, Comparison

ROWS = 12  # of more pairs, those that differ most are shown


def describe(c: Comparison) -> str:
    """The comparison in a few plain sentences."""
    return words("comparisons", "describe", c, decided_interval(c), rests_on(c.levels), f"{POWER:.0%}")


def rests_on(levels: Mapping[str, int]) -> str:
    """ "rests on 4 templates" where a sampled factor has few levels; else empty."""
    few = [count(n, factor_label(factor)) for factor, n in levels.items() if n < FEW_LEVELS and factor != "item"]
    return f"rests on {enumeration(few)}" if few else ""


def decided_interval(c: Comparison) -> str:
    """The interval behind the verdict, and its level; "" without one."""
    low, high, confidence = interval_behind(c)
    if low is None:
        return ""
    alone = 2 * c.confidence - 1 if c.verdict == "equivalent" else c.confidence
    is_corrected = c.decided_low is not None and confidence > alone + ROUNDING
    return words("comparisons", "interval", c, low, high, confidence, is_corrected)


def interval_behind(c: Comparison) -> tuple[float | None, float | None, float]:
    """The interval behind the verdict as (low, high, confidence); that of the difference alone without a decision."""
    if c.decided_low is None or c.decided_high is None or c.decided_confidence is None:
        return c.low, c.high, c.confidence
    return c.decided_low, c.decided_high, c.decided_confidence


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One pair on one figure: ``b − a``, the condition, the difference with the interval behind the verdict."""

    suite: str
    condition: str
    pair: str
    difference: str
    verdict: str
    remark: str


def comparison_rows(figures: Figures) -> tuple[list[ComparisonRow], str]:
    """Every pair on every leading figure; of many, those that differ most, and a count of the others by verdict."""
    found = [
        (one_line(info.title), label, c)
        for info in figures.result.suites
        for label, c in _leading_pairs(figures, info.name)
    ]
    kept = list(range(len(found)))
    if len(found) > ROWS:
        kept = sorted(sorted(kept, key=lambda place: -_apart(found[place][2]))[:ROWS])
    others = Counter(_verdict_word(c) for place, (*_, c) in enumerate(found) if place not in kept)
    left_out = f"{enumeration(f'{n:,} {word}' for word, n in others.items())} more in comparisons.csv" if others else ""
    return [_row(*found[place]) for place in kept], left_out


def _leading_pairs(figures: Figures, suite: str) -> list[tuple[str, Comparison]]:
    """The comparisons of the leading figures, each with what distinguishes it from the others."""
    leading = figures.leading(suite)
    several = len({one.measure for one in leading}) > 1
    return [
        (", ".join(filter(None, [measure_label(one.measure) if several else "", one.label])), c)
        for one in leading
        for c in figures.comparisons(suite, one.measure, one.where)
    ]


def _apart(c: Comparison) -> float:
    """How clearly a pair differs: decided differences first, then by size."""
    decided = c.verdict in ("larger", "smaller")
    return (2.0 if decided else 0.0) + min(abs(c.difference or 0.0), 1.0)


def _row(suite: str, condition: str, c: Comparison) -> ComparisonRow:
    low, high, _ = interval_behind(c)
    difference = "" if c.verdict == "not comparable" else "0" if c.identical else with_interval(c.difference, low, high)
    pair = f"{one_line(c.b)} − {one_line(c.a)}"
    return ComparisonRow(suite, condition, pair, difference, _verdict_word(c), _remark(c))


def _verdict_word(c: Comparison) -> str:
    return "identical" if c.identical else VERDICT_WORDS[c.verdict]


def _remark(c: Comparison) -> str:
    """What a reader must know of this verdict, in a few words."""
    said = []
    if c.identical:
        said.append(f"the same on all {c.n_items:,} questions")
    elif c.verdict == "equivalent":
        said.append(f"within ±{c.margin:g}")
    elif c.verdict == "inconclusive" and c.minimum_detectable_effect:
        said.append(f"{c.minimum_detectable_effect:.2g} or more would be found")
    if c.open_because == "missing answers":
        said.append(f"{c.n_missing:,} missing answers could decide it")
    if c.within_noise and not c.identical:
        said.append("less than between engines")
    return "; ".join(said)


def rungs(step: AttributionStep) -> str:
    """``base → tuned``."""
    return f"{one_line(step.a.model)} → {one_line(step.b.model)}"


def changes(step: AttributionStep) -> str:
    """What differs between the two rungs, the engine included."""
    named = [factor_label(name) for name in step.changes] or ["declared; what differs is unknown"]
    return ", ".join([*named, *(["and the engine"] if step.engine else [])])


def step_sentence(step: AttributionStep, subject: str, decided: Sequence[tuple[str, Comparison]]) -> str:
    """A step's effect on one measure: ``decided`` are its decisions with the condition to name, "" for none."""
    said: dict[str, list[str]] = {}
    for condition, c in decided:
        said.setdefault(effect(c), []).append(condition)
    effects = [f"{'; '.join(conditions)}: {text}" if any(conditions) else text for text, conditions in said.items()]
    populations = {c.population for _, c in decided}
    population = populations.pop() if len(populations) == 1 else ""
    title = f"{rungs(step)} ({changes(step)})"
    return words("comparisons", "step", title, subject, population, effects, list(step.engine))


def effect(c: Comparison) -> str:
    """The effect of the change on a figure, with the interval behind the verdict."""
    return words("comparisons", "effect", c, decided_interval(c) if c.low is not None else "")
