"""How closely two float32 computations of one number agree: in units of its last place, on any processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

#: The distance from 1.0 to the next float32.
EPSILON = 2.0**-23


def float32_close(expected: float | Sequence[float] | Mapping[str, float], units: int = 64) -> Any:
    """Values that are ``expected`` but for ``units`` in the last place of float32, taken of 1 and of the value itself.

    A log-probability is a difference of logits that may be larger than itself, so a value near 0 is as uncertain as
    those logits: about 1. Another processor, thread count or batch adds the same products in another order; on the
    tests' models of two layers that moves a value by up to 8 units.
    """
    return pytest.approx(expected, rel=units * EPSILON, abs=units * EPSILON)
