"""Each figure over the runs of a store, for `audit history` and the trend page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from audit.results import AuditResult, Measure, ModelInfo, Reported
from audit.results.figures import EXTENT, OfFigure, differing, signature_changes
from audit.store import Store


class Point(Reported):
    """A figure in one run.

    ``changes`` lists what differs in the model, engine or suite from the previous point, and may explain a jump. If not
    ``comparable``, the question itself differs from that of the previous point.
    """

    run_id: str
    at: str
    value: float | None
    low: float | None
    high: float | None
    bound_low: float | None
    bound_high: float | None
    n_items: int
    complete: bool
    changes: list[str]
    comparable: bool = True


class Series(OfFigure):
    """One figure of one model, oldest run first. ``primary``: whether the latest run that has it declares it so."""

    id: str
    model: str
    unit: str
    neutral: float | None
    points: list[Point]
    primary: bool = False


class Checked(OfFigure):
    """What gates last decided about a figure, or of a limit on it, and since which time all have."""

    model: str
    limit: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    verdict: str
    since: str


class Run(Reported):
    """A run with a result. ``confidence`` is the level of its intervals."""

    id: str
    title: str
    at: str
    complete: bool
    confidence: float


class Absence(Reported):
    """A gap: when a run was expected but is missing, and why."""

    at: str
    why: str


class History(Reported):
    """All figures over all runs, oldest first. ``models`` starts with those of the latest run."""

    models: list[str]
    runs: list[Run]
    series: list[Series]
    absences: list[Absence] = Field(default_factory=list)
    checks: list[Checked] = Field(default_factory=list)

    def only(self, measure: str | None, model: str | None) -> History:
        """The history of one measure or model; None means all."""
        kept = {
            name: [one for one in among if measure in (None, one.measure) and model in (None, one.model)]
            for name, among in (("series", self.series), ("checks", self.checks))
        }
        return self.model_copy(update=kept)


def stored_results(store: Store, title: str | None = None) -> Iterator[AuditResult]:
    """The results of a store's runs, oldest first; only those of one audit if its title is given."""
    for run in reversed(store.runs.all()):
        if title in (None, run.title) and (result := store.runs.result(run.id)) is not None:
            yield result


def history(results: Iterable[AuditResult], absences: Sequence[Absence] = (), *, details: bool = False) -> History:
    """The series of every figure of the results, oldest first, in order of first appearance.

    A run without the figure has no point: nothing is interpolated. ``details``: with figures of single levels (one
    occupation).
    """
    points: dict[str, list[Point]] = {}
    last: dict[str, tuple[Measure, ModelInfo | None]] = {}
    runs: list[Run] = []
    names: list[str] = []
    for result in results:
        models = {model.name: model for model in result.models}
        names = list(dict.fromkeys([*models, *names]))
        of_run: dict[str, Any] = {"at": result.started, "complete": result.complete}
        runs.append(Run(id=result.run_id, title=result.title, confidence=result.confidence, **of_run))
        for measure in result.measures:
            if measure.is_subgroup and not details:
                continue
            now = measure, models.get(measure.model)
            changes, comparable = _changes(*last.get(measure.id, now), *now)
            last[measure.id] = now
            value = measure.model_dump(include={"value", "low", "high", "bound_low", "bound_high", "n_items"})
            point = Point(run_id=result.run_id, changes=changes, comparable=comparable, **of_run, **value)
            points.setdefault(measure.id, []).append(point)
    named = {"id", "model", "suite", "measure", "where", "unit", "neutral"}
    series = [
        Series(points=of, primary=last[id][0].spec.primary, **last[id][0].model_dump(include=named))
        for id, of in points.items()
    ]
    return History(models=names, runs=runs, series=series, absences=list(absences))


def gate_checks(store: Store, runs: Iterable[Run]) -> list[Checked]:
    """What the gates of these runs last decided about each figure, as recorded in the store."""
    at = {run.id: run.at for run in runs}
    found: dict[tuple[str, object], Checked] = {}
    for night in (night for night in store.nights.all() if night.run_id in at):
        for facts in (*night.facts["figures"], *night.facts["limits"]):
            named = {name: of for name, of in facts.items() if name in Checked.model_fields}
            check = Checked(**named, since=at[night.run_id])
            key = check.figure.id, (check.limit, check.at_least, check.at_most)
            before = found.get(key, check)
            found[key] = before if before.verdict == check.verdict else check
    return list(found.values())


def _changes(
    old: Measure, old_model: ModelInfo | None, measure: Measure, model: ModelInfo | None
) -> tuple[list[str], bool]:
    """What changed, and whether the figure still measures the same."""
    of_model: dict[str, tuple[Any, Any]] = {}
    # Equal ids with different fields: an earlier version described the same model with more fields.
    if old_model is not None and model is not None and old_model.fingerprint_id != model.fingerprint_id:
        of_model = differing(old_model.fingerprint, model.fingerprint)
    is_same = old.signature == measure.signature
    of_suite = {} if is_same else signature_changes(old.signature, measure.signature)
    changes = [(f"model {key}", of) for key, of in of_model.items()]
    changes += [(f"suite {key}", of) for key, of in of_suite.items()]
    said = [f"{what}: {'none' if a is None else a} → {'none' if b is None else b}" for what, (a, b) in changes]
    return said, of_suite.keys() <= EXTENT
