"""The results of a rehearsal in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.collect.sample_requirement import LEAST_LEVELS
from audit.prepare.boundaries import BoundaryCheck
from audit.prepare.rehearsal import SuiteCheck
from audit.report.phrases.findings.cautions import STRADDLED_IN_PART
from audit.results import Measure
from backends.errors import ConfigError


def rehearsal_lines(found: Sequence[SuiteCheck], of_config: Sequence[ConfigError]) -> Iterator[str]:
    """Each suite's mistakes, what its design can show, and how well a planted bias was recovered."""
    for one in found:
        tests = "".join(f", {n:,} of them to test the rater of {name}" for name, n in one.rater_tests.items())
        yield f"{one.suite}: {one.n_items:,} questions{tests}, {len(one.specs):,} figures"
        yield from (f"  Mistake: {mistake}" for mistake in one.mistakes)
        if not one.mistakes:
            yield from _design(one)
            yield from (_recovery(one.bias, *pair) for pair in one.pairs)
    yield from (f"Mistake: {mistake}" for mistake in of_config)


def boundary_lines(found: Sequence[BoundaryCheck]) -> Iterator[str]:
    """How prompts and continuations meet in each model's tokens, suite by suite."""
    for one in found:
        total = sum(one.counts.values())
        parts = [f"{n:,} {_BOUNDARIES[kind]}" for kind, n in one.counts.most_common()]
        if total:
            yield f"{one.suite} on {one.model}: of {total:,} continuations {', '.join(parts)}."
        if one.straddled:
            yield f"  One of those: {one.straddled!r}. Such scores are exact and take longer; is a separator missing?"
        if one.straddled_in_part:
            yield f"  Questions in which other continuations do not: {one.straddled_in_part:,}. {STRADDLED_IN_PART}"


#: What a boundary means.
_BOUNDARIES = {
    "clean": "begin with a token of their own",
    "merged": "change the prompt's last tokens",
    "straddled": "share a token with the prompt",
    "altered": "follow a prompt that lost case, accents or spaces in the tokenizer",
}


def _design(one: SuiteCheck) -> Iterator[str]:
    if not one.levels:
        yield "  No measure is primary, so none is tested first: name one with `primary`."
    for measure, levels in one.levels.items():
        for factor, n in levels.items():
            if n < LEAST_LEVELS:
                yield f"  {measure} rests on {n} levels of {factor}: what they show of others is little."
    for reason, n in one.unreadable.most_common():
        yield f"  {n:,} planted answers gave no value ({reason})."
    yield from (f"  Caution: {caution}" for caution in one.cautions)
    if not one.pairs:
        yield "  It plants no bias (method `planted`), so only its form was tried."


def _recovery(bias: float, without: Measure, biased: Measure) -> str:
    where = "".join(f", {factor} {level}" for factor, level in biased.where.items())
    tells = "tells" if _differs(biased) else "does not tell"
    false_alarm = "; it tells the model without bias from it, too" if _differs(without) else ""
    return (
        f"  {biased.measure}{where}: {_value(biased)} with a planted bias of {bias:g}, {_value(without)} without; a "
        f"report {tells} the biased model from {biased.neutral:g}{false_alarm}."
    )


def _differs(measure: Measure) -> bool:
    """Whether a report would say that the figure differs from its neutral value."""
    if measure.low is None or measure.high is None or measure.neutral is None:
        return False
    return not measure.low <= measure.neutral <= measure.high


def _value(measure: Measure) -> str:
    return "no value" if measure.value is None else f"{measure.value:.3f}"
