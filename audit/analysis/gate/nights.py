"""The stored nights of one baseline, or of the limits: the answers seen, the models, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence

from audit.analysis.gate.over_nights import Look, data_of_figures
from audit.analysis.gate.results import GatedFigure, GateReport
from audit.analysis.gate.rows import RowsAgainst, StoredRowsOf, content, of_same_items, pooled, stored_rows
from audit.analysis.gate.unreadable import UNREADABLE_SHARE, unreadable_items
from audit.analysis.rows.table import RowTable
from audit.results import AuditResult, FigureName
from audit.results.signatures import EXTENT, encode_parts, signature_json
from audit.store import Night, Store, StoredRow

#: What a night records of a figure.
_OF_FIGURE = {"model", "suite", "measure", "where", "verdict", "change", "low", "high", "margin", "n_items"}


class NightlyAnswers:
    """The rows of a run, and those that the same models gave on the nights before.

    Parameters
    ----------
    sequence : str
        The baseline's run id, or another name under which nights are stored.
    current : AuditResult
        The run of tonight.
    rows : callable
        Its rows.

    Attributes
    ----------
    earlier : list of Night
        The nights before, oldest first.
    """

    def __init__(self, store: Store, sequence: str, current: AuditResult, rows: StoredRowsOf) -> None:
        self._store, self._current, self._rows = store, current, rows
        self.models = {model.name: model.fingerprint_id for model in current.models}
        self.suites = {info.name: _question(info.signature) for info in current.suites}
        self._contents: dict[str, dict[str, str]] = {}
        nights = store.nights.all(sequence)
        self.earlier = [n for n in nights if n.facts["at"] < current.started and n.run_id != current.run_id]
        self._adds_up: set[tuple[str, str]] = set()

    def of_all_nights(self, model: str, suite: str) -> Sequence[StoredRow]:
        """The run's rows, and those of further items that the same model was asked on earlier nights."""
        tonight = self._rows(model, suite)
        own = self._contents.setdefault(model, {})[suite] = content(tonight)
        earlier: dict[str, str] = {own: self._current.run_id}  # each content once, from the latest run with it
        for night in reversed(self.earlier):
            facts = night.facts
            same_model = facts.get("models", {}).get(model) == self.models.get(model)
            then = facts.get("contents", {}).get(model, {}).get(suite)
            if same_model and facts["suites"].get(suite) == self.suites.get(suite) and then is not None:
                earlier.setdefault(then, night.run_id)
        runs = (run for run in earlier.values() if run != self._current.run_id)
        rows = pooled(tonight, (list(self._store.runs.read_rows(run, model, suite)) for run in runs))
        if len(rows) > len(tonight):
            self._adds_up.add((model, suite))
        return rows

    def number_of_model(self, model: str, suite: str) -> int:
        """Of how many models on this question tonight's is one, in the order in which they came: 1 for the first."""
        tonight = self.models[model], self.suites[suite]
        facts = [night.facts for night in self.earlier if model in night.facts.get("models", {})]
        came = [(then["models"][model], then["suites"].get(suite)) for then in facts]
        return list(dict.fromkeys([*came, tonight])).index(tonight) + 1

    def facts(self) -> dict[str, object]:
        """What a night records of the run, for the nights that follow."""
        return {
            "at": self._current.started,
            "models": self.models,
            "suites": self.suites,
            "contents": self._contents,
        }

    def adds_up(self, model: str, suite: str) -> bool:
        """Whether earlier nights add to tonight's rows, once these were read."""
        return (model, suite) in self._adds_up


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
    answers : NightlyAnswers
        Where these come from.
    """

    def __init__(self, store: Store, before: AuditResult, current: AuditResult, rows: StoredRowsOf) -> None:
        self._store, self._before, self._current = store, before, current
        self.answers = NightlyAnswers(store, before.run_id, current, rows)
        baseline_rows = stored_rows(store, before)
        same = of_same_items(before, current)
        self.alone = RowsAgainst(rows, baseline_rows, same)
        self.over_nights = RowsAgainst(self.answers.of_all_nights, baseline_rows, same)

    def looks(self, *, record: bool) -> dict[str, Look]:
        """The look at each figure whose answers differ from the baseline's, by figure id."""
        data: dict[str, str] = {}
        adds_up: set[str] = set()
        pairs = self.over_nights
        for model in self.answers.models:
            for suite in self.answers.suites:
                measures = [m for m in self._current.measures if (m.model, m.suite) == (model, suite)]
                now, then = (
                    {
                        **data_of_figures(RowTable(rows), measures),
                        FigureName(suite, UNREADABLE_SHARE, {}, model).id: unreadable_items(rows),
                    }
                    for rows in (pairs.current(model, suite), pairs.baseline(model, suite))
                )
                new = {figure: hashed for figure, hashed in now.items() if hashed != then[figure]}
                data |= new
                adds_up |= new.keys() if self.answers.adds_up(model, suite) else set()
        numbered = self._store.nights.record_looks if record else self._store.nights.looks
        return {figure: Look(at, figure in adds_up) for figure, at in numbered(self._before.run_id, data).items()}

    def record(self, report: GateReport) -> None:
        """Store the outcome of this night."""
        facts = {
            **self.answers.facts(),
            "figures": [_facts(figure) for figure in report.figures if figure.obstacle is None],
        }
        self._store.nights.write(Night(self._before.run_id, self._current.run_id, facts))


def _facts(figure: GatedFigure) -> dict[str, object]:
    return figure.model_dump(mode="json", include={*_OF_FIGURE, "over_nights"}, by_alias=False)


def _question(signature: dict[str, object]) -> str:
    """What a suite asks and how it is read, regardless of the sample size."""
    return signature_json(encode_parts({key: value for key, value in signature.items() if key not in EXTENT}))
