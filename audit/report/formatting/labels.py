"""Readable names of measures, factors, levels and units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from audit.report.formatting.safe_text import one_line
from audit.results import level_key
from backends.base import Scalar
from suites.base import KIND


def measure_label(name: str) -> str:
    """``p_female`` → ``P̃(female)``: the normalised probability; others lose their underscores."""
    if name.startswith("p_") and len(name) > 2:
        return f"P̃({factor_label(name[2:])})"
    return factor_label(name)


def factor_label(name: str) -> str:
    """A factor's name without underscores."""
    return one_line(name.replace("_", " "))


def level_label(level: Scalar) -> str:
    """A factor's level; None is the level without treatment."""
    if level is None:
        return "none"
    if isinstance(level, bool):
        return "yes" if level else "no"
    return one_line(str(level)).replace("_", " ")


def short_level(factor: str, level: Scalar) -> str:
    """A label that can stand alone: numbers and None are preceded by the factor's name."""
    return level_label(level) if isinstance(level, str) else f"{factor_label(factor)} {level_label(level)}"


def distinct_labels(levels: Iterable[Scalar], label: Callable[[Scalar], str]) -> dict[tuple[bool, Scalar], str]:
    """``level_key → label`` of a factor's levels. Levels with the same label are written as code: 'a_b', 'a b'."""
    labels = {level_key(level): label(level) for level in levels}
    times = Counter(labels.values())
    return {key: text if times[text] == 1 else one_line(repr(key[1])) for key, text in labels.items()}


def where_label(where: Mapping[str, Scalar]) -> str:
    """``bias explicit · debiasing none``; ``overall`` where nothing is narrowed."""
    parts = (f"{factor_label(k)} {level_label(v)}" for k, v in where.items() if k != KIND)
    return " · ".join(parts) or "overall"


def unit_label(unit: str) -> str:
    """A unit for an axis; none for plain ratios and probabilities."""
    return "" if unit in ("", "probability", "ratio", "correlation") else one_line(unit)
