"""An audit's result together with the store of its answers: files, data frames, and a view in a notebook."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr

from audit.results import REPORT_KEYS, AuditResult, Measure
from backends.base import Scalar

if TYPE_CHECKING:
    from audit.report import Format
    from audit.report.exports.for_tools import Tool
    from audit.report.trackers import Tracker

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
