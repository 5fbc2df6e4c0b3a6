"""What went wrong in a run, in words: failed requests, and answers of a model whose identity is in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.report.phrases.checks.self_checks import contradictions
from audit.report.phrases.counted import enumeration
from audit.results import AuditResult, IdentityProblem, ModelInfo


def problems_of(result: AuditResult) -> Iterator[str]:
    """All that went wrong in a run."""
    yield from map(_identity, result.identity)
    yield from contradictions(result.self_checks)
    yield from failed_requests([*result.models, *result.scorers], result.unanswered, result.contradicted)
    yield from result.refused_rules


def failed_requests(models: Sequence[ModelInfo], unanswered: int, contradicted: Sequence[str] = ()) -> Iterator[str]:
    """Failures by model and reason, and whether the unanswered questions are worth asking again.

    ``contradicted``: models whose answers are quarantined, whose servers would be paid once more for the same.
    """
    unloaded = [model for model in models if model.unloaded]
    for model in unloaded:
        has_any = bool(model.asked or model.cached)
        yield f"{model.name} could not be loaded{'' if has_any else ', and has no figures'}: {model.unloaded}"
    for model in models:
        if model.unloaded:
            continue
        if model.stopped:
            yield f"{model.name}: {model.stopped}"
        yield from (f"{model.name}: {model.failures[kind]} × {reason}" for kind, reason in model.reasons.items())
    for_good = sum(model.failed_for_good for model in models if model.name not in contradicted)
    again = "the same command again"
    if contradicted and unanswered:
        yield (
            f"{unanswered} questions have no answer that counts: find out why the answers of "
            f"{enumeration(contradicted)} are quarantined before you ask again, which costs the same once more"
        )
    elif unloaded and unanswered:
        again = "once that is fixed, run the same command again: it loads the model anew, and asks only these"
        yield f"{unanswered} questions have no answer; {again}"
    elif unanswered > for_good:
        yield f"{unanswered} questions have no answer; run {again} to ask them"
    elif unanswered:
        yield f"{unanswered} questions have no answer; asking them again unchanged would fail the same way"


def _identity(problem: IdentityProblem) -> str:
    if problem.unchecked:
        said = "" if problem.is_whole else "whether it is still the same model could not be checked: "
        return f"{problem.model}: {said}{problem.unchecked}"
    return identity_in_doubt(problem.model, problem.reason, problem.quarantined)


def identity_in_doubt(model: str, reason: str, quarantined: int) -> str:
    return f"{model}: {reason}; what was stored since the run began is quarantined ({quarantined:,} answers)"
