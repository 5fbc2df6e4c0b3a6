"""What a run would take, and what it could find, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from audit.analysis.components import POWER
from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.collect.progress import duration
from audit.prepare.forecast.draw_allocation import Allocation, AllocationPlan
from audit.prepare.forecast.estimate import ModelEstimate, RunEstimate
from audit.prepare.forecast.planning import FigurePlan, ModelCost, SamplePlan
from audit.prepare.forecast.sample_power import ItemPower


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
    gpus = [m.gpu_hours for m in asked if m.gpu_hours is not None]
    of_gpus = f", {sum(gpus):.3g} GPU-hours" if gpus else ""
    turns = "; models on one device take turns" if len(by_device) < len(asked) else ""
    yield f"all models: {duration(max(by_device.values()))}{of_gpus}{turns}"


def _on_actors(m: ModelEstimate) -> str:
    """On how many actors the time is, and by how many it was measured."""
    if m.seconds is None or (m.actors == m.measured_actors == 1) or (m.actors is None and m.measured_actors is None):
        return ""
    if m.measured_actors is None:
        many = "" if m.actors == 1 else f"; not divided by your {m.actors} actors"
        return f" as measured, by how many actors is unknown{many}"
    measured = f"measured on {m.measured_actors}"
    on = measured if m.actors is None else f"on {m.actors} actor{'s' * (m.actors != 1)}, {measured}"
    return f" {on}" + ("" if m.gpu_hours is None else f", {m.gpu_hours:.3g} GPU-hours")


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
    yield f"  time {seconds}{_on_actors(m)} ({m.seconds_by})"
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
    """The designs that detect a difference, what limits such a plan, and its cost."""
    detect = planned.detect
    aim = "What differences are detected" if detect is None else f"To detect a difference of {detect:g}"
    lines = [f"{aim} with {POWER:.0%} power, from the pilot {planned.run_id}:"]
    for figure in planned.figures:
        lines += _of_figure(figure, with_design=detect is not None)
    if planned.not_planned:
        lines.append(f"Not planned, since the pilot holds no variance components: {', '.join(planned.not_planned)}")
    alphas = ", ".join(sorted({f"{figure.alpha:.2g}" for figure in planned.figures}))
    lines.append(
        "Planned for a two-sided test of one primary figure and pair of models, corrected for all of a suite's "
        f"(alpha {alphas}). {_by_which(detect)}\n"
        "A gate reports only what is worse by more than its margin: add the margin to the difference you want to "
        "detect.\n"
        "To call two models equivalent takes more: an allowance for kinds of clusters that were not asked, which "
        "`largest_change` bounds (by default 150 levels of each factor for ±0.02 of a probability)."
    )
    return "\n".join([*lines, *map(_cost, planned.costs)])


def _by_which(detect: float | None) -> str:
    """Which variances a plan's sizes rest on."""
    if detect is None:
        return "By the pilot's variances as estimated; a plan for a difference (--detect) allows for their error."
    return (
        "Every size here uses upper limits of the components estimated from the pilot, as these are uncertain "
        "themselves, and takes the difference itself to vary between levels."
    )


def _of_figure(one: FigurePlan, *, with_design: bool) -> Iterator[str]:
    now = ", ".join(f"{n:,} {factor}s" for factor, n in one.pilot_levels.items())
    yield one.figure
    if one.alike:
        yield f"  pilot: {now}; its values are all alike ({one.basis}),"
        yield "  which does not show how others vary"
        return
    if one.pilot_too_small:
        yield f"  pilot: {now} ({one.basis}): too few to plan from, since fewer than {FEWEST_CLUSTERS} levels"
        yield "  of a factor, or of one group of it, do not show how others vary. Run a larger one (--limit)"
        return
    yield f"  pilot: {now}; it detects {_size(one.minimum_detectable_effect)} ({one.basis})"
    if one.whole_suite is not None:
        every = ", ".join(f"{n:,} {factor}s" for factor, n in one.available.items())
        yield f"  all of the suite's items: {every}; they detect {_size(one.whole_suite)}"
    if not with_design:
        return
    if one.levels is None:
        yield "  no number of levels is enough"
        return
    needed = ", ".join(f"{n:,} {factor}s" for factor, n in one.levels.items())
    if one.is_whole_suite:
        needed += " (all that the suite has)"
    elif one.stratum:
        needed += f" (equally many of each {one.stratum})"
    draws = f", each drawn {one.draws} times" if (one.draws or 1) > 1 else ""
    whole = f" (--limit {one.limit} asks that many)" if one.limit != one.items else ""
    yield f"  needed: {needed}{draws}: {one.items:,} items of this figure{whole}"
    for factor, n in one.lacking.items():
        has = f"{one.available[factor]:,} {factor}s{_of_one(one, factor)}"
        yield f"  the suite has {has}: you would have to write {n:,} more"


def _of_one(one: FigurePlan, factor: str) -> str:
    """How many levels the smallest stratum has, where strata have unequal numbers of them."""
    return f", {one.fewest[factor]:,} of one {one.stratum}" if factor in one.fewest else ""


def _size(difference: float) -> str:
    return f"{difference:.3f}" if math.isfinite(difference) else "nothing"


def _cost(of: ModelCost) -> str:
    seconds = "time unknown: too few stored answers of this model" if of.seconds is None else duration(of.seconds)
    cost = "" if of.cost is None else f", cost at most about {of.cost:.4f}"
    return f"{of.model}: {of.requests:,} requests, {seconds}{cost}"


def allocation_text(planned: AllocationPlan) -> str:
    """How many items to ask and how many answers to draw of each, and what that brings."""
    budget = planned.budget
    aim = f"The fewest draws for ±{planned.within:g}" if budget is None else f"The best of {budget:,} draws"
    return "\n".join(
        [
            f"{aim} at {planned.confidence:.0%} in each primary mean, from the pilot {planned.run_id}:",
            *map(_allocation, planned.allocations),
            "The width is that of the sampling error. It is what to expect: a small pilot knows its variances only "
            "roughly, so `audit run --until WIDTH` stops by the width that is reached. Where the provider has "
            "batches, batch=True takes half the price.",
        ]
    )


def _allocation(one: Allocation) -> str:
    heading = f"{one.suite}, {one.model}"
    if one.items is None or one.draws is None:
        return (
            f"{heading}\n  no number of draws is enough: all {one.of_items:,} items, drawn any number of times, "
            f"bring ±{one.half_width:.3f}"
        )
    total, whole = one.items * one.draws, one.of_items * one.of_draws
    paid = f" ({one.paid:,} of them are the pilot's)" if one.paid else ""
    parts = f"±{one.without_draws:.3f} would remain however many were drawn"
    parts += f"; {one.missing:.1%} of the items without a value" if one.missing >= 0.0005 else ""
    return (
        f"{heading}\n  --limit {one.items}, samples={one.draws}: {total:,} draws{paid}, {total / whole:.1%} of "
        f"{one.of_items:,} items × {one.of_draws}\n  ±{one.half_width:.3f} ({parts})"
    )


def power_text(powers: Sequence[ItemPower]) -> str:
    """The smallest difference that each primary mean's items can detect, one line each; empty without any."""
    if not powers:
        return ""
    lines = ["", f"Smallest difference between two models that these items detect with {POWER:.0%} power"]
    if any(_is_usual(power) for power in powers):
        lines.append(
            "(about: if two models differ as SmolLM2-135M and Gemma 3 270M do on OccuGender; at worst: however they "
            "differ. After a run with --limit, this says what yours need)"
        )
    return "\n".join([*lines, *(f"{power.figure}: {_power(power)}{_scarce(power)}" for power in powers)])


def _is_usual(power: ItemPower) -> bool:
    """Whether it rests on how models usually differ."""
    return power.basis is None and power.detects is not None and math.isfinite(power.detects)


def _power(power: ItemPower) -> str:
    if not power.levels:
        return "unknown: the figure names no factor whose levels are a sample (`clusters`)"
    described = _levels(power.levels)
    if power.fewest < FEWEST_CLUSTERS:
        of_kind = f", {power.fewest} of one group" if power.fewest < min(power.levels.values()) else ""
        return f"nothing with {described}{of_kind}: {FEWEST_CLUSTERS} or more are needed"
    if power.combinations is not None:
        described += f" in {power.combinations:,} combinations"
    if power.basis is not None and power.detects is not None:
        return f"{_size(power.detects)} with {described} (by an earlier run, {power.basis})"
    if power.detects is None:
        return f"unknown with {described} (no earlier run, and its values have no range)"
    if not math.isfinite(power.detects):
        return f"nothing with {described} (no earlier run)"
    worst = "none for certain" if power.worst is None else f"at worst {power.worst:.2g}"
    return f"about {power.detects:.2g}, {worst} with {described} (no earlier run)"


def _scarce(power: ItemPower) -> str:
    return f". No limit helps: the whole suite has {_levels(power.scarce, ' and ')}" if power.scarce else ""


def _levels(levels: Mapping[str, int], between: str = ", ") -> str:
    return between.join(f"{n:,} {factor}{'s' if n != 1 else ''}" for factor, n in levels.items())
