"""Designs of made-up items."""

from __future__ import annotations

import numpy as np


def grid(rows: int, columns: int, replicates: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Cluster codes of a complete rows × columns design."""
    return np.repeat(np.arange(rows), columns * replicates), np.tile(np.repeat(np.arange(columns), replicates), rows)
