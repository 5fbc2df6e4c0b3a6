"""Rules for all tests: no network but loopback, no hub, and no blocking call on the event loop."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

# How long a machine takes to make an example says how busy it is, nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture
def no_blocking() -> Iterator[None]:
    """A blocking call made by this project's async code fails the test."""
    with blockbuster_ctx(scanned_modules=["audit", "backends", "suites"]):
        yield
