"""Every lie on every route: ``python -m tests.backends.openai.lies [--seeds 6] [--lie NAME] [--style STYLE]``.

``--results FILE`` keeps each trial and goes on where the file ends; ``--page FILE`` writes the table of all.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.backends.openai.lies.audits import ONE_AT_A_TIME, audit_trials
from tests.backends.openai.lies.catalogue import LIES, UNDER_WAY, UNKNOWABLE
from tests.backends.openai.lies.costs import cost_table, honest_table
from tests.backends.openai.lies.records import accepted, page, read_records, record
from tests.backends.openai.lies.server import STYLES, Style
from tests.backends.openai.lies.trial import Outcome, trials

#: Of an audit: 40 of them are asked again. A lie about the audited words takes more draws to show; where lists bring
#: none, more questions bring few.
_QUESTIONS, _ABOUT_WORDS, _ABOUT_WORDS_IN_ROWS = 160, 1440, 480


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--lie", action="append", help="a part of its name; several are allowed")
    parser.add_argument("--style", choices=STYLES)
    parser.add_argument("--questions", type=int, help="of a whole audit")
    parser.add_argument("--results", type=Path, help="a file of JSON lines")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--honest", type=Path, help="what `tests.backends.openai.honest` kept, for the page")
    options = parser.parse_args()
    records = read_records(options.results) if options.results else []
    done = {(r["lie"], r["style"], r["seed"]) for r in records}
    chosen = [(name, style) for name, style in cells() if any(part in name for part in options.lie or [""])]
    for seed, (name, style) in itertools.product(range(options.seeds), chosen):
        if (name, style, seed) in done or options.style not in (None, style):
            continue
        records.append(record(name, style, seed, _outcome(name, style, seed, options.questions)))
        print(json.dumps(records[-1]), flush=True)
        if options.results:
            with options.results.open("a") as file:
                file.write(json.dumps(records[-1]) + "\n")
    hidden = unknowable()
    if options.page:
        probes = read_records(options.honest) if options.honest else []
        costs = asyncio.run(cost_table())
        options.page.write_text(page(records, hidden, costs, [*honest_table(probes)]))
    wrong = sum(accepted(r) for r in records if (r["lie"], r["style"]) not in hidden)
    print(f"wrong scores and false bounds accepted in runs that named no problem: {wrong}")


def _outcome(name: str, style: Style, seed: int, questions: int | None) -> Outcome:
    seeds = range(seed, seed + 1)
    if name not in UNDER_WAY:
        return trials(name, style, seeds)[0]
    return audit_trials(name, style, seeds, questions or _questions(name, style))[0]


def _questions(name: str, style: Style) -> int:
    if "audited word" not in name:
        return _QUESTIONS
    return _ABOUT_WORDS_IN_ROWS if style in ONE_AT_A_TIME else _ABOUT_WORDS


def cells() -> Iterator[tuple[str, Style]]:
    """Each lie with each style that can tell it."""
    yield from (("honest", style) for style in STYLES)
    for name, told in LIES.items():
        yield from ((name, style) for style in told(np.random.default_rng(0)).styles)


def unknowable() -> dict[tuple[str, str], str]:
    """(lie, style) that no client can notice there, and why."""
    own = {(name, style): LIES[name](np.random.default_rng(0)).unknowable for name, style in cells() if name in LIES}
    return {cell: reason for cell, reason in own.items() if reason} | dict(UNKNOWABLE)


if __name__ == "__main__":
    main()
