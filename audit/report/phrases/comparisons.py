"""Comparisons of two models in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from audit.analysis.comparisons import POWER
from audit.analysis.decisions import MOST_UNPAIRED
from audit.analysis.differences import unpaired_share
from audit.analysis.estimators import ROUNDING
from audit.results import VERDICT_WORDS, Comparison


def with_words(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons, each with its sentences."""
    return [c.model_copy(update={"words": describe(c)}) for c in comparisons]


def describe(c: Comparison) -> str:
    """The comparison as one or two plain sentences."""
    return f"{_decision(c)}{_left_out(c)}"


def _left_out(c: Comparison) -> str:
    if not c.n_unpaired or c.undefined_for:
        return ""
    items = c.n_unpaired + c.n_items
    sentence = f" Left out, as only one of them has a value: {c.n_unpaired} of {items} item{_s(items)}."
    if c.verdict == "inconclusive" and unpaired_share(c.n_unpaired, c.n_items) > MOST_UNPAIRED:
        many = f"More than {MOST_UNPAIRED:.0%} of them may hide a difference"
        sentence += f" {many}, so the two are not called equivalent."
    return sentence


def _decision(c: Comparison) -> str:
    figure = c.figure.title
    if c.verdict == "not comparable":
        return f"{c.a} and {c.b} cannot be compared in {figure}: {nothing_in_common(c.undefined_for)}."
    if c.low is None or c.high is None:
        return f"Too few data to compare {c.b} with {c.a} in {figure}: {_too_little(c)}."
    span = f"{100 * c.confidence:g}% interval {_signed(c.low)} to {_signed(c.high)}"
    if c.difference is None:
        span += f"; the servers' answers leave it between {_signed(c.bound_low)} and {_signed(c.bound_high)}"
    noise = _noise(c)
    if c.verdict == "equivalent":
        within = " There is a difference, but it is within the margin." if _is_significant(c.p_holm, c) else ""
        return f"{c.b} and {c.a} are equivalent in {figure}: less than ±{c.margin:g} apart ({span}).{within}{noise}"
    if c.verdict in ("larger", "smaller"):
        by = f" by {_digits(abs(c.difference))}" if c.difference is not None else ""
        return f"{c.b} has a {VERDICT_WORDS[c.verdict]} {figure} than {c.a}{by} ({span}).{noise}"
    chance = ", which among this many comparisons may be due to chance" if _is_significant(c.p, c) else ""
    power = (
        f" Only {_digits(c.minimum_detectable_effect)} or more would be found {POWER:.0%} of the time."
        if c.minimum_detectable_effect
        else ""
    )
    return f"{c.b} and {c.a} cannot be distinguished in {figure}, nor called equivalent ({span}{chance}).{power}{noise}"


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
    return f"{c.n_items} item{_s(c.n_items)} in {c.n_clusters} cluster{_s(c.n_clusters)}"


def _signed(number: float | None) -> str:
    if number is None:
        return "unknown"
    return ("-" if number <= -ROUNDING else "+") + _digits(abs(number))


def _digits(size: float) -> str:
    """Three decimals, and one digit of what they would show as nothing."""
    return f"{size:.3f}" if size >= 0.0005 or size < ROUNDING else f"{size:.0e}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
