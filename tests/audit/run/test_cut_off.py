"""A run that is interrupted has figures of what was asked, and resumes."""

from __future__ import annotations

import asyncio

from audit import Audit
from audit.collect import ShutdownRequest
from backends import FakeBackend
from suites import OccuGender


class Stopping(FakeBackend):
    """Asks for a stop with its first batch."""

    stop: ShutdownRequest

    async def run(self, batch):
        self.stop.request("SIGTERM")
        return await super().run(batch)


def test_a_run_that_is_stopped_has_figures_and_resumes(tmp_path):
    async def interrupted():
        Stopping.stop = ShutdownRequest()
        audit = Audit({"m": Stopping("even", batch_size=4)}, [OccuGender()], db=tmp_path / "a.db", limit=400)
        return await audit.run(stop=Stopping.stop)

    first = asyncio.run(interrupted())
    assert (first.interrupted, first.complete) == (True, False)
    assert first.measures
    result = Audit({"m": FakeBackend("even")}, [OccuGender()], db=tmp_path / "a.db", limit=400).run_sync()
    assert (result.complete, result.models[0].asked) == (True, 400 - first.models[0].asked)
