"""The suites that ship go through a rehearsal without a mistake."""

from __future__ import annotations

import pytest

import suites
from audit import Audit
from audit.rehearsal import refuse_mistakes
from backends import FakeBackend
from tests.suites.benchmarks.invented import use


@pytest.mark.parametrize("name", suites.__all__)
def test_a_suite_that_ships_has_no_mistakes(name, monkeypatch, tmp_path):
    use(monkeypatch, tmp_path)
    suite = getattr(suites, name)()
    audit, items = Audit({"fake": FakeBackend()}, [suite]), list(suite.items())
    refuse_mistakes(audit, {suite.name: items})
    refuse_mistakes(audit, {suite.name: items[:3]})  # as a limit leaves it: derived rows may be missing
