"""What a run would take, and what it could find, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from audit.analysis.power import POWER
from audit.collect.progress import duration
from audit.prepare.forecast.estimate import ModelEstimate, RunEstimate
from audit.prepare.forecast.planning import FigurePlan, ModelCost, SamplePlan


def estimate_text(estimate: RunEstimate) -> str:
    """What a run would ask of each model, how long that may take, and what it may cost."""
    lines = []
    if estimate.first_look is not None:
        lines.append(
            f"An upper bound: the run stops once the question is decided, after {estimate.first_look:,} items at the "
            "earliest."
        )
    for of_model in estimate.models:
        lines += _of_model(of_model)
    lines += _of_all(estimate.models)
    return "\n".join(lines)


def _of_all(models: Sequence[ModelEstimate]) -> Iterator[str]:
    """The time and the GPU-hours of several models: those on one device take turns, servers are asked side by side."""
    asked = [m for m in models if m.requests or m.follow_ups]
    if len(asked) < 2:
        return
    if unknown := [m.model for m in asked if m.seconds is None]:
        yield f"all models: time unknown, as that of {', '.join(unknown)} is"
        return
    by_device: dict[str, float] = {}
    for m in asked:
        turn = m.model if m.device is None else f"on {m.device}"
        by_device[turn] = by_device.get(turn, 0.0) + (m.seconds or 0.0)
    turns = "; models on one device take turns" if len(by_device) < len(asked) else ""
    yield f"all models: {duration(max(by_device.values()))}{turns}"


def _of_model(m: ModelEstimate) -> Iterator[str]:
    again = f", {m.asked_again:,} of them a second time" if m.asked_again else ""
    yield m.model
    yield f"  items {m.items:,}, to ask {m.requests:,}{again}, already answered {m.cached:,}"
    if m.follow_ups or m.texts_to_score:
        yield f"  then at most {m.follow_ups:,} follow-ups, and {m.texts_to_score:,} texts for scorers"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in m.requests_by_kind.items())
    yield f"  by kind, with follow-ups: {kinds or 'none'}"
    yield f"  prompt tokens {m.prompt_tokens:,} ({m.tokens_by}), generated up to {m.most_generated_tokens:,}"
    seconds = "unknown" if m.seconds is None else f"{'at most ' * bool(m.follow_ups)}{duration(m.seconds)}"
    yield f"  time {seconds} ({m.seconds_by})"
    if m.cost is not None:
        yield f"  cost at most about {m.cost:.4f}, if each answer uses all its tokens"
    if m.calls > m.requests + m.follow_ups + m.asked_again:
        about = "at most" if m.is_bound else "about"
        yield f"  {about} {m.calls:,} requests that run its model: continuations, or draws, take requests of their own"
    if m.checking_requests:
        yield f"  {m.checking_requests:,} more requests look at its server and check its answers"
    if m.is_bound:
        yield "  nothing was sent: --probe takes a short look at the server first, and the figures come near"


def plan_text(planned: SamplePlan) -> str:
    """What differences are detected, what it takes to detect a given one, and its cost."""
    detect = planned.detect
    aim = "What differences are detected" if detect is None else f"To detect a difference of {detect:g}"
    lines = [f"{aim} with {POWER:.0%} power, from the pilot {planned.run_id}:"]
    for figure in planned.figures:
        lines += _of_figure(figure, detect)
    alphas = ", ".join(sorted({f"{figure.alpha:.2g}" for figure in planned.figures}))
    lines.append(
        "Planned for a two-sided test of one primary figure and pair of models, corrected for all of a suite's "
        f"(alpha {alphas}). A pilot knows its variances only roughly.\n"
        "A gate reports only what is worse by more than its margin, and to call two models equivalent their interval "
        "must lie within it."
    )
    return "\n".join([*lines, *map(_cost, planned.costs)])


def _of_figure(one: FigurePlan, detect: float | None) -> Iterator[str]:
    yield f"{one.figure} ({one.basis})"
    yield f"  all of the suite's items, {_levels(one.levels)}: they detect {_size(one.detects)}"
    if detect is None:
        return
    if one.limit is not None:
        yield f"  enough: --limit {one.limit}"
    elif one.needed:
        yield f"  needed: {_levels(one.needed)}. You would have to write more"
    else:
        yield "  no number of levels is enough"


def _size(difference: float) -> str:
    return f"{difference:.3f}" if math.isfinite(difference) else "nothing"


def _cost(of: ModelCost) -> str:
    seconds = "time unknown: too few stored answers of this model" if of.seconds is None else duration(of.seconds)
    cost = "" if of.cost is None else f", cost at most about {of.cost:.4f}"
    return f"{of.model}: {of.requests:,} requests, {seconds}{cost}"


def power_text(powers: Sequence[FigurePlan]) -> str:
    """The smallest difference that each primary mean's items can detect, one line each; empty without any."""
    if not powers:
        return ""
    lines = ["", f"Smallest difference between two models that these items detect with {POWER:.0%} power"]
    if any(not power.basis for power in powers):
        lines.append("(about: if two models differ as SmolLM2-135M and Gemma 3 270M do on OccuGender)")
    return "\n".join([*lines, *(f"{power.figure}: {_power(power)}" for power in powers)])


def _power(power: FigurePlan) -> str:
    if not power.levels:
        return "unknown: the figure names no factor whose levels are a sample (`clusters`)"
    described = _levels(power.levels)
    if math.isnan(power.detects):
        return f"unknown with {described} (no earlier run, and its values have no range)"
    by = f"by an earlier run, {power.basis}" if power.basis else "no earlier run"
    about = "" if power.basis else "about "
    return f"{about}{_size(power.detects)} with {described} ({by})"


def _levels(levels: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {factor}{'s' if n != 1 else ''}" for factor, n in levels.items())
