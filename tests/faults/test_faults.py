"""The laboratory in short: every fault once. `python -m tests.faults` runs it in full."""

from __future__ import annotations

import pytest

from tests.faults.lab import Lab
from tests.faults.trials import TRIALS, campaign

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("lab")) as opened:
        yield opened


@pytest.mark.parametrize("fault", TRIALS)
def test_nothing_is_lost_wrong_or_left_open(lab, fault):
    verdict = TRIALS[fault](lab, "short")
    assert (verdict.lost, verdict.wrong, verdict.unresolved) == (0, 0, 0)


def test_an_audit_killed_again_and_again_loses_nothing(lab):
    verdict, kills, acknowledged, most = campaign(lab, 2000, 4)
    assert (verdict.lost, verdict.wrong, verdict.unresolved) == (0, 0, 0)
    assert kills >= 2
    assert acknowledged >= 2000
    assert most <= 16
