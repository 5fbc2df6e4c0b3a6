"""The stored nights of one baseline: the answers seen, the models, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence

from audit.analysis.gate.over_nights import data_of_figures
from audit.analysis.gate.results import GatedFigure, GateReport
from audit.analysis.gate.rows import RowsAgainst, StoredRowsOf, content, of_same_items, pooled, stored_rows
from audit.analysis.gate.unreadable import UNREADABLE_SHARE, unreadable_items
from audit.analysis.rows.table import RowTable
from audit.results import AuditResult, FigureName
from audit.results.signatures import EXTENT, encode_parts, signature_json
from audit.store import Night, Store, StoredRow

#: What a night records of a figure.
_OF_FIGURE = {"model", "suite", "measure", "where", "verdict", "change", "low", "high", "margin", "n_items"}


class Nights:
    """The nights before a run, and the run among them.

    Parameters
    ----------
    before, current : AuditResult
        The baseline, and the run that is gated.
    rows : callable
        The run's rows.

    Attributes
    ----------
    alone, over_nights : RowsAgainst
        The rows to compare with the baseline: the run's, and those of all nights of the same models.
    """

    def __init__(self, store: Store, before: AuditResult, current: AuditResult, rows: StoredRowsOf) -> None:
        self._store, self._before, self._current, self._rows = store, before, current, rows
        self._models = {model.name: model.fingerprint_id for model in current.models}
        self._suites = {info.name: _question(info.signature) for info in current.suites}
        self._contents: dict[str, dict[str, str]] = {}
        nights = store.nights.all(before.run_id)
        self._earlier = [n for n in nights if n.facts["at"] < current.started and n.run_id != current.run_id]
        baseline_rows = stored_rows(store, before)
        same = of_same_items(before, current)
        self.alone = RowsAgainst(rows, baseline_rows, same)
        self.over_nights = RowsAgainst(self._of_all_nights, baseline_rows, same)

    def _of_all_nights(self, model: str, suite: str) -> Sequence[StoredRow]:
        """The run's rows, and those of further items that the same model was asked on earlier nights."""
        tonight = self._rows(model, suite)
        own = self._contents.setdefault(model, {})[suite] = content(tonight)
        earlier: dict[str, str] = {own: self._current.run_id}  # each content once, from the latest run with it
        for night in reversed(self._earlier):
            facts = night.facts
            same_model = facts["models"].get(model) == self._models.get(model)
            if same_model and facts["suites"].get(suite) == self._suites.get(suite):
                earlier.setdefault(facts["contents"][model][suite], night.run_id)
        runs = (run for run in earlier.values() if run != self._current.run_id)
        return pooled(tonight, (list(self._store.runs.read_rows(run, model, suite)) for run in runs))

    def looks(self, *, record: bool) -> dict[str, int]:
        """The number of the look at each figure whose answers differ from the baseline's."""
        data: dict[str, str] = {}
        pairs = self.over_nights
        for model in self._models:
            for suite in self._suites:
                measures = [m for m in self._current.measures if (m.model, m.suite) == (model, suite)]
                now, then = (
                    {
                        **data_of_figures(RowTable(rows), measures),
                        FigureName(suite, UNREADABLE_SHARE, {}, model).id: unreadable_items(rows),
                    }
                    for rows in (pairs.current(model, suite), pairs.baseline(model, suite))
                )
                data |= {figure: hashed for figure, hashed in now.items() if hashed != then[figure]}
        numbered = self._store.nights.record_looks if record else self._store.nights.looks
        return numbered(self._before.run_id, data)

    def record(self, report: GateReport) -> None:
        """Store the outcome of this night."""
        facts = {
            "at": self._current.started,
            "models": self._models,
            "suites": self._suites,
            "contents": self._contents,
            "figures": [_facts(figure) for figure in report.figures if figure.obstacle is None],
        }
        self._store.nights.write(Night(self._before.run_id, self._current.run_id, facts))


def _facts(figure: GatedFigure) -> dict[str, object]:
    return figure.model_dump(mode="json", include={*_OF_FIGURE, "over_nights"}, by_alias=False)


def _question(signature: dict[str, object]) -> str:
    """What a suite asks and how it is read, regardless of the sample size."""
    return signature_json(encode_parts({key: value for key, value in signature.items() if key not in EXTENT}))
