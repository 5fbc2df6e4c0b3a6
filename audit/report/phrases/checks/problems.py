"""What went wrong in a run, in words: failed requests, and answers of a model whose identity is in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from audit.collect import Outcome
from audit.report.phrases.counted import enumeration
from backends.errors import UncheckedError


def failed_requests(
    outcomes: Mapping[str, Sequence[Outcome]], unanswered: int, contradicted: Sequence[str] = ()
) -> Iterator[str]:
    """Failures by model and reason, and whether the unanswered questions are worth asking again.

    ``contradicted``: models whose answers are quarantined, whose servers would be paid once more for the same.
    """
    unloaded = {name: _unloaded(name, rounds) for name, rounds in outcomes.items() if any(o.unloaded for o in rounds)}
    yield from unloaded.values()
    for name, rounds in outcomes.items():
        if name in unloaded:
            continue
        yield from (f"{name}: {outcome.stopped}" for outcome in rounds if outcome.stopped)
        for outcome in rounds:
            yield from (f"{name}: {outcome.failures[kind]} × {reason}" for kind, reason in outcome.reasons.items())
    of_others = {name: rounds for name, rounds in outcomes.items() if name not in contradicted}
    for_good = sum(outcome.for_good for rounds in of_others.values() for outcome in rounds)
    whose, again = "", "the same command again"
    if contradicted:
        open_ = {name: n for name, rounds in of_others.items() if (n := sum(map(_unanswered, rounds)))}
        yield (
            f"{max(unanswered - sum(open_.values()), 0)} questions have no answer that counts: find out why those of "
            f"{enumeration(contradicted)} are quarantined before you ask again, which costs the same once more"
        )
        unanswered, whose = sum(open_.values()), f" of {enumeration(list(open_))}" if open_ else ""
        again = "the same command again for these models alone"
    if unloaded and unanswered:
        again = "once that is fixed, run the same command again: it loads the model anew, and asks only these"
        yield f"{unanswered} questions{whose} have no answer; {again}"
    elif unanswered > for_good:
        yield f"{unanswered} questions{whose} have no answer; run {again} to ask them"
    elif unanswered:
        yield f"{unanswered} questions{whose} have no answer; asking them again unchanged would fail the same way"


def _unloaded(name: str, rounds: Sequence[Outcome]) -> str:
    reason = next(outcome.unloaded for outcome in rounds if outcome.unloaded)
    has_any = any(outcome.answered or outcome.cached for outcome in rounds)
    return f"{name} could not be loaded{'' if has_any else ', and has no figures'}: {reason}"


def _unanswered(outcome: Outcome) -> int:
    return outcome.items - outcome.cached - outcome.answered


def identity_unchecked(model: str, error: Exception) -> str:
    if isinstance(error, UncheckedError):
        return f"{model}: {error.message}"
    return f"{model}: whether it is still the same model could not be checked: {error}"


def identity_in_doubt(model: str, reason: str, quarantined: int) -> str:
    return (
        f"{model}: {reason}; what was stored since the run began is quarantined "
        f"({quarantined:,} answers, of scored questions one for each continuation)"
    )
