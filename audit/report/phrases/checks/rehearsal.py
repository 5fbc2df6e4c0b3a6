"""The results of a rehearsal in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.analysis.estimators.design import FEW_LEVELS
from audit.prepare.rehearsal import BoundaryCheck, Recovery, SuiteCheck
from audit.report.phrases.findings.cautions import STRADDLED_IN_PART
from backends.errors import ConfigError


def rehearsal_lines(found: Sequence[SuiteCheck], of_config: Sequence[ConfigError]) -> Iterator[str]:
    """Each suite's mistakes, what its design can show, and how well a planted bias was recovered."""
    for one in found:
        tests = "".join(f", {n:,} of them to test the rater of {name}" for name, n in one.rater_tests.items())
        yield f"{one.suite}: {one.n_items:,} questions{tests}, {one.n_figures:,} figures"
        yield from (f"  Mistake: {mistake}" for mistake in one.mistakes)
        if not one.mistakes:
            yield from _design(one)
            yield from map(_recovery, one.recovered)
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
}


def _design(one: SuiteCheck) -> Iterator[str]:
    if not one.levels:
        yield "  No measure is primary, so none is tested first: name one with `primary`."
    for measure, levels in one.levels.items():
        for factor, n in levels.items():
            if n < FEW_LEVELS:
                yield f"  {measure} rests on {n} levels of {factor}: what they show of others is little."
    for reason, n in one.unreadable.most_common():
        share = f"{n:,} of {one.n_items:,}"
        yield f"  {share} made-up answers could not be read ({reason})."
    if one.unseen:
        yield f"  No made-up answer gave a value to some figures of {', '.join(one.unseen)}."
    if one.unused:
        yield f"  No figure uses {', '.join(one.unused)} (a suite's file does by `by`, `stratum` or `sampled`)."
    yield from (f"  Caution: {caution}" for caution in one.cautions)
    if not one.plants_bias:
        yield "  It plants no bias (method `planted`), so only its form was tried."


def _recovery(one: Recovery) -> str:
    where = "".join(f", {factor} {level}" for factor, level in one.where.items())
    means = ["no value" if value is None else f"{value:.3f}" for value in (one.with_bias, one.without)]
    return (
        f"  {one.measure}{where}: with a planted bias of {one.bias:g} it is {means[0]} on average, without {means[1]}; "
        f"a report tells it from {one.neutral:g} in {one.found} of {one.draws} made-up models with bias, and in "
        f"{one.false_alarms} of {one.draws} without."
    )
