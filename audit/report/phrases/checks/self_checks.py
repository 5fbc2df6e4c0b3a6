"""What was checked of hosted models, in words, and what no check can see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from audit.report.formatting import number, one_line
from audit.results import SelfCheck

#: Noise in nats below which nothing is said.
_QUIET = 0.01
_UNSEEN = (
    "We cannot see a changed prompt, another model or a filter that is there for every request. Compare once with the "
    "same weights run locally."
)


def contradictions(checks: Iterable[SelfCheck]) -> Iterator[str]:
    """A problem for each model whose answers contradict each other, and for each that could not be checked."""
    for check in checks:
        if check.disagreed:
            yield (
                f"{check.model}: {check.disagreed} of {_questions(check.asked_again)} asked a second time got another "
                f"answer (up to {check.largest_move:.2g} nats apart): another model or a cache gave some of the "
                "answers, so none of this run's counts. Pin the model's version and provider (extra_body), switch off "
                "the gateway's cache, and run again"
            )
        if check.unanswered and check.unanswered > check.asked_again:
            asked = _questions(check.unanswered)
            yield f"{check.model}: {asked} asked a second time got no answer, so little is checked"


def self_check_sentences(checks: Iterable[SelfCheck]) -> Iterator[str]:
    """What was checked of each hosted model, and what cannot be; nothing of one whose answers are quarantined."""
    for check in checks:
        if not check.contradicted:
            yield f"{one_line(check.model)}: {_made(check)} {_UNSEEN}"


def _made(check: SelfCheck) -> str:
    made = []
    if check.prompts > 1:
        made.append("answers differently to different prompts")
    if check.asked_again:
        noise = f", within {number(check.noise, 2)} nats, which its intervals hold" if check.noise > _QUIET else ""
        made.append(f"repeats itself ({_questions(check.asked_again)} asked again{noise})")
    if check.draws:
        made.append(f"draws words as often as it claims on {check.drawn_questions:,} of your questions")
    if not made:
        return "No check of this server's answers was possible."
    listed = f"{', '.join(made[:-1])} and {made[-1]}" if len(made) > 1 else made[0]
    return f"We checked that this server {listed}."


def _questions(n: int) -> str:
    return f"{n:,} question{'' if n == 1 else 's'}"
