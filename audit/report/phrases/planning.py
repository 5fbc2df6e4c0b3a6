"""What a run would take, what it could find, and what a rehearsal found, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audit.analysis.power import POWER
from audit.collect.progress import duration
from audit.collect.sample import LEAST_LEVELS
from audit.prepare.boundaries import BoundaryCheck
from audit.prepare.forecast.estimate import ModelEstimate, RunEstimate
from audit.prepare.forecast.planning import FigurePlan, SamplePlan
from audit.prepare.rehearsal import SuiteCheck
from audit.report.templating import lines

_POWER = f"{POWER:.0%}"


def estimate_text(estimate: RunEstimate) -> str:
    """What a run would ask of each model, how long that may take, and what it may cost."""
    durations = ["" if m.seconds is None else duration(m.seconds) for m in estimate.models]
    return _text("estimate", estimate, durations, _time_of_all(estimate.models))


def _time_of_all(models: Sequence[ModelEstimate]) -> str:
    """The time of several models: those on one device take turns, servers are asked side by side."""
    asked = [m for m in models if m.requests or m.follow_ups]
    if len(asked) < 2:
        return ""
    if unknown := [m.model for m in asked if m.seconds is None]:
        return f"all models: time unknown, as that of {', '.join(unknown)} is"
    by_device: dict[str, float] = {}
    for m in asked:
        turn = m.model if m.device is None else f"on {m.device}"
        by_device[turn] = by_device.get(turn, 0.0) + (m.seconds or 0.0)
    turns = "; models on one device take turns" if len(by_device) < len(asked) else ""
    return f"all models: {duration(max(by_device.values()))}{turns}"


def plan_text(planned: SamplePlan) -> str:
    """What differences are detected, what it takes to detect a given one, and its cost."""
    alphas = sorted({f"{figure.alpha:.2g}" for figure in planned.figures})
    unknown = "time unknown: too few stored answers of this model"
    costs = [unknown if cost.seconds is None else duration(cost.seconds) for cost in planned.costs]
    return _text("plan", planned, _POWER, alphas, costs)


def power_text(powers: Sequence[FigurePlan]) -> str:
    """The smallest difference that each primary mean's items can detect, one line each; empty without any."""
    return "\n" + _text("power", powers, _POWER) if powers else ""


def rehearsal_lines(found: Sequence[SuiteCheck], of_config: Sequence[Exception]) -> list[str]:
    """Each suite's mistakes, what its design can show, and how well a planted bias was recovered."""
    return lines("planning", "rehearsal", found, of_config, LEAST_LEVELS)


def boundary_lines(found: Sequence[BoundaryCheck]) -> list[str]:
    """How prompts and continuations meet in each model's tokens, suite by suite."""
    return lines("planning", "boundaries", found)


def _text(macro: str, *facts: Any) -> str:
    return "\n".join(lines("planning", macro, *facts))
