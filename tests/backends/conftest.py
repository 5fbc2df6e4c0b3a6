"""Pauses that tests need not make, and saved tiny models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are recorded, not made."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float, *rest: Any) -> None:
        if seconds > 0:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return pauses


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One saved tiny model per family."""
    from tests.backends.local.tiny_models import FAMILIES, save_tiny_model

    return {family: save_tiny_model(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}
