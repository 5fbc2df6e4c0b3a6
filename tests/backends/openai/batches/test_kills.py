"""A batch outlives its process: the short form of `kills`."""

from __future__ import annotations

import pytest

from tests.backends.openai.batches.kills import one_audit


@pytest.mark.faults
async def test_an_audit_that_is_killed_pays_no_line_twice() -> None:
    outcome = await one_audit(2, seed=1)
    assert outcome.kills
    assert (outcome.paid_twice, outcome.unanswered, outcome.batches) == (0, 0, 1)
