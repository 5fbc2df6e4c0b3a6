"""Comparisons of two models in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from audit.analysis.estimators.estimate import ROUNDING
from audit.analysis.power import POWER
from audit.report.formatting import level, percent
from audit.report.phrases.findings.reach import rests_on
from audit.results import VERDICT_WORDS, Comparison, Decided, OpenBecause


def describe(c: Comparison) -> str:
    """The comparison in a few plain sentences."""
    return f"{_decision(c)}{_missing(c)}{_left_out(c)}"


def over(population: str) -> str:
    """What a statement generalises to, as a clause."""
    return f" over {population}" if population else ""


class _WithMissing(Protocol):
    """A decision that may rest on missing answers."""

    @property
    def n_items(self) -> int: ...
    @property
    def n_missing(self) -> int: ...
    @property
    def missing_share(self) -> float: ...
    @property
    def open_because(self) -> OpenBecause | None: ...


def missing_answers(d: _WithMissing, is_open: bool) -> str:
    """How many answers are missing, and what to do about it."""
    counted = (
        f" {percent(d.missing_share)} of the answers are missing ({d.n_missing:,} of {d.n_items + d.n_missing:,} items)"
    )
    if d.open_because == "missing answers":
        return (
            f"{counted}, and they could decide this. Run the audit again to repeat failed requests; answers that are "
            "refused again, or cannot be read, stay missing."
        )
    return f"{counted}." if is_open else f"{counted}; this holds whatever they would have been."


def _missing(c: Comparison) -> str:
    if not c.n_missing or c.verdict == "not comparable":
        return ""
    sentence = missing_answers(c, c.verdict == "inconclusive")
    if c.complete_case_low is not None and c.difference is not None:
        span = f"{signed(c.complete_case_low)} to {signed(c.complete_case_high)}"
        sentence += f" Answered items alone (complete cases): {signed(c.difference)} ({span})."
    return sentence


def _left_out(c: Comparison) -> str:
    if not c.n_unpaired or c.undefined_for:
        return ""
    items = c.n_unpaired + c.n_items
    sentence = f" Left out because only one of them has a value: {c.n_unpaired} of {items} item{_s(items)}."
    if c.open_because == "unpaired items":
        return f"{sentence} They may hide a difference, so the two are not called equivalent."
    return f"{sentence} Equivalent whatever the other value would be." if c.verdict == "equivalent" else sentence


def _decision(c: Comparison) -> str:
    figure = c.figure.title
    if c.verdict == "not comparable":
        return f"{c.a} and {c.b} cannot be compared in {figure}: {nothing_in_common(c.undefined_for)}."
    if c.low is None or c.high is None:
        return f"Too few data to compare {c.b} with {c.a} in {figure}: {_too_little(c)}."
    if c.open_because == "too few clusters":
        return f"{c.b} and {c.a} are not compared in {figure}: a single cluster says nothing of others."
    span, noise = decided_interval(c), f"{_few(c)}{_noise(c)}"
    if c.identical:
        few = f"; so few show no equivalence within ±{c.margin:g} ({span})" if c.verdict != "equivalent" else ""
        return f"{c.b} and {c.a} are the same on all {c.n_items:,} questions in {figure}{few}.{noise}"
    if c.verdict == "equivalent":
        within = " There is a difference, but it is within the margin." if _is_significant(c.p_adjusted, c) else ""
        return (
            f"{c.b} and {c.a} are equivalent in {figure}{over(c.population)}: less than ±{c.margin:g} apart ({span})."
            f"{within}{noise}"
        )
    if c.verdict in ("larger", "smaller"):
        by = f" by {_digits(abs(c.difference))}" if c.difference is not None else ""
        more = f"{c.b} has a {VERDICT_WORDS[c.verdict]} {figure} than {c.a}{by}"
        return f"{more}{over(c.population)} ({span}).{noise}"
    chance = ", which among this many comparisons may be due to chance" if _is_significant(c.p, c) else ""
    power = (
        f" Only {_digits(c.minimum_detectable_effect)} or more would be found {POWER:.0%} of the time."
        if c.minimum_detectable_effect
        else ""
    )
    alike = f" They are alike within ±{_digits(c.alike_within)}." if c.alike_within is not None else ""
    return (
        f"{c.b} and {c.a} cannot be distinguished in {figure}{over(c.population)}, nor called equivalent within "
        f"±{c.margin:g} ({span}{chance}).{alike}{power}{noise}"
    )


def decided_interval(c: Comparison) -> str:
    """The interval behind the verdict, and its level."""
    low, high, confidence = interval_behind(c)
    alone = 2 * c.confidence - 1 if c.verdict == "equivalent" else c.confidence
    corrected = (
        ", corrected for several figures," if c.decided_low is not None and confidence > alone + ROUNDING else ""
    )
    span = f"{level(confidence)} interval{corrected} {signed(low)} to {signed(high)}"
    if c.verdict == "equivalent" and c.decided_low is not None:
        span = f"two one-sided tests, {span}"
    if c.difference is None:
        span += f"; the servers' answers leave it between {signed(c.bound_low)} and {signed(c.bound_high)}"
    return span


def interval_behind(c: Comparison) -> tuple[float | None, float | None, float]:
    """The interval behind the verdict as (low, high, confidence); that of the difference alone without a decision."""
    if c.decided_low is None or c.decided_high is None or c.decided_confidence is None:
        return c.low, c.high, c.confidence
    return c.decided_low, c.decided_high, c.decided_confidence


def _few(d: Decided) -> str:
    """That a verdict rests on few levels of a sampled factor."""
    rests = rests_on(d.levels)
    return f" It {rests}." if rests else ""


def nothing_in_common(undefined_for: Sequence[str], they: str = "they", both: str = "both") -> str:
    """Why two models, or two runs, have no item with a figure of both; names as in `Comparison.undefined_for`."""
    match undefined_for:
        case []:
            return f"{they} answered no item in common"
        case [one]:
            return f"on the items that {both} answered, it is not defined for {one}"
        case _:
            return f"on no item that {both} answered is it defined for both"


def _noise(c: Comparison) -> str:
    if c.engine_noise is None or not c.difference:
        return ""
    seen = f"The same model differs by up to {c.engine_noise:.3f} between engines"
    if c.within_noise:
        return f" {seen}: this difference is smaller than the engines' noise."
    return f" {seen}: up to {c.engine_noise / abs(c.difference):.0%} of this difference may be the engines' noise."


def _is_significant(p: float | None, c: Comparison) -> bool:
    return p is not None and p < 1 - c.confidence


def _too_little(c: Comparison) -> str:
    if c.bound_low is not None and c.bound_low != c.bound_high:
        return "one of them is known only by bounds"
    if c.difference == 0 and c.n_clusters > 1:
        return "identical answers give no interval"
    if c.difference is not None and c.n_clusters > 1 and c.test.startswith("paired t"):
        return "all items differ alike, which gives no interval without a `range`"
    return f"{c.n_items} item{_s(c.n_items)} in {c.n_clusters} cluster{_s(c.n_clusters)}"


def signed(number: float | None) -> str:
    """With its sign, and three decimals or its first digit."""
    if number is None:
        return "unknown"
    if abs(number) < ROUNDING:
        return "0"
    return ("−" if number <= -ROUNDING else "+") + _digits(abs(number))


def _digits(size: float) -> str:
    """Three decimals, or one significant digit if they would show zero."""
    decimals = 3 if size >= 0.0005 or size < ROUNDING else -math.floor(math.log10(size))
    return f"{size:.{decimals}f}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
