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
_SHARE, _ANY = (0.0, 1.0), (-math.inf, math.inf)


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
    names = {*ranges, *others}
    of_margins = margins if isinstance(margins, Mapping) else {}
    _check_names("margins", of_margins, names | {"default", UNREADABLE_SHARE})
    _check_names("limits", limits, names | {COVERAGE, REFUSALS})
    for name, bounds in limits.items():
        _check_limit(name, bounds, {COVERAGE: _SHARE, REFUSALS: _SHARE, **ranges}.get(name, _ANY))
    widths = {name: high - low for name, (low, high) in ranges.items()}
    for name, margin in of_margins.items():
        _check_margin(f"margins.{name}", margin, {UNREADABLE_SHARE: 1.0, **widths}.get(name, math.inf))
    default = margins.get("default", 0.0) if isinstance(margins, Mapping) else margins
    field = "margins.default" if isinstance(margins, Mapping) else "margins"
    _check_margin(field, default, max(widths.values(), default=math.inf))


def _check_names(field: str, given: Mapping[str, object], allowed: Collection[str]) -> None:
    for name, value in given.items():
        if name in allowed:
            continue
        close = difflib.get_close_matches(name, allowed, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Use one of: {', '.join(sorted(allowed))}"
        raise ConfigError(f"{field}.{name}", value, "no figure has this name", hint)


def _check_limit(name: str, bounds: Bounds, values: tuple[float, float]) -> None:
    low, high = values
    beyond = [bound for bound in bounds if bound is not None and not low <= bound <= high]
    if beyond:
        problem = f"the figure lies between {low:g} and {high:g}"
        hint = "Give values that it can have"
        if high == 1 and 1 < max(map(abs, beyond)) <= 100:
            hint = f"Write {beyond[0]:g} % as {beyond[0] / 100:g}"
        raise ConfigError(f"limits.{name}", bounds, problem, hint)
    least, most = bounds
    if (least is None or least == low) and (most is None or most == high):
        problem = f"the figure lies between {low:g} and {high:g} anyway, so this limits nothing"
        raise ConfigError(f"limits.{name}", bounds, problem, "Give a value between the two")


def _check_margin(field: str, margin: float, width: float) -> None:
    if math.isfinite(width) and margin >= width:
        problem = f"no figure can change by more than {width:g}, so every change would be within it"
        hint = f"Write {margin:g} % as {margin / 100:g}" if width <= 2 and 1 <= margin <= 100 else "Give less"
        raise ConfigError(field, margin, problem, hint)
