"""What a gate enforces: margins against a baseline, absolute limits, and which open questions fail it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from audit.analysis.decisions import DEFAULT_MARGIN
from audit.analysis.gate.limits import COVERAGE, REFUSALS, Bounds
from audit.analysis.gate.results import OpenFails
from audit.analysis.gate.unreadable import UNREADABLE_SHARE
from audit.results import RENAMED_MEASURES
from backends.errors import ConfigError

Margins = Mapping[str, float] | float


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
    largest_change : float, optional
        As in `audit.analysis.comparing.comparisons.compare_models`.
    open_fails : str
        Which open questions also fail the gate: none, those that ``missing`` answers leave open, or all.
    """

    margins: Margins = DEFAULT_MARGIN
    limits: Mapping[str, Bounds] = field(default_factory=dict)
    largest_change: float | None = None
    open_fails: OpenFails = "missing"


def check_names(measures: Iterable[str], margins: Margins, limits: Mapping[str, Bounds]) -> None:
    """Raise `ConfigError` for a margin or limit that names no measure, and so would have no effect."""
    names = set(measures)
    named = {
        "margins": (margins if isinstance(margins, Mapping) else {}, names | {"default", UNREADABLE_SHARE}),
        "limits": (limits, names | {COVERAGE, REFUSALS}),
    }
    newer = {old: new for names in RENAMED_MEASURES.values() for old, new in names.items()}
    for kind, (given, allowed) in named.items():
        for name, value in given.items():
            if name not in allowed:
                hint = f"Use one of: {', '.join(sorted(allowed))}"
                if newer.get(name) in allowed:
                    hint = f"It is now called {newer[name]}"
                raise ConfigError(f"{kind}.{name}", value, "no figure has this name", hint)
