"""What a gate enforces: margins against a baseline, absolute limits, and which open questions fail it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from audit.analysis.decisions import DEFAULT_MARGIN
from audit.analysis.gate.limits import COVERAGE, REFUSALS, Bounds
from audit.analysis.gate.results import OpenFails
from backends.errors import ConfigError
from suites.base import MeasureSpec

Margins = Mapping[str, float] | float

#: The share of answers that are refused or cannot be parsed, which margins may name.
UNREADABLE_SHARE = "unreadable_share"


@dataclass(frozen=True)
class GateRules:
    """What a gate enforces.

    Parameters
    ----------
    margins : float or mapping of measure name to float
        Harm up to the margin does not matter. A mapping may have a ``default`` for other measures, or else it is 0.02.
    limits : mapping
        ``{name: (at least, at most)}``, None where open. A name is a measure, ``coverage`` (raw
        mass behind a figure) or ``refusals`` (share of a figure's items that were refused).
    open_fails : str
        Which open questions also fail the gate: none, those that ``missing`` answers leave open, or all.
    """

    margins: Margins = DEFAULT_MARGIN
    limits: Mapping[str, Bounds] = field(default_factory=dict)
    open_fails: OpenFails = "missing"


def check_rules(
    specs: Iterable[MeasureSpec], margins: Margins, limits: Mapping[str, Bounds], *, others: Collection[str] = ()
) -> None:
    """Raise `ConfigError` for a margin or limit without effect: no figure has its name, or no value breaks it.

    ``others``: measures that margins and limits may name, too, of which only the names are known.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for spec in specs:
        low, high = spec.value_range
        least, most = ranges.get(spec.measure, (low, high))
        ranges[spec.measure] = min(low, least), max(high, most)
    named = dict(margins) if isinstance(margins, Mapping) else {}
    _check_names("margins", named, {*ranges, *others, "default", UNREADABLE_SHARE})
    _check_names("limits", limits, {*ranges, *others, COVERAGE, REFUSALS})
    ranges |= {COVERAGE: (0.0, 1.0), REFUSALS: (0.0, 1.0), UNREADABLE_SHARE: (0.0, 1.0)}
    for name, bounds in limits.items():
        low, high = ranges.get(name, (-math.inf, math.inf))
        is_beyond = any(bound is not None and not low <= bound <= high for bound in bounds)
        if is_beyond or (bounds[0] in (None, low) and bounds[1] in (None, high)):
            raise _without_effect(f"limits.{name}", bounds, f"the figure lies between {low:g} and {high:g}")
    if not isinstance(margins, Mapping):
        named = {"default": margins}
    for name, margin in named.items():
        widest = max((high - low for low, high in ranges.values()), default=math.inf)
        low, high = ranges.get(name, (0.0, widest if name == "default" else math.inf))
        if margin >= high - low:
            field = f"margins.{name}" if isinstance(margins, Mapping) else "margins"
            raise _without_effect(field, margin, f"no figure can change by more than {high - low:g}")


def _check_names(field: str, given: Mapping[str, object], allowed: Collection[str]) -> None:
    for name, value in given.items():
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Use one of: {', '.join(sorted(allowed))}"
            raise ConfigError(f"{field}.{name}", value, "no figure has this name", hint)


def _without_effect(field: str, given: object, problem: str) -> ConfigError:
    return ConfigError(field, given, problem, "Give a value that it can have, 5 % as 0.05")
