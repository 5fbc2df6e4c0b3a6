"""Saved tiny models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.local.tiny_models import (
    FAMILIES,
    save_tiny_model,
)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One saved tiny model per family."""
    return {family: save_tiny_model(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}
