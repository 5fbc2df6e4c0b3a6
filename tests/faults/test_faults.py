"""The laboratory in short: every fault once. `python -m tests.faults` runs it in full."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from audit.collect.executors import LocalExecutor
from audit.collect.jobs import Job, RetryPolicy
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import ShutdownRequest
from audit.store import Store
from backends import OpenAIBackend
from backends.base import GenerateRequest
from tests.audit.store.entries import asks_of
from tests.faults.faults import REFUSED_FOR_GOOD, Fate
from tests.faults.lab import Lab
from tests.faults.trials import TRIALS, campaign

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("lab")) as opened:
        yield opened


@pytest.fixture(scope="module")
def trials(lab, request):
    """The requested trials, some at once since they mostly wait."""
    names = [item.callspec.params["fault"] for item in request.session.items if "trials" in item.fixturenames]
    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(TRIALS[name], lab, "short") for name in names}


@pytest.mark.parametrize("fault", TRIALS)
def test_nothing_is_lost_wrong_or_left_open(trials, fault):
    verdict = trials[fault].result()
    assert (verdict.lost, verdict.wrong, verdict.unresolved) == (0, 0, 0)


def test_an_audit_killed_again_and_again_loses_nothing(lab):
    verdict, kills, acknowledged, most = campaign(lab, 1000, 4)
    assert (verdict.lost, verdict.wrong, verdict.unresolved) == (0, 0, 0)
    assert kills >= 2
    assert acknowledged >= 1000
    assert most <= 16


def ask(lab, folder, prompts, **options):
    """The outcome of asking in this process, with the real backend; each request is tried once."""
    backend = OpenAIBackend(
        f"http://127.0.0.1:{lab.port}/v1", model="lab", api_key_env=None, probe_folder=folder, **options
    )

    async def run():
        await backend.describe()
        with Store.open(folder / "audit.db") as store:
            job = Job("lab", backend, asks_of(store, map(GenerateRequest, prompts))[0])
            stop, retry = ShutdownRequest(), RetryPolicy(attempts=1)
            done = await run_jobs([job], store, LocalExecutor(), run_id="lab", stop=stop, retry=retry)
        await backend.close()
        return done["lab"]

    return asyncio.run(run())


@pytest.mark.parametrize("fault", REFUSED_FOR_GOOD)
def test_a_server_that_refuses_for_good_is_left_soon(lab, tmp_path, fault):
    prompts = [Fate(fault, "for good", i).prompt for i in range(500)]
    outcome = ask(lab, tmp_path, prompts, max_in_flight=64, timeout=2)
    assert lab.asked(prompts) <= 20
    assert REFUSED_FOR_GOOD[fault][1] in outcome.stopped
