"""General ability: nats per token of plain passages."""

from __future__ import annotations

import pytest

from suites import GeneralAbility
from suites.common.data_files import load
from tests.suites.benchmarks.invented import figures, value


def test_nats_per_token_is_the_mean_over_passages() -> None:
    lengths = {
        passage["text"]: len(passage["text"].split(" ")) for passage in load("plain_passages").content["passages"]
    }
    found = figures(
        GeneralAbility(), lambda prompt, text: -3.0 * lengths[text] if "comet" in text else -2.0 * lengths[text]
    )
    assert value(found, "nats_per_token", kind="passage") == pytest.approx((3 + 23 * 2) / 24)
