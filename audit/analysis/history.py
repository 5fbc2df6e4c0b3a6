"""Each figure over the runs of a store, for `audit history` and the trend page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from audit.results import AuditResult, FigureName, Measure, ModelInfo, Reported
from audit.results.figures import EXTENT, OfFigure, signature_changes
from audit.store import Store
from backends.base import Scalar


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


class Series(Reported):
    """One figure of one model, oldest run first. ``primary``: whether the latest run that has it declares it so."""

    id: str
    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    unit: str
    neutral: float | None
    points: list[Point]
    primary: bool = False


class Checked(OfFigure, Reported):
    """What gates last decided about a figure, or of a limit on it, and since which time all have."""

    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
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

    def segments(self, series: Series) -> list[list[Point]]:
        """Runs of points that may be joined by a line.

        A segment ends if a run of the same audit lacks the figure, a run is absent, the figure has no value, or the
        suite changes.
        """
        place = {run.id: i for i, run in enumerate(self.runs)}
        segments: list[list[Point]] = []
        for point in series.points:
            before = segments[-1][-1] if segments else point
            is_gap = before.value is None or point.value is None or not point.comparable
            if not segments or is_gap or self._between(place[before.run_id], place[point.run_id]):
                segments.append([])
            segments[-1].append(point)
        return segments

    def _between(self, first: int, last: int) -> bool:
        """Whether a run of the same audit, or an absent one, lies between two runs."""
        start, end = self.runs[first], self.runs[last]
        if any(run.title in (start.title, end.title) for run in self.runs[first + 1 : last]):
            return True
        return any(_time(start.at) < _time(gap.at) < _time(end.at) for gap in self.absences)


def stored_results(store: Store, title: str | None = None) -> Iterator[AuditResult]:
    """The results of a store's runs, oldest first; only those of one audit if its title is given."""
    for run in reversed(store.runs.all()):
        if title is not None and run.title != title:
            continue
        if (result := store.runs.result(run.id)) is not None:
            yield result


def absences(store: Store, journal: Iterable[Mapping[str, Any]], title: str | None = None) -> list[Absence]:
    """Runs that ended without a result, and scheduled slots without a run, oldest first.

    Parameters
    ----------
    journal : iterable of mapping
        Entries of a schedule's journal (see `audit.schedule.journal.Journal`).
    """
    found: list[Absence] = []
    in_journal: list[tuple[datetime, datetime]] = []  # to avoid listing runs in the journal twice
    for entry in journal:
        match entry["event"]:
            case "missed":
                slots = entry["slots"]
                why = f"{slots} slot{'s' if slots != 1 else ''} missed, {entry['action']}"
                found.append(Absence(at=_utc(entry.get("first", entry["slot"])), why=why))
            case "busy":
                found.append(Absence(at=_utc(entry["slot"]), why=entry["error"]))
            case "killed" | "ended" if "run_id" not in entry:
                found.append(Absence(at=_utc(entry["slot"]), why=f"{entry.get('status', 'killed')}: {entry['error']}"))
                in_journal.append((_time(entry["slot"]), _time(entry["at"])))
    for run in reversed(store.runs.all()):  # oldest first
        ended = run.finished is not None and not run.status.startswith("failed")
        if ended or (title is not None and run.title != title):
            continue
        # A kill may be noticed some nights later: it concerns only the first run after its slot.
        if of_journal := [span for span in in_journal if span[0] <= _time(run.started) <= span[1]]:
            in_journal.remove(of_journal[0])
            continue
        why = run.status if run.finished else f"no result: {run.status}"
        found.append(Absence(at=run.started, why=why))
    return sorted(found, key=lambda absence: _time(absence.at))


def history(results: Iterable[AuditResult], absences: Sequence[Absence] = (), *, details: bool = False) -> History:
    """The series of every figure, in order of first appearance.

    Parameters
    ----------
    results : iterable of AuditResult
        Oldest first. A run without the figure has no point: nothing is interpolated.
    details : bool
        Include figures of single levels (one occupation).
    """
    series: dict[str, Series] = {}
    runs: list[Run] = []
    names: list[str] = []
    last: dict[str, tuple[Measure, ModelInfo | None]] = {}
    for result in results:
        models = {model.name: model for model in result.models}
        names = list(dict.fromkeys([*models, *names]))
        of_run: dict[str, Any] = {"at": result.started, "complete": result.complete}
        runs.append(Run(id=result.run_id, title=result.title, confidence=result.confidence, **of_run))
        for measure in result.measures:
            if measure.is_subgroup and not details:
                continue
            now = measure, models.get(measure.model)
            changes, comparable = _changes(last.get(measure.id), *now)
            last[measure.id] = now
            value = measure.model_dump(include={"value", "low", "high", "bound_low", "bound_high", "n_items"})
            point = Point(run_id=result.run_id, changes=changes, comparable=comparable, **of_run, **value)
            if measure.id not in series:
                named = measure.model_dump(include={"id", "model", "suite", "measure", "where", "unit", "neutral"})
                series[measure.id] = Series(points=[], **named)
            series[measure.id].points.append(point)
    found = [one.model_copy(update={"primary": last[one.id][0].spec.primary}) for one in series.values()]
    return History(models=names, runs=runs, series=found, absences=list(absences))


def gate_checks(store: Store, runs: Iterable[Run]) -> list[Checked]:
    """What the gates of these runs last decided about each figure, as recorded in the store."""
    at = {run.id: run.at for run in runs}
    found: dict[tuple[str, str | None], Checked] = {}
    for night in (night for night in store.nights.all() if night.run_id in at):
        for facts in (*night.facts["figures"], *night.facts.get("limits", ())):
            figure = {name: facts[name] for name in ("model", "suite", "measure", "where")}
            limit = {name: facts.get(name) for name in ("limit", "at_least", "at_most")}
            key = FigureName(**figure).id, str(limit)
            before, since = found.get(key), at[night.run_id]
            if before is not None and before.verdict == facts["verdict"]:
                since = before.since
            found[key] = Checked(**figure, **limit, verdict=facts["verdict"], since=since)
    return list(found.values())


def _changes(
    before: tuple[Measure, ModelInfo | None] | None, measure: Measure, model: ModelInfo | None
) -> tuple[list[str], bool]:
    """What changed, and whether the figure still measures the same."""
    if before is None:
        return [], True
    old_measure, old_model = before
    changes = []
    # Equal ids with different fields: an earlier version described the same model with more fields.
    if old_model is not None and model is not None and old_model.fingerprint_id != model.fingerprint_id:
        then, now = old_model.fingerprint, model.fingerprint
        changes += [
            f"model {key}: {_said(then.get(key))} → {_said(now.get(key))}"
            for key in sorted(then.keys() | now.keys())
            if then.get(key) != now.get(key)
        ]
    of_suite = signature_changes(old_measure.signature, measure.signature)
    changes += [f"suite {key}: {_said(then)} → {_said(now)}" for key, (then, now) in of_suite.items()]
    return changes, of_suite.keys() <= EXTENT


def _said(part: Any) -> str:
    return "none" if part is None else str(part)


def _utc(iso: str) -> str:
    """A time in UTC: the journal has slots in local time."""
    return _time(iso).astimezone(UTC).isoformat()


def _time(iso: str) -> datetime:
    return datetime.fromisoformat(iso)
