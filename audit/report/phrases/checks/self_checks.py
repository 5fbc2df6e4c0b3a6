"""The results of repeated questions in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from audit.report.formatting import number, one_line
from audit.results import SelfCheck

#: Noise in nats below which nothing is said.
_QUIET = 0.01


def contradictions(checks: Iterable[SelfCheck]) -> Iterator[str]:
    """A problem for each model whose answers contradict each other, and for each that could not be checked."""
    for check in checks:
        if check.disagreed:
            yield (
                f"{check.model}: {check.disagreed} of {_repeated(check)} got another answer ({_rate(check)}; up to "
                f"{check.largest_move:.2g} nats apart). One model would have repeated itself: up to "
                f"{_percent(check.foreign_at_most)} of its {_unit(check)} may be another model's, and its "
                "figures are bounded accordingly. These answers are quarantined"
            )
        if check.unanswered and check.unanswered > check.asked_again:
            asked = _questions(check.unanswered)
            yield f"{check.model}: {asked} asked a second time got no answer, so little is checked"


def self_check_sentences(checks: Iterable[SelfCheck]) -> Iterator[str]:
    """What remains possible if no answers contradict each other, and how much the scores vary.

    Nothing of a model whose answers are quarantined: the run's problems say why, and the rest would contradict them.
    """
    for check in checks:
        if check.contradicted:
            continue
        name = one_line(check.model)
        if check.asked_again and not check.disagreed:
            yield (
                f"{name}: {_repeated(check)} got the same answer ({_rate(check)}). "
                f"If which model answers does not depend on the question and no answer comes from a cache, another "
                f"model may have given up to {_percent(check.foreign_at_most)} of all {_unit(check)} without being "
                "noticed; "
                "otherwise any share."
            )
        if check.draws:
            yield f"{name}: {_draws(check)}"
        elif check.asked_again:
            yield (
                f"{name}: no tokens drawn after its questions could be compared with its scores: scores that are false "
                "for the audited words alone, by any factor, would not have been noticed."
            )
        if check.left_out_doubted:
            yield (
                f"{name}: audited words that are not in its lists were drawn more often than their last rank allows, "
                "though not so often that it proves the lists false. They may have up to "
                f"{_percent(check.left_out_at_most)} together, on average over the questions, and the figures are "
                "bounded accordingly."
            )
        elif 0 < check.left_out_at_most < 1:
            yield (
                f"{name}: some audited words are not in its lists, and have at most their last rank's probability. If "
                "the lists hid likelier ones, draws would show it only if they had more than "
                f"{_percent(check.left_out_at_most)} together, on average over the questions."
            )
        if check.noise > _QUIET:
            yield (
                f"{name}: its scores vary by up to {number(check.noise, 2)} nats when a question is repeated, so "
                "none of them counts as exact: its figures are bounded accordingly." + _as_near(check)
            )


def _as_near(check: SelfCheck) -> str:
    if not check.agreeing_within:
        return ""
    within = number(check.agreeing_within, 2)
    return (
        f" Answers up to {within} nats apart count as the same, so that a second model which is no further away "
        "passes as noise."
    )


def _draws(check: SelfCheck) -> str:
    factor, share = check.unseen_factor, f"{number(check.drawn_probability or 0.0, 2)} on average"
    size = f"by less than a factor of {number(factor, 2)}" if factor else "by any factor"
    return (
        f"{check.draws:,} tokens drawn after its questions fit its scores. If the probability of the likeliest audited "
        f"word ({share}) were false {size} in all of them, or exchanged with another that is no further away, these "
        "draws would probably not show it."
    )


def _repeated(check: SelfCheck) -> str:
    which = " with one of their continuations" if check.one_of_several else ""
    return f"{_questions(check.asked_again)} asked a second time{which}"


def _unit(check: SelfCheck) -> str:
    return "continuations' scores" if check.one_of_several else "answers"


def _questions(n: int) -> str:
    return f"{n:,} question{'' if n == 1 else 's'}"


def _rate(check: SelfCheck) -> str:
    share = check.disagreed / check.asked_again
    return f"{_percent(share)} disagree, interval {_percent(check.rate_low)} to {_percent(check.rate_high)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
