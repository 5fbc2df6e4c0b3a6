"""Finding runs in a store: by id, by the beginning of an id, or the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from audit.results import AuditResult
from audit.store.store import Store
from backends.errors import ConfigError
from suites.base import Row


def find_run(store: Store, name: str) -> str:
    """The id of the run meant by ``name``: an id, its beginning, or ``last`` for the latest with a result."""
    runs = store.runs()
    if name == "last":
        finished = (run.id for run in runs if store.result(run.id) is not None)
        last = next(finished, None)
        if last is None:
            raise ConfigError("run", name, "this store has no finished run", "Run an audit first")
        return last
    matching = [run.id for run in runs if run.id.startswith(name)]
    if len(matching) != 1:
        raise ConfigError("run", name, f"{len(matching)} runs match", "See `audit ls runs`")
    return matching[0]


def stored_result(store: Store, run_id: str) -> AuditResult:
    """What a run ended in. ConfigError if it has not finished."""
    text = store.result(run_id)
    if text is None:
        raise ConfigError("run", run_id, "it has not finished", "Run its config again: it goes on where it stopped")
    return AuditResult.model_validate_json(text)


def rows_of(store: Store, run_id: str) -> Callable[[str, str], Sequence[Row]]:
    """``(model, suite) → rows`` of a run; empty where the store has none."""
    return lambda model, suite: [stored.row for stored in store.read_rows(run_id, model, suite)]
