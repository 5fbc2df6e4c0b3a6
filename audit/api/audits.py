"""The Python interface: audits, and their results with files, data frames and a view in notebooks."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr

from audit import config
from audit.results import REPORT_KEYS, AuditResult, Measure
from backends.base import Scalar

if TYPE_CHECKING:
    from audit.report import Format
    from audit.report.exports.for_tools import Tool
    from audit.report.trackers import Tracker


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


#: The level of a control, as "no debiasing text": as None, frames would drop it from groups.
_NONE = "none"


class StoredResult(AuditResult):
    """What `Audit.run` and `load_result` give. The fields are those of `audit.results.AuditResult`."""

    _db: Path = PrivateAttr()
    _out: Path = PrivateAttr()

    @classmethod
    def of(cls, result: AuditResult, db: Path, out: Path) -> Self:
        """A result with the store that holds its items, and the folder for its report."""
        stored = cls.model_construct(**{name: getattr(result, name) for name in AuditResult.model_fields})
        stored._db, stored._out = db, out
        return stored

    def problems(self) -> list[str]:
        """What went wrong in the run, in words; empty if nothing did."""
        from audit.report.phrases.problems import problems_of

        return list(problems_of(self))

    def write(self, out: str | Path | None = None, *, formats: Sequence[Format] | None = None) -> dict[str, Path]:
        """Write the report, as `audit report` does. Returns the paths by format.

        Parameters
        ----------
        out : path, optional
            The folder; the audit's own by default, that of its run for a result read from a store.
        formats : sequence, optional
            Any of ``html``, ``certificate``, ``json``, ``csv``, ``markdown`` and ``latex``; all by default.
        """
        from audit.report import write_report

        folder = self._out if out is None else Path(out)
        return write_report(self, folder) if formats is None else write_report(self, folder, formats=formats)

    def measures_df(self) -> Any:
        """All figures as a data frame, one per row, with the columns of measures.csv.

        A pandas frame if pandas is installed (extra ``frames``), else a polars one.
        """
        factors = list(dict.fromkeys(factor for measure in self.measures for factor in measure.where))
        names = [name for name in Measure.model_fields if name not in ("where", "spec")]
        columns = {REPORT_KEYS.get(name, name): [getattr(of, name) for of in self.measures] for name in names}
        for factor in factors:
            columns[f"where.{factor}"] = [
                _level(of.where[factor]) if factor in of.where else None for of in self.measures
            ]
        return _frame(columns)

    def items_df(self, suite: str | None = None, *, derived: bool = False) -> Any:
        """The items behind the figures as a data frame: a row for each model, suite and item.

        Parameters
        ----------
        suite : str, optional
            Only this suite's.
        derived : bool
            Also the rows that a suite computes from several items, as the difference of a pair. Their column
            ``derived`` is True.

        Returns
        -------
        pandas.DataFrame, or polars.DataFrame where pandas is not installed
            Columns: ``model``, ``suite``, ``item``, ``missing`` (why there is no answer, else None), ``derived``, one
            for each factor and one for each quantity ``NAME``, as `audit.analysis.table.Table.frame` describes them. A
            value that is only bounded is missing, never 0, and lies between ``NAME.low`` and ``NAME.high``. A factor's
            level "no such text", as of a control, is ``"none"``; a missing cell is of a row that does not have the
            factor. `write_items` includes the texts.
        """
        from audit.report.exports.items import item_frame
        from audit.store import Store

        with Store.open(self._db, read_only=True) as store:
            frame = item_frame(store, self, suite=suite, derived=derived)
        return _frame(frame.to_dict(as_series=False)) if importlib.util.find_spec("pandas") else frame

    def write_items(self, path: str | Path, suite: str | None = None, *, derived: bool = False) -> Path:
        """Write the items with their prompts and answers, as `audit export` does. Returns the path.

        ``path`` ends in ``.jsonl``, or in ``.parquet``. ``derived``: as for `items_df`;
        these rows repeat the texts of all their items.
        """
        from audit.report.exports.items import write_items
        from audit.store import Store

        with Store.open(self._db, read_only=True) as store:
            return write_items(store, self, Path(path), suite=suite, derived=derived)

    def write_for(self, tool: Tool, out: str | Path, suite: str | None = None) -> list[Path]:
        """Write the run in another tool's format into the folder ``out``, as `audit export --for` does.

        ``inspect``: a log for each model and suite; ``lm-eval``: results and samples of lm-evaluation-harness;
        ``every-eval-ever``: records of the figures. None of these needs to be installed. Returns the paths.
        """
        from audit.report.exports.for_tools import write_for_tool
        from audit.store import Store

        with Store.open(self._db, read_only=True) as store:
            return write_for_tool(store, self, tool, Path(out), suite=suite)

    def log_to(self, tracker: Tracker, project: str = "bias-audit") -> str:
        """Log the figures to MLflow, W&B or OpenTelemetry, as `audit log-to` does. See `audit.report.trackers`."""
        from audit.report.trackers import log_result

        return log_result(self, tracker, project)

    def _repr_html_(self) -> str:
        """What a notebook shows: the headline figures and the findings."""
        from audit.report.page.sheets import result_html

        return result_html(self)


def _level(level: Scalar) -> Scalar:
    return _NONE if level is None else level


def _frame(columns: Mapping[str, list[Any]]) -> Any:
    if importlib.util.find_spec("pandas"):
        import pandas

        return pandas.DataFrame(columns)
    import polars

    return polars.DataFrame(columns, strict=False)
