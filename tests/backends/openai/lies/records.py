"""What each trial of the battery came to: kept in a file of JSON lines, so that it can go on, and shown as a page."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.backends.openai.lies.catalogue import FIRST, LIES, UNDER_WAY
from tests.backends.openai.lies.server import STYLES
from tests.backends.openai.lies.trial import Outcome

_HERE = Path(__file__).parent
_HEAD = """# Servers that lie: every lie on every route

Made by `python -m tests.backends.openai.lies --results FILE --page docs/servers.md`. A model of some 300 words, of
which every probability is known, stands behind a server of eight styles (`tests/backends/openai/lies/server.py`) that
tells one lie. Each cell counts the seeds by outcome:

- **refused**: no score is used, and the probe says why;
- **noticed**: the run is incomplete, names the problem or quarantines its answers, or reads all scores as intervals;
- **true**: each exact score is within 0.01 nats of the truth and each bound holds, by another route or since the lie
  changes none;
- **ACCEPTED**: wrong exact scores or false bounds (how many of how many) in a run that names no problem.

Trials are kept in a file and repeated only when the file is removed; the last line names the commits that they ran at.
Where a cell counts fewer than six seeds, the others were not run. A cell is empty where a style cannot tell the lie.
Lies that begin after the probe are tried on audits of 160 questions, of which 40 are asked again, and lies about the
audited words on audits of 1,440 (480 on the styles `echo`, `ids` and `whole`). The largest share of wrong answers that
such an audit does not rule out (up to 9.1 % where no two answers disagree, 11.7 % of the continuations on `echo` and
`ids`) is on the report's first screen; *within the bound* counts runs in which no larger share of them was wrong.

"""
_COSTS = """## What checking costs

Requests for an audit of 2,000 questions at honest servers of these styles, without those to a tokenizer. On the styles
`echo` and `ids` each of three continuations takes a request (on `echo` the prompt takes one more), and one continuation
of a question is asked again.
"""
_HONEST = """## Real, honest servers

Probes by `python -m tests.backends.openai.honest SERVER`, each made afresh. A failed proof takes a route away; the
others stay.
"""


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of a file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(name: str, style: str, seed: int, outcome: Outcome) -> dict[str, Any]:
    return {"lie": name, "style": style, "seed": seed, "commit": _commit(), **dataclasses.asdict(outcome)}


@functools.cache
def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=_HERE)
    return found.stdout.strip()


def accepted(one: Mapping[str, Any]) -> int:
    """Wrong scores and false bounds of a run that named no problem."""
    return (one["wrong"] + one["false_bounds"]) * (one["ended"] == "complete")


def page(
    records: Sequence[Mapping[str, Any]],
    unknowable: Mapping[tuple[str, str], str],
    costs: Sequence[str],
    probes: Sequence[str],
) -> str:
    """The page: a table of lies × styles for those of the probe, and one for those of whole audits; costs."""
    reasons = list(dict.fromkeys(unknowable.values()))
    lines = [_HEAD, "## Lies from the start\n", *_table(records, ("honest", *_names(False)), unknowable, reasons)]
    lines += ["\n## Lies in whole audits\n", *_table(records, _names(True), unknowable, reasons)]
    lines += ["\nNo client can know:\n", *(f"{at}. {reason}" for at, reason in enumerate(reasons, 1))]
    wrong = sum(accepted(r) for r in records if (r["lie"], r["style"]) not in unknowable and not _is_bounded(r))
    seeds = sorted({r["seed"] for r in records})
    lines.append(
        f"\n{len(records):,} trials, seeds {seeds[0]} to {seeds[-1]} ({_commits(records)}). Wrong scores accepted "
        f"elsewhere, beyond what the report says is possible: {wrong}."
    )
    lines += ["", _COSTS, *costs, "", _HONEST, *probes]
    return "\n".join(lines) + "\n"


def _commits(records: Sequence[Mapping[str, Any]]) -> str:
    """How many trials are of which commit."""
    counts = Counter(r.get("commit", "") for r in records)
    return ", ".join(
        f"{n:,} of {f'commit {commit}' if commit else 'earlier ones'}" for commit, n in counts.most_common()
    )


def _names(under_way: bool) -> tuple[str, ...]:
    return tuple(name for name in LIES if (name in UNDER_WAY) == under_way)


def _table(
    records: Sequence[Mapping[str, Any]],
    names: Iterable[str],
    unknowable: Mapping[tuple[str, str], str],
    reasons: Sequence[str],
) -> Iterator[str]:
    yield "| lie | " + " | ".join(STYLES) + " |"
    yield "|---" * (1 + len(STYLES)) + "|"
    for name in names:
        cells = []
        for style in STYLES:
            of_cell = [r for r in records if (r["lie"], r["style"]) == (name, style)]
            reason = unknowable.get((name, style))
            note = f" [{reasons.index(reason) + 1}]" if reason and any(map(accepted, of_cell)) else ""
            cells.append(_cell(of_cell) + note)
        yield f"| {name}{' (first table)' if name in FIRST else ''} | " + " | ".join(cells) + " |"


def _cell(of_cell: Sequence[Mapping[str, Any]]) -> str:
    ends = Counter(_end(r) for r in of_cell)
    text = ", ".join(f"{end} {n}" for end, n in ends.items())
    if bad := [r for r in of_cell if accepted(r)]:
        asked = f", {bad[0]['asked']} questions" if bad[0].get("asked") else ""
        text += f" ({sum(map(accepted, bad))} of {sum(r['exact'] + r['bounds'] for r in bad)}{asked})"
    if sampled := sum(r["sampled"] for r in of_cell):
        text += f"; outside of 95 %: {sum(r['outside'] for r in of_cell)} of {sampled}"
    return text


def _end(one: Mapping[str, Any]) -> str:
    if accepted(one):
        return "within the bound" if _is_bounded(one) else "ACCEPTED"
    if one["ended"] == "complete":
        return "true"
    has_scores = one["exact"] + one["bounds"] + one["sampled"] > 0
    return "noticed" if has_scores or one.get("asked_again") else "refused"


def _is_bounded(one: Mapping[str, Any]) -> bool:
    """Whether no larger share is wrong than the report says; it says nothing of that kind of bounds."""
    return bool(one.get("asked_again")) and one["foreign"] <= one["foreign_at_most"] and not one["false_bounds"]
