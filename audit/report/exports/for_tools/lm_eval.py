"""lm-evaluation-harness's files: ``results_DATE.json`` and ``samples_TASK_DATE.jsonl`` in a folder for each model.

As its `EvaluationTracker` writes them; its standard errors are "N/A", since intervals here are not of single samples:
they stand under ``bias_audit``.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterator
from typing import Any

from audit.report.exports.for_tools.of_model import OfModel, Record, as_json, numbers
from audit.report.exports.items import questions
from audit.report.plain_text import continuation_text, encoded, prompt_text


def lm_eval_files(of: OfModel) -> Iterator[tuple[str, str]]:
    """Results and samples of one suite as a task; samples without an answer are left out, as that tool has none."""
    when = datetime.datetime.fromisoformat(of.result.started)
    date = when.strftime("%Y-%m-%dT%H-%M-%S.%f")
    task, folder = of.suite_part, of.model_part
    answered = [r for r in of.records if r["missing"] is None and any(answers for _, answers in questions(r))]
    # That tool aligns models by a sample's number, so it is the item's, whatever this model left unanswered.
    lines = [as_json(_sample(of.item_numbers[record["item"]], record), indent=None) for record in answered]
    yield f"{folder}/samples_{task}_{date}.jsonl", "".join(f"{line}\n" for line in lines)
    # One file of results for each task: that tool's readers take them together.
    results = _results(of, task, when.timestamp(), len(answered))
    yield f"{folder}/{task}/results_{date}.json", as_json(results)


def _results(of: OfModel, task: str, date: float, n_answered: int) -> dict[str, Any]:
    figures = list(of.figures())
    of_task: dict[str, Any] = {"alias": of.info.name}
    for name, _, value in figures:
        of_task |= {f"{name},none": value, f"{name}_stderr,none": "N/A"}
    result = of.result
    return {
        "results": {task: of_task},
        "group_subtasks": {task: []},
        "configs": {task: {"task": task, "metadata": of.info.signature}},
        "versions": {task: of.info.signature.get("version", 0)},
        "n-shot": {task: 0},
        "higher_is_better": {task: {}},
        "n-samples": {task: {"original": len(of.records), "effective": n_answered}},
        "config": {
            "model": of.model.backend,
            "model_args": of.model.fingerprint,
            "limit": result.limit,
            "random_seed": result.seed,
        },
        "date": date,
        "model_name": of.model.name,
        "model_name_sanitized": of.model_part,
        "bias_audit": {
            "run": result.run_id,
            "version": result.versions.get("bias-audit"),
            "confidence": result.confidence,
            "intervals": {name: [measure.low, measure.high] for name, measure, _ in figures},
            "without a value": of.without_value(),
        },
    }


def _sample(number: int, record: Record) -> dict[str, Any]:
    arguments: list[dict[str, Any]] = []
    responses: list[Any] = []
    for asked, answers in questions(record):
        prompt = prompt_text(asked)
        for answer in answers:
            # Whether a continuation is the greedy one is unknown, hence null, like a log-probability known by bounds.
            if "continuation" in answer:
                arguments.append({"arg_0": prompt, "arg_1": continuation_text(answer)})
                responses.append([answer["logprob"], None])
            elif "text" in answer:
                arguments.append({"arg_0": prompt, "arg_1": {}})
                responses.append(answer["text"])
    doc = {"id": record["item"], **record["factors"]}
    known = numbers(record)
    prompts = "\n".join(prompt_text(prompt) for prompt, _ in questions(record))
    return {
        "doc_id": number,
        "doc": doc,
        "target": "",
        "arguments": {
            f"gen_args_{i}": argument for i, argument in enumerate(arguments or [{"arg_0": prompts, "arg_1": {}}])
        },
        "resps": [[response] for response in responses],
        "filtered_resps": responses,
        "filter": "none",
        "metrics": list(known),
        "doc_hash": _hash(as_json(doc)),
        "prompt_hash": _hash(prompts),
        "target_hash": _hash(""),
        **known,
    }


def _hash(text: str) -> str:
    return hashlib.sha256(encoded(text)).hexdigest()
