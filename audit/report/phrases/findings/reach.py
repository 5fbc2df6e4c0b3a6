"""What a figure's levels say of others: how few there are, and what kind of them may be missing."""

from __future__ import annotations

from collections.abc import Mapping

from audit.analysis.estimators.design import FEW_LEVELS
from audit.report.formatting import factor_label, percent
from audit.report.phrases.counted import count, enumeration


def rests_on(levels: Mapping[str, int]) -> str:
    """ "rests on 4 templates" where a sampled factor has few levels; else empty."""
    few = [count(n, factor_label(factor)) for factor, n in levels.items() if n < FEW_LEVELS and factor != "item"]
    return f"rests on {enumeration(few)}" if few else ""


def missing_kinds(levels: Mapping[str, int]) -> str:
    """What share of all templates may be of a kind that none of those asked is of.

    With n levels, a kind that is a share p of all is missed with probability (1 - p)^n: at most 5 % from
    p = 1 - .05^(1/n) on.
    """
    sampled = {factor: n for factor, n in levels.items() if factor != "item" and n > 0}
    if not sampled:
        return ""
    factor, n = min(sampled.items(), key=lambda entry: entry[1])
    label = factor_label(factor)
    return (
        f"With {count(n, label)}, a kind that makes up less than {percent(1 - 0.05 ** (1 / n))} of all {label}s may be "
        "missing here; if it behaves differently, this interval does not show it."
    )
