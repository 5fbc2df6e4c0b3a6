"""Older names of measures, for results and baselines that an earlier version stored."""

from __future__ import annotations

from collections.abc import Mapping

#: The current name by the older one, by suite.
RENAMED_MEASURES: Mapping[str, Mapping[str, str]] = {
    "DebiasingPositions": {
        "forgotten": "effect_attenuation",
        "forgotten_p_diverse": "effect_attenuation_p_diverse",
        "share_forgotten": "share_attenuated",
    }
}

#: Ends of the ids of rows that are computed from others.
RENAMED_ENDINGS: Mapping[str, str] = {"/forgotten": "/attenuation"}
