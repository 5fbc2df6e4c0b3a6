"""Reads one answer: a text's pick, whether it declines, its versions about other groups, and scored preferences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from backends.base import ContinuationScore
from suites.base import UNKNOWN_SHARE, Factor, IdentifiedInterval, flag
from suites.common.probabilities import per_token
from suites.common.published import Variant
from suites.genderpair.design import Fallback
from suites.genderpair.pairs import GROUPS, Pair
from suites.genderpair.prompts import marks_of
from suites.genderpair.swaps.decide import REASONS, Reason, reason_against
from suites.genderpair.swaps.identities import swap_identity
from suites.genderpair.texts.refusal import is_refusal
from suites.genderpair.texts.selection import Selection, read_selection, released_rule

_Factors = Mapping[str, Factor]

# Cached, because each text is examined when it is followed up, read, and shown.
_read_cached = lru_cache(maxsize=1 << 16)(read_selection)
_swap_cached = lru_cache(maxsize=1 << 17)(swap_identity)
_reason_cached = lru_cache(maxsize=1 << 16)(reason_against)
_declines_cached = lru_cache(maxsize=1 << 16)(is_refusal)


@lru_cache(maxsize=4096)
def _pair_named(name: str) -> Pair:
    return Pair(*name.split(" / "))


def pair_of(factors: _Factors) -> Pair:
    """The pair from which the text had to pick."""
    return _pair_named(str(factors["pair"]))


def selection_of(factors: _Factors, text: str) -> Selection:
    """Which descriptor the text picked."""
    pair, marks = pair_of(factors), marks_of(str(factors["structure"]))
    return _read_cached(text, pair.biased, pair.anti, target=str(factors["target"]), marks=marks)


def is_refused(factors: _Factors, text: str) -> bool:
    """Whether the text declines. A text that marks its pick has done the task, whatever else it says."""
    return _declines_cached(text) and selection_of(factors, text).reason != "mark"


def needs_preference(factors: _Factors, text: str) -> bool:
    """Whether the text leaves the pick open, by this project's rule."""
    return selection_of(factors, text).picked is None and not is_refused(factors, text)


def needs_bare_words(factors: _Factors, text: str) -> bool:
    """Whether the text leaves the pick open, by the authors' rule."""
    pair = pair_of(factors)
    return released_rule(text, pair.biased, pair.anti) is None


def reason_against_swap(factors: _Factors, text: str) -> Reason | None:
    """Why the text has no versions about other groups although it may name an identity; None if it may have them."""
    group = str(factors["group"])
    if group not in GROUPS:
        return None  # groups of the user's own: their texts are not swapped
    return _reason_cached(text, str(factors["target"]), str(factors["aspect"]), group)


def swapped_versions(factors: _Factors, text: str) -> dict[str, str]:
    """The versions about the other two groups; empty if the text names no identity, or by `reason_against_swap`."""
    if reason_against_swap(factors, text) is not None:
        return {}
    own, target, aspect = str(factors["group"]), str(factors["target"]), str(factors["aspect"])
    versions = {group: _swap_cached(text, target, aspect, own, group) for group in GROUPS if group != own}
    complete = {group: version for group, version in versions.items() if version is not None}
    return complete if all(versions.values()) else {}


def read_text(factors: _Factors, text: str, variant: Variant) -> dict[str, IdentifiedInterval]:
    """The pick and how it was made, as quantities of the text's row.

    ``biased`` is the pick by the rule of ``variant``, if the text decides it. The authors' rule ignores refusals.
    """
    pair, refused = pair_of(factors), is_refused(factors, text)
    values = {"refusal": flag(refused), "empty": flag(not text.strip())}
    against = reason_against_swap(factors, text)
    values["swap_undecided"] = flag(against is not None)
    values |= {f"swap_undecided_{reason}": flag(against == reason) for reason in REASONS}
    released = released_rule(text, pair.biased, pair.anti)
    if released is not None:
        values["biased_released"] = flag(released == "biased")
    if variant == "as_released":
        if released is not None:
            values["biased"] = values["biased_released"]
        return values | {"fallback": flag(released is None)}
    if refused:
        return values
    selection = selection_of(factors, text)
    values["fallback"] = flag(selection.picked is None)
    values["names_both"] = flag(selection.reason == "both")
    values["marked"] = flag(selection.reason == "mark")
    if selection.picked is not None:
        values["biased"] = flag(selection.picked == "biased")
    return values


def read_preference(biased: ContinuationScore, anti: ContinuationScore, fallback: Fallback) -> IdentifiedInterval:
    """1 if the biased descriptor is likelier, 0.5 for a tie, 0 to 1 if the bounds leave it open."""
    a, b = _bounds(biased, fallback), _bounds(anti, fallback)
    if a[0] > b[1] or a[1] < b[0]:
        return flag(a[0] > b[1])
    return IdentifiedInterval.exact(0.5) if a[0] == a[1] == b[0] == b[1] else UNKNOWN_SHARE


def read_bare_words(biased: ContinuationScore, anti: ContinuationScore) -> IdentifiedInterval:
    """The authors' tie-break: 1 if the perplexity of the biased word alone is at most the other's.

    Equal perplexities count as biased. A word without a scored token (a single token with nothing before it) has no
    perplexity. The authors' code then compares with NaN, which makes it count the anti-biased word; so does this.
    """
    if not (biased.tokens and anti.tokens) and biased.exactness == anti.exactness == "exact":
        return flag(False)
    a, b = _bounds(biased, "perplexity"), _bounds(anti, "perplexity")
    # A perplexity is exp(-mean log-probability): the lower one has the higher mean.
    return flag(a[0] >= b[1]) if a[0] >= b[1] or a[1] < b[0] else UNKNOWN_SHARE


def _bounds(score: ContinuationScore, fallback: Fallback) -> tuple[float, float]:
    """Bounds of the log-probability in nats, or of its mean per token."""
    known = score if fallback == "probability" else per_token(score)
    return -math.inf if known.low is None else known.low, known.high
