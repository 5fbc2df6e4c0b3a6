"""What a run without figures says at its end: it asked a part of an audit, or was interrupted with much left."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from audit.report.phrases.counted import count
from audit.report.phrases.next_steps import has_command, run_command
from audit.results import AuditResult


def part_lines(result: AuditResult) -> Iterator[str]:
    """What was asked, and how the whole is put together."""
    assert result.shard is not None
    assert result.source is not None
    items = count(sum(info.n_items for info in result.suites), "item")
    state = "All questions are answered." if result.complete else "Some questions have no answer."
    yield "Part {} of {}: {} for each model. {}".format(*result.shard, items, state)
    yield (
        f"The answers are in {result.source.db}. A part has no figures and no report: figures come from all parts "
        "together."
    )
    if result.complete:
        again = "the same audit without a shard"
        if has_command(result.source):
            again = run_command(result.source, without=("shard", "db", "out"))
        yield "Once all parts are done:"
        yield f"  audit cache merge WHOLE.db {shlex.quote(result.source.db)} OTHER-PARTS.db"
        yield f"  {again} --db WHOLE.db"


def cut_off_lines(result: AuditResult) -> Iterator[str]:
    """What an interrupted run asked that ended without figures."""
    asked = sum(model.asked for model in result.models)
    items = count(sum(info.n_items for info in result.suites), "item")
    yield f"Interrupted after {count(asked, 'new answer')}; the audit has {items} for each model."
    yield "So many are left that there are no figures and no report yet: they come when the run has resumed and ended."
