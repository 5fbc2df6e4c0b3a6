"""The items behind the figures, with prompts and answers, for other programs or to recompute figures."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.report.plain_text import csv_cell, encodable, prompt_text
from audit.results import AuditResult
from audit.store import Answered, Store, StoredRow, StoredTable
from backends.base import (
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    GenerateResponse,
    Request,
    Response,
    ScoreRequest,
    ScoreResponse,
    prompt_to_json,
)
from backends.errors import ConfigError
from backends.files import atomic_lines, replacing

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".jsonl", ".csv", ".parquet")
_AT_ONCE = 500


def item_records(
    store: Store, result: AuditResult, *, suite: str | None = None, texts: bool = True, derived: bool = True
) -> Iterator[dict[str, Any]]:
    """A record for each model, suite and row of a run, in the order in which the rows were made.

    Keys: ``run``, ``model``, ``suite``, ``item``, ``derived``, ``factors``, ``quantities`` (``{name: [low, value,
    high]}``; value None where it is only bounded) and ``missing`` (why there is no answer, else None). ``derived``
    says whether the row is computed from items that have rows of their own (None for runs of versions that did not
    store it); without the parameter ``derived`` such rows are left out. With ``texts`` also ``prompt``
    and ``answers``: ``{"text", "finish_reason"}``, ``{"labels"}``, or an entry for each continuation (log-probabilities
    in nats). Rows of several questions have neither: their ``asked`` holds a ``{"prompt", "answers"}`` for each.
    An answer that cannot be read any more is ``{"error"}``, at the end of ``answers``.

    Raises
    ------
    ConfigError
        When the run has no such suite.
    """
    for model, name in _parts(result, suite):
        rows = store.runs.read_rows(result.run_id, model, name, derived=derived)
        named = {"run": result.run_id, "model": model, "suite": name}
        yield from (named | record for record in records_of(store, rows, texts=texts))


def item_frame(
    store: Store,
    result: AuditResult,
    *,
    suite: str | None = None,
    derived: bool = False,
    beside: Callable[[StoredTable], Mapping[str, Sequence[str]]] = lambda _: {},
) -> pl.DataFrame:
    """The tables of a run (`audit.analysis.table.Table.frame`), below each other, with their model and suite.

    ``beside``: further columns of texts. The other parameters are those of `item_records`.
    """
    import polars as pl

    frames = [pl.DataFrame(schema={"model": pl.String, "suite": pl.String, "item": pl.String})]
    for model, name in _parts(result, suite):
        if (found := store.runs.read_table(result.run_id, model, name)) is not None:
            names = (pl.lit(model).alias("model"), pl.lit(name).alias("suite"))
            texts = (pl.Series(column, values, dtype=pl.String) for column, values in beside(found).items())
            frame = found.frame().select(*names, pl.all()).with_columns(*texts)
            frames.append(frame if derived else frame.filter(~pl.col("derived")))
    return pl.concat(frames, how="diagonal_relaxed")


def _parts(result: AuditResult, suite: str | None) -> Iterator[tuple[str, str]]:
    """The models and suites of a run, or one of its suites."""
    names = [info.name for info in result.suites]
    if suite is not None and suite not in names:
        raise ConfigError("suite", suite, "not in this run", f"Known: {', '.join(names)}")
    return itertools.product([model.name for model in result.models], names if suite is None else [suite])


def records_of(store: Store, rows: Iterable[StoredRow], *, texts: bool = True) -> Iterator[dict[str, Any]]:
    """The `item_records` of rows, without the names of their run, model and suite."""
    left = iter(rows)
    while portion := list(itertools.islice(left, _AT_ONCE)):
        asked = _asked(store, portion) if texts else {}
        for stored in portion:
            yield {
                "item": stored.row.item_id,
                "derived": stored.derived,
                "factors": dict(stored.row.factors),
                "quantities": {n: [v.low, v.value, v.high] for n, v in stored.row.values.items()},
                "missing": stored.row.missing,
                **(_texts(stored, asked) if texts else {}),
            }


def questions(record: Mapping[str, Any]) -> list[tuple[Any, Sequence[Mapping[str, Any]]]]:
    """(prompt, answers) of each question behind a record; none where nothing is stored of it."""
    if record["prompt"] is not None:
        return [(record["prompt"], record["answers"])]
    return [(one["prompt"], one["answers"]) for one in record["asked"]]


def of_items(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Records of questions: those of one each, and those of several that hold one which none before them holds.

    Others only compute with what was asked for other rows, as a difference of two does.
    """
    shown: set[int] = set()
    for record in records:
        found = {hash(_same(prompt)) for prompt, _ in questions(record)}
        if record["prompt"] is not None or not found <= shown:
            yield record
        shown |= found


def write_items(
    store: Store, result: AuditResult, path: Path, *, suite: str | None = None, derived: bool = False
) -> Path:
    """Write `item_records` as JSON lines, or `item_frame` with prompts and answers as CSV or Parquet.

    ``derived``: also the rows computed from other items' rows. They repeat those items' texts, and so may take many
    times the space.

    Raises
    ------
    ConfigError
        When the path ends otherwise; before anything is read.
    """
    if path.suffix not in ENDINGS:
        raise ConfigError(
            "FILE", str(path), "not a kind of file that can be written", f"End it in {' or '.join(ENDINGS)}"
        )
    if path.suffix == ".jsonl":
        records = item_records(store, result, suite=suite, derived=derived)
        return atomic_lines(path, (json.dumps(encodable(record), ensure_ascii=False) for record in records))
    import polars as pl

    frame = item_frame(store, result, suite=suite, derived=derived, beside=lambda table: _beside(store, table))
    with replacing(path) as part:
        if path.suffix == ".parquet":
            frame.write_parquet(part)
        else:
            lists, texts = pl.selectors.list(), pl.selectors.string()
            frame = frame.with_columns(lists.list.join("; ")).with_columns(texts.map_elements(csv_cell, pl.String))
            frame.write_csv(part)
    return path


_LOST = {"error": "damaged or no longer stored; `audit cache verify` says more"}


def _beside(store: Store, table: StoredTable) -> dict[str, list[str]]:
    """The prompts behind each row, and all their answers as JSON."""
    asked = [questions(encodable(record)) for record in records_of(store, table.rows())]
    answers = [[answer for _, of_prompt in of_row for answer in of_prompt] for of_row in asked]
    return {
        "prompt": ["\n\n".join(prompt_text(prompt) for prompt, _ in of_row) for of_row in asked],
        "answers": [json.dumps(of_row, ensure_ascii=False) for of_row in answers],
    }


def _asked(store: Store, rows: Iterable[StoredRow]) -> dict[str, Answered]:
    """The question and answer under each key of the rows."""
    return store.answers.by_keys(key for stored in rows for key in stored.keys)


def _texts(stored: StoredRow, asked: Mapping[str, Answered]) -> dict[str, Any]:
    """The prompts and answers; an answer that cannot be read any more is named among them."""
    by_prompt: dict[str, dict[str, Any]] = {}
    for request, answer, *_ in (asked[key] for key in stored.keys if key in asked):
        prompt = request.text if isinstance(request, ClassifyRequest) else prompt_to_json(request.prompt)
        same = by_prompt.setdefault(_same(prompt), {"prompt": prompt, "answers": []})
        same["answers"] += _answers(request, answer)
    several = list(by_prompt.values())
    lost = [_LOST for key in stored.keys if key not in asked]
    if len(several) != 1:
        return {"prompt": None, "answers": lost, "asked": several}
    return {"prompt": several[0]["prompt"], "answers": several[0]["answers"] + lost, "asked": []}


def _same(prompt: Any) -> str:
    """The same for two prompts that are the same."""
    return json.dumps(prompt, ensure_ascii=False, default=str)


def _answers(request: Request, answer: Response) -> list[dict[str, Any]]:
    match answer:
        case ScoreResponse(scores):
            assert isinstance(request, ScoreRequest)
            pairs = zip(request.continuations, scores, strict=True)
            return [{"continuation": text, **_score(score)} for text, score in pairs]
        case GenerateResponse(text, finish_reason):
            thought = {"thought": answer.thought} if answer.thought else {}
            return [{"text": text, "finish_reason": finish_reason, **thought}]
        case ClassifyResponse(labels):
            return [{"labels": dict(labels)}]


def _score(score: ContinuationScore) -> dict[str, Any]:
    return {
        "logprob": score.logprob,
        "low": score.low,
        "high": score.high,
        "exactness": score.exactness,
        "tokens": [[token.text, token.logprob] for token in score.tokens],
    }
