"""Inspect's log (`EvalLog`, version 2, JSON), which `inspect view` and `inspect_ai.log.read_eval_log` read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from audit.report.exports.for_tools.of_model import OfModel, Record, answer_text, as_json, numbers, turns
from audit.report.exports.items import questions
from audit.report.plain_text import file_name
from audit.results import Measure

_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}


def inspect_files(of: OfModel) -> Iterator[tuple[str, str]]:
    """One log: each quantity is a score of its samples, each figure a metric with its interval as metadata."""
    result, started = of.result, of.result.started
    log = {
        "version": 2,
        "status": _status(of),
        "eval": {
            "eval_id": f"{result.run_id}-{of.model_part}-{of.suite_part}",
            "run_id": result.run_id,
            "created": started,
            "task": of.info.name,
            "task_id": of.info.name,
            "task_version": str(of.info.signature.get("version", 0)),
            "task_display_name": of.info.title,
            "task_args": of.info.signature,
            "dataset": {"name": of.info.name, "samples": len(of.records), "shuffled": False},
            "model": of.model.name,
            "model_args": of.model.fingerprint,
            "config": {"limit": result.limit},
            "packages": result.versions,
            "metadata": {"seed": result.seed, "fingerprint": of.model.fingerprint_id},
        },
        "plan": {},
        "results": _results(of),
        "stats": {"started_at": started, "completed_at": result.finished},
        "samples": [_sample(of, record) for record in of.records],
    }
    # Inspect finds a log by a name that begins with a time and ends in an id.
    at = started.replace(":", "-")
    yield f"{file_name(at)}_{of.suite_part}_{of.model_part}-{file_name(result.run_id)}.json", as_json(log)


def _status(of: OfModel) -> str:
    """``error`` where not one sample has an answer: that tool takes a success for a measured model."""
    if of.result.interrupted:
        return "cancelled"
    return "error" if of.records and all(record["missing"] is not None for record in of.records) else "success"


def _results(of: OfModel) -> dict[str, Any]:
    scores: dict[str, dict[str, Any]] = {}
    for name, measure, value in of.figures():
        metric = {"name": name, "value": value, "metadata": _about(measure, of.result.confidence)}
        scores.setdefault(measure.measure, {})[name] = metric
    return {
        "total_samples": len(of.records),
        "completed_samples": sum(record["missing"] is None for record in of.records),
        "scores": [{"name": name, "scorer": "bias-audit", "metrics": metrics} for name, metrics in scores.items()],
        "metadata": {"without a value": of.without_value()},
    }


def _about(measure: Measure, confidence: float) -> dict[str, Any]:
    return {
        "id": measure.id,
        "where": measure.where,
        "low": measure.low,
        "high": measure.high,
        "confidence": confidence,
        "neutral": measure.neutral,
        "items": measure.n_items,
        "missing": measure.missing,
    }


def _sample(of: OfModel, record: Record) -> dict[str, Any]:
    """A sample has one question: of several it is the first, and the others stand in the metadata."""
    asked = questions(record)
    prompt, answers = asked[0]
    texts = [answer for answer in answers if "text" in answer]
    stop = _STOP_REASONS.get(str(texts[0]["finish_reason"]), "unknown") if texts else "unknown"
    said = {"role": "assistant", "content": answer_text(answers), "source": "generate", "model": of.model.name}
    # Continuations that were scored are no output: the model did not write them.
    choices = [{"message": said, "stop_reason": stop}] if texts else []
    likeliest = {} if texts else {"likeliest of those scored": answer_text(answers)}
    more = [{"prompt": prompt, "answers": answers} for prompt, answers in asked[1:]]
    sample = {
        "id": record["item"],
        "epoch": 1,
        "input": turns(prompt),
        "target": "",
        "output": {"model": of.model.name, "choices": choices},
        "scores": {name: {"value": value} for name, value in numbers(record).items()},
        "metadata": {
            "factors": record["factors"],
            "answers": answers,
            **likeliest,
            "asked besides": more,
            "bounds": {name: [low, high] for name, (low, value, high) in record["quantities"].items() if value is None},
        },
    }
    if record["missing"] is not None:
        sample["error"] = {"message": record["missing"], "traceback": "", "traceback_ansi": ""}
    return sample
