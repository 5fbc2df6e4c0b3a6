"""Every lie to every style: ``python -m tests.backends.openai.lies [NAME…]`` prints who notices it, and its size."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tests.backends.openai.lies.catalogue import LIES, UNDER_WAY
from tests.backends.openai.lies.server import Style
from tests.backends.openai.lies.trial import Outcome, run_trial, told

STYLES: tuple[Style, ...] = ("echo", "whole", "lists", "chat", "drawn")
#: Servers of an odd seed give one answer a request.
SEEDS = (0, 1)


def verdict(name: str) -> str:
    """How a lie ends: noticed every day, by all experiments alone, or not; with the mean error where it passes."""
    n = 100 if name in UNDER_WAY else 24
    places = [(style, seed) for style in STYLES if style in told(name, 0).styles for seed in SEEDS]
    everyday = {place: run_trial(name, *place, n=n) for place in places}
    passed = {place: one for place, one in everyday.items() if not one.is_noticed and not one.is_true}
    if not passed:
        return "noticed every day" if any(one.is_noticed for one in everyday.values()) else "changes no score"
    thorough = {place: run_trial(name, *place, all_experiments=True) for place in passed}
    left = {place: passed[place] for place, one in thorough.items() if not one.is_noticed}
    share = f"in {len(places) - len(passed)} of {len(places)} every day"
    by = sorted({one.ended for one in thorough.values() if one.is_noticed})
    if not left:
        return f"noticed {share}, in all by --thorough ({', '.join(by)}); {_size(passed.values())}"
    also = f", in {len(passed) - len(left)} more by --thorough ({', '.join(by)})" if by else ""
    where = ", ".join(f"{style}{' one by one' * (seed % 2)}" for style, seed in left)
    return f"noticed {share}{also}; passes on {where}; {_size(left.values())}"


def _size(outcomes: Iterable[Outcome]) -> str:
    return f"scores off by {max(one.size for one in outcomes):.2g} nats on average"


if __name__ == "__main__":
    for lie in sys.argv[1:] or LIES:
        print(f"| {lie} | {verdict(lie)} |", flush=True)
