"""Geometry of the triangle in which three shares that sum to 1 are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

Place = tuple[float, float]

CORNERS: tuple[Place, Place, Place] = ((0.0, 0.0), (1.0, 0.0), (0.5, math.sqrt(3) / 2))
_NAME_WIDTH, _NAME_HEIGHT = 0.13, 0.05  # of the triangle's side: a short name's room


def place(shares: Sequence[float | None]) -> Place | None:
    """The position of three shares; None if one of them is unknown."""
    known = [s for s in shares if s is not None]
    if len(known) < len(CORNERS):
        return None
    return (
        sum(s * x for s, (x, _) in zip(known, CORNERS, strict=True)),
        sum(s * y for s, (_, y) in zip(known, CORNERS, strict=True)),
    )


def names_apart(a: Place, b: Place) -> bool:
    """Whether names at two positions do not overlap."""
    return abs(a[0] - b[0]) > _NAME_WIDTH or abs(a[1] - b[1]) > _NAME_HEIGHT


def direction(start: Place, end: Place) -> float:
    """Direction of the arrow from start to end, in degrees clockwise from upwards."""
    return math.degrees(math.atan2(end[0] - start[0], end[1] - start[1]))


def whisker(at: Place, corner: Place, value: float, low: float, high: float) -> tuple[Place, Place]:
    """Ends of the interval of one share: the point moved away from and towards its corner.

    The other two shares keep their ratio. A share of 1 lies in its corner and has no such line.
    """
    if value >= 1:
        return at, at

    def moved(share: float) -> Place:
        part = (share - value) / (1 - value)
        return at[0] + (corner[0] - at[0]) * part, at[1] + (corner[1] - at[1]) * part

    return moved(low), moved(high)
