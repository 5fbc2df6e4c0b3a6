"""Executors to run the same tests on: this process, and actors of a Ray cluster on loopback where Ray is installed."""

from __future__ import annotations

import importlib.util
import signal

import pytest

from audit.collect.executors import LocalExecutor
from audit.collect.executors.ray import RayExecutor

_CPUS = 0.25  # reserved, not used: planted answers take next to nothing


@pytest.fixture(scope="session")
def cluster():
    """A cluster for all tests; an executor that finds one leaves it as it is."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: make test-ray")
    import ray

    before = signal.getsignal(signal.SIGTERM)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    signal.signal(signal.SIGTERM, before)
    yield
    ray.shutdown()


@pytest.fixture
def ray_of(cluster):
    """An executor with so many actors a model."""
    return lambda actors: RayExecutor(actors=actors, cpus=_CPUS)


@pytest.fixture(
    params=["local", pytest.param(1, marks=pytest.mark.ray), pytest.param(2, marks=pytest.mark.ray)],
    ids=lambda param: "local" if param == "local" else f"{param} actors",
)
def executor(request):
    """Each executor in turn."""
    return LocalExecutor() if request.param == "local" else request.getfixturevalue("ray_of")(request.param)
