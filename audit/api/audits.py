"""The Python interface: audits, and their results."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit import config

if TYPE_CHECKING:
    from audit.api.stored_result import StoredResult


class Audit(config.AuditConfig):
    """An audit: models, the suites that question them, and how the answers are compared.

    Parameters
    ----------
    models : mapping of str to Backend
        The models, by the name shown in the report.
    suites : sequence or mapping of str to Suite
        The suites. To use one suite twice (say raw and chat), give a mapping with two names.
    title : str, optional
        Heading of the report. Default: the suites' titles.
    db : path
        The store of answers. Questions that it holds answers to are not asked again.
    out : path
        Folder for the report.
    seed : int
        Seed for sampling and resampling.
    limit : int, optional
        Number of items to ask of each suite: a balanced sample, the same for every model.
    confidence : float
        Level of all intervals, in (0, 1).
    margins : float or mapping of measure name to float
        Differences smaller than this do not matter: two models that differ by less are "equivalent". A figure
        without a better side (``p_female``, the ``effect`` of a text) is gated only if named here.
    limits : mapping, optional
        Absolute limits that a gate enforces, as (at least, at most), e.g. ``{"stereotype_gap": (None, 0.3)}``.
        Each is decided on the figure's interval.
    same_weights : sequence of groups of model names
        Models with the same weights on different engines, where hashes of the weights cannot show it (as with
        servers). Differences within a group are reported as engine noise.
    ladder : sequence of chains of model names
        Chains of models in which each was made from the one before, e.g. ``[("original", "quantised")]``. An adapter
        on the same weights, and raw against chat, are detected automatically. The effect of each step is reported
        item by item, with a decision of its own.
    runs : int
        How often each question is asked afresh. A server may answer all questions a little differently from run to run:
        three runs estimate by how much, and every interval, limit and gate allows for it.
    small_sample : bool
        Accept a ``limit`` that leaves too few occupations, templates… to decide anything.
    until : "decided" or float, optional
        Ask in a random order, fixed by ``seed``, until the question is decided: did a model get worse than the baseline
        given to `run`, are the ``limits`` kept, or else how do the models compare? A number: until the sampling error
        of every primary mean is within it (0.03: an interval from 0.22 to 0.28). ``limit`` is then an upper bound.
    shard : (int, int), optional
        Ask only a part of the items: (2, 3), or "2/3", is the second of three, chosen by a hash of the prompt. Parts
        can be asked on different machines; `audit cache merge` joins their stores, and the whole audit then asks
        nothing that is stored.
    executor : RayExecutor, optional
        Where local models compute. Default: in this process.
    store_shards : int, optional
        Files that the answers of a new store are divided among, each written by a thread of its own. Default: one
        file, and for an existing store as many as it has.

    Raises
    ------
    ConfigError
        If an option is invalid: names the field, the value and a hint.
    """

    async def run(self, **options: Any) -> StoredResult:
        """Ask what is not answered yet, evaluate, and return the result. See `audit.run.run_audit`.

        It writes the store, and a log in ``out``; the report is made by `StoredResult.write`.
        """
        from audit.api.stored_result import StoredResult
        from audit.run import run_audit  # imports NumPy and SciPy: deferred until a run starts

        return StoredResult.of(await run_audit(self, **options), self.db, self.out)

    def run_sync(self, **options: Any) -> StoredResult:
        """`run` for synchronous callers, notebooks included.

        Where an event loop is running already, as in a notebook, the audit runs in a thread of its own. Interrupting
        the cell stops it as a signal would: all answers so far are stored.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.run(**options))
        return _run_in_thread(self, options)


def load_audit(path: str | Path) -> Audit:
    """Read an audit from a Python file (a global of type `Audit`) or a TOML file.

    Raises
    ------
    ConfigError
        When the file is not there, cannot be run, or holds no audit.
    """
    return config.load_audit(path, Audit)


def load_result(db: str | Path = "audit.db", run: str = "last") -> StoredResult:
    """A run's result from its store, or that of an audit config. ``run`` is an id, its beginning, or ``last``.

    Its report is written where the config says, else into the folder of the run's own.

    Raises
    ------
    ConfigError
        When there is no such store or run, or the run has not finished.
    """
    from audit.api.stored_result import StoredResult
    from audit.store import Store

    out: Path | None = None
    if Path(db).suffix in (".py", ".toml"):
        audit = load_audit(db)
        db, out = audit.db, audit.out
    with Store.open(db, read_only=True) as store:
        result = store.runs.finished_result(store.runs.find(run))
        return StoredResult.of(result, store.path, out or Path(result.source.out if result.source else "audit-out"))


def _run_in_thread(audit: Audit, options: dict[str, Any]) -> StoredResult:
    from audit.collect import ShutdownRequest

    stop = options.pop("stop", None) or ShutdownRequest()
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(loop.run_until_complete, audit.run(stop=stop, **options))
        try:
            return running.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(stop.request, "KeyboardInterrupt")
            return running.result()
        finally:
            loop.close()
