"""The run's own checks of its answers: whose they are, and whether questions asked twice got the same one."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping, Sequence

from audit.analysis.self_check import FOREIGN, move, self_check
from audit.collect import Outcome
from audit.prepare.resolve import ResolvedAudit
from audit.results import IdentityProblem, SelfCheck
from audit.store import Store
from backends.base import SupportsIdentityCheck, SupportsSecondAnswers
from backends.errors import BackendError, UncheckedError


async def verify_identities(resolved: ResolvedAudit, store: Store) -> list[IdentityProblem]:
    """Set aside answers that cannot be attributed to the audited model; the next run asks them again."""
    problems = []
    for described in resolved.backends():
        backend = described.backend
        if not isinstance(backend, SupportsIdentityCheck):
            continue
        try:
            await backend.verify_identity()
        except BackendError as error:
            said = error.message if isinstance(error, UncheckedError) else str(error)
            is_told = isinstance(error, UncheckedError)
            problems.append(IdentityProblem(model=described.name, unchecked=said, is_whole=is_told))
        if (since := backend.unverified_since) is not None:
            keys = await asyncio.to_thread(
                store.answers.quarantine_since, described.fingerprint_id, since, "model changed"
            )
            await asyncio.to_thread(store.second_answers.remove, keys)
            problems.append(
                IdentityProblem(model=described.name, reason=backend.unverified_reason, quarantined=len(keys))
            )
    return problems


def check_answers(
    resolved: ResolvedAudit, store: Store, outcomes: Mapping[str, Sequence[Outcome]], began: datetime.datetime
) -> list[SelfCheck]:
    """Compare the answers to questions that were asked twice. A run that contradicts itself is set aside."""
    checks = []
    for described in resolved.models.values():
        backend = described.backend
        if not isinstance(backend, SupportsSecondAnswers):
            continue
        unanswered = sum(outcome.unanswered_again for outcome in outcomes.get(described.name, ()))
        pairs = store.second_answers.read(described.fingerprint_id)
        check = self_check(described.name, pairs, unanswered, backend.checks_made())
        if isinstance(backend, SupportsIdentityCheck) and backend.unverified_since is not None:
            check = check.model_copy(update={"contradicted": True})
        elif check.contradicted:
            since = min(began.timestamp(), *(pair.at for pair in pairs if move(pair.first, pair.second) > FOREIGN))
            keys = store.answers.quarantine_since(described.fingerprint_id, since, "asked again, it differed")
            store.second_answers.remove([*keys, *(pair.key for pair in pairs)])
        checks.append(check)
    return checks
