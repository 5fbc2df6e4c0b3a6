"""From stored answers to a result: rows, measures, comparisons, ledger and examples.

Reads the store only. No model is asked here, so a run can be judged again at any time.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audit.analysis.comparisons import compare_models, rank_models
from audit.analysis.engine_noise import engine_drift, with_engine_noise
from audit.analysis.measures import measure_rows
from audit.analysis.parsed_responses import ParsedResponses, read_answers
from audit.analysis.responses import ItemResponse, item_responses
from audit.analysis.table import Bools, RowTable
from audit.results import Comparison, DataQuality, EngineDrift, Example, Measure, Ranking, Where, where_key
from audit.store import Store, StoredRow
from backends.base import (
    ClassifyRequest,
    ClassifyResponse,
    GenerateResponse,
    Response,
    ScoreRequest,
    ScoreResponse,
    prompt_to_json,
)
from backends.errors import BackendError
from suites.base import Item, MeasureSpec, Row, Suite

#: Most items that are shown of those a derived row is made of.
SOURCES_SHOWN = 2


@dataclass(frozen=True)
class SuiteResult:
    """All that is concluded of one suite."""

    measures: list[Measure]
    comparisons: list[Comparison]
    data_quality: list[DataQuality]
    examples: list[Example]
    rankings: list[Ranking]
    drift: list[EngineDrift]
    unanswered: int


def evaluate_suite(
    name: str,
    suite: Suite,
    items: Callable[[], Iterator[Item]],
    fingerprints: Mapping[str, Callable[[str | None], str]],
    store: Store,
    *,
    read: Mapping[str, ParsedResponses],
    run_id: str,
    signature: Mapping[str, Any],
    margins: float | Mapping[str, float],
    engines: Sequence[tuple[str, str]],
    confidence: float,
    seed: int,
) -> SuiteResult:
    """Read one suite's stored answers of all models, keep the rows, and judge them.

    Parameters
    ----------
    fingerprints : mapping
        For each model's name: ``Item.scorer → fingerprint id``.
    read : mapping
        Answers that were read already, by model, and have not changed since.
    engines : sequence of pairs of names
        Models with the same weights on different engines: what differs between them is noise.
    """
    readings = {
        model: read[model]
        if model in read
        else read_answers(suite, item_responses(items, suite, fingerprint_of, store))
        for model, fingerprint_of in fingerprints.items()
    }
    for reading in readings.values():
        reading.derive()
    specs: dict[tuple[str, Where], MeasureSpec] = {}
    measures: list[Measure] = []
    tables: dict[str, RowTable] = {}
    owns: dict[str, list[MeasureSpec]] = {}
    for model, reading in readings.items():
        own = owns[model] = list(suite.measures(reading.rows))
        table = tables[model] = RowTable(reading.rows)
        specs.update({(s.measure, where_key(s.where)): s for s in own})
        measures += measure_rows(
            table, own, model=model, suite=name, signature=signature, confidence=confidence, seed=seed
        )
        store.runs.write_rows(run_id, model, name, _stored(reading))
    comparisons = with_engine_noise(
        compare_models(
            {model: reading.rows for model, reading in readings.items()},
            list(specs.values()),
            suite=name,
            margins=margins,
            confidence=confidence,
        ),
        engines,
    )
    drift = [
        engine_drift(
            name,
            a,
            b,
            _scored(item_responses(items, suite, fingerprints[a], store)),
            _scored(item_responses(items, suite, fingerprints[b], store)),
            readings[a].rows,
            readings[b].rows,
        )
        for a, b in engines
        if "score" in suite.needs
    ]
    # A model that was down has no follow-ups: items are chosen by one that was asked the most.
    fullest = max(readings, key=lambda model: len(readings[model].keys))
    wanted = _example_items(readings[fullest], tables[fullest], list(specs.values()))
    behind = {
        model: _figures_behind(reading.rows, tables[model], owns[model], wanted) for model, reading in readings.items()
    }
    # A follow-up is only reached through the item it hangs on, which it does for every model.
    roots = {reading.roots[item] for reading in readings.values() for item in wanted if item in reading.roots}
    examples = [
        example
        for model, fingerprint_of in fingerprints.items()
        for example in _examples(
            model,
            name,
            item_responses(lambda: (i for i in items() if i.id in roots), suite, fingerprint_of, store),
            behind[model],
            {(m.model, m.measure, where_key(m.where)): m.id for m in measures},
        )
    ]
    return SuiteResult(
        measures,
        comparisons,
        [_ledger(model, name, reading, measures) for model, reading in readings.items()],
        examples,
        rank_models(c for c in comparisons if not c.is_subgroup),
        drift,
        sum(reading.failures.total() for reading in readings.values()),
    )


def _scored(answered: Iterable[ItemResponse]) -> Iterator[tuple[str, ScoreResponse]]:
    for one in answered:
        if isinstance(one.answer, ScoreResponse):
            yield one.item.id, one.answer


def _stored(reading: ParsedResponses) -> Iterator[StoredRow]:
    for row in reading.rows:
        items = row.items
        if len(items) == 1:  # most rows by far
            yield StoredRow(row, reading.keys.get(items[0], ()))
        else:
            keys = itertools.chain.from_iterable([reading.keys.get(item, ()) for item in items])
            yield StoredRow(row, tuple(dict.fromkeys(keys)))


def _ledger(model: str, suite: str, reading: ParsedResponses, measures: Sequence[Measure]) -> DataQuality:
    asked = [row for row in reading.rows if row.item_id in reading.keys]  # derived rows are no items
    unreadable = Counter(row.missing for row in asked if row.missing)
    counted_by = [name for name in (reading.suite.failures_factor, *reading.suite.strata[:1]) if name is not None]
    by_group = Counter(
        str(next((row.factors[name] for name in counted_by if name in row.factors), None))
        for row in asked
        if row.missing
    )
    covered = [
        m.probability_mass
        for m in measures
        if m.model == model and m.probability_mass is not None and not m.is_subgroup
    ]
    return DataQuality(
        model=model,
        suite=suite,
        n_items=len(reading.keys),
        answered=len(reading.keys) - reading.failures.total(),
        failures=dict(unreadable | reading.failures),
        failures_by=dict(by_group),
        censored=sum(any(not v.is_exact for v in row.values.values()) for row in asked),
        merged=reading.merged,
        straddled=reading.straddled,
        probability_mass=min(covered) if covered else None,
    )


Figure = tuple[str, Where]  # (measure, where)


def _behind(table: RowTable, spec: MeasureSpec) -> Bools:
    """Rows (n,) that a figure rests on, or would if they had an answer."""
    return table.matching(spec.where) & (table.has(spec.quantity) | table.missing)


def _example_items(reading: ParsedResponses, table: RowTable, specs: Sequence[MeasureSpec]) -> set[str]:
    """Items to show, for all models: for every figure at least one item behind it, by one model's rows."""
    rows = reading.rows
    shown = np.zeros(len(rows), dtype=np.bool_)
    chosen = []
    for spec in sorted(specs, key=lambda s: -len(s.where)):
        behind = _behind(table, spec)
        if behind.any() and not (behind & shown).any():
            chosen.append(int(behind.argmax()))
            shown[chosen[-1]] = True
    asked = (item for index in chosen for item in rows[index].items[:SOURCES_SHOWN])
    return {item for item in asked if item in reading.keys}


def _figures_behind(
    rows: Sequence[Row], table: RowTable, specs: Sequence[MeasureSpec], wanted: set[str]
) -> dict[str, list[Figure]]:
    """For each wanted item the figures of one model that rest on it."""
    # One place for each wanted item in each row that rests on it.
    places = [(number, item) for number, row in enumerate(rows) for item in row.items if item in wanted]
    of_rows = np.array([number for number, _ in places], dtype=np.intp)
    figures: dict[str, list[Figure]] = {item: [] for item in wanted}
    for spec in specs:
        figure = (spec.measure, where_key(spec.where))
        for place in np.flatnonzero(_behind(table, spec)[of_rows]).tolist():
            found = figures[places[place][1]]
            if not found or found[-1] != figure:
                found.append(figure)
    return figures


def _examples(
    model: str,
    suite: str,
    answered: Iterable[ItemResponse],
    figures: Mapping[str, Sequence[Figure]],
    ids: Mapping[tuple[str, str, Where], str],
) -> Iterator[Example]:
    for one in answered:
        if one.item.id in figures:
            yield Example(
                model=model,
                suite=suite,
                item_id=one.item.id,
                factors=dict(one.item.factors),
                figures=[ids[(model, *figure)] for figure in figures[one.item.id]],
                prompt=_writable(prompt_of(one.item)),
                answer=_writable(answer_of(one)),
            )


def _writable(shown: Any) -> Any:
    """The same with lone surrogates escaped: a result is written as UTF-8, which has none."""
    match shown:
        case str():
            return shown.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {name: _writable(value) for name, value in shown.items()}
        case list():
            return [_writable(value) for value in shown]
    return shown


def prompt_of(item: Item) -> Any:
    """What was asked, JSON-ready: a text, or a list of [role, content]."""
    request = item.request
    return request.text if isinstance(request, ClassifyRequest) else prompt_to_json(request.prompt)


def answer_of(one: ItemResponse) -> Any:
    """What was answered, JSON-ready, with token log-probabilities (nats); None if never asked."""
    if one.answer is None:
        return None
    if isinstance(one.answer, BackendError):
        return {"error": one.answer.to_json()}
    return _response_json(one.item, one.answer)


def _response_json(item: Item, response: Response) -> Any:
    match response:
        case ScoreResponse(scores):
            assert isinstance(item.request, ScoreRequest)
            return {
                "scores": [
                    {
                        "continuation": continuation,
                        "logprob": score.logprob,
                        "low": score.low,
                        "high": score.high,
                        "exactness": score.exactness,
                        "boundary": score.boundary,
                        "route": score.route,
                        "tokens": [[t.text, t.logprob, t.exact] for t in score.tokens],
                    }
                    for continuation, score in zip(item.request.continuations, scores, strict=True)
                ]
            }
        case GenerateResponse():
            return dataclasses.asdict(response)
        case ClassifyResponse(labels):
            return {"labels": dict(labels)}
