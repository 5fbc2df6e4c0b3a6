"""The attribution ladder in words: the effect of each change of a model, or of how it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.report.formatting import factor_label, number, one_line
from audit.report.phrases.findings.comparisons import decided_interval, over
from audit.results import AttributionStep, Comparison, Verdict

#: What a change does to a figure.
_EFFECTS: Mapping[Verdict, str] = {
    "larger": "raises it{by}",
    "smaller": "lowers it{by}",
    "equivalent": "leaves it within ±{margin} of what it was",
    "inconclusive": "shows neither a change nor the absence of one",
    "not comparable": "cannot be compared on it",
}


def step_title(step: AttributionStep) -> str:
    """``base → tuned (adapter)``."""
    return f"{rungs(step)} ({changes(step)})"


def rungs(step: AttributionStep) -> str:
    """``base → tuned``, or the suites if they are what differs."""
    if step.a.suite == step.b.suite:
        return f"{one_line(step.a.model)} → {one_line(step.b.model)}"
    return f"{one_line(step.b.model)}, {one_line(step.a.suite)} → {one_line(step.b.suite)}"


def changes(step: AttributionStep) -> str:
    """What differs between the two rungs, the engine included."""
    named = [factor_label(name) for name in step.changes] or ["declared; what differs is unknown"]
    return ", ".join([*named, *(["and the engine"] if step.engine else [])])


def step_sentence(step: AttributionStep, subject: str, decided: Sequence[tuple[str, Comparison]]) -> str:
    """A step's effect on one measure: ``decided`` are its decisions with the condition to name, "" for none."""
    said: dict[str, list[str]] = {}
    for condition, c in decided:
        said.setdefault(effect(c), []).append(condition)
    parts = (f"{'; '.join(conditions)}: {text}" if any(conditions) else text for text, conditions in said.items())
    engine = (
        f" The engine differs too ({', '.join(factor_label(name) for name in step.engine)}); its effect is not "
        "separated."
        if step.engine
        else ""
    )
    populations = {c.population for _, c in decided if c.population}
    whom = f", {over(populations.pop()).strip()}" if len(populations) == 1 else ""
    return f"{step_title(step)}, {subject}{whom}: {'; '.join(parts)}.{engine}"


def effect(c: Comparison) -> str:
    """The effect of the change on a figure, with the interval behind the verdict."""
    span = "" if c.low is None or c.high is None else f" ({decided_interval(c)})"
    by = "" if c.difference is None else f" by {number(abs(c.difference))}"
    return _EFFECTS[c.verdict].format(by=by, margin=f"{c.margin:g}") + span
