"""The provenance of a figure: the prompts, raw answers and token log-probabilities of its items."""

from __future__ import annotations

import itertools
from typing import Any

from audit.report import formatting
from audit.results import AuditResult, Measure, where_key
from audit.store import Store
from backends.errors import ConfigError


def provenance(store: Store, result: AuditResult, figure_id: str, limit: int) -> dict[str, Any]:
    """A figure and the first ``limit`` of its items, each with everything stored under its keys.

    Raises
    ------
    ConfigError
        If no figure of the run has this id.
    """
    measure = _figure(result, figure_id)
    where, quantity = where_key(measure.where), measure.spec.quantity
    behind = (
        stored
        for stored in store.runs.read_rows(result.run_id, measure.model, measure.suite)
        if where <= where_key(stored.row.factors)
        and (stored.row.missing or quantity in stored.row.values)
        and stored.keys
    )
    items = [
        {
            "item": stored.row.item_id,
            "factors": dict(stored.row.factors),
            "values": {name: [v.low, v.value, v.high] for name, v in stored.row.values.items()},
            "missing": stored.row.missing,
            "answers": [store.answers.inspect(key) or {"key": key, "answered": False} for key in stored.keys],
        }
        for stored in itertools.islice(behind, limit)
    ]
    return {"run": result.run_id, "figure": measure.model_dump(), "items": items}


def provenance_text(behind: dict[str, Any]) -> str:
    """The result of `provenance` as text for a terminal."""
    figure = behind["figure"]
    where = "".join(f", {k}={v}" for k, v in figure["where"].items()) or ", overall"
    lines = [
        f"{figure['measure']} of {figure['model']} on {figure['suite']}{where}, in run {behind['run']}",
        f"  value {formatting.figure(Measure.model_validate(figure))}",
        f"  {figure['n_items']} items, {figure['missing']} missing, {figure['censored']} known only by bounds",
        f"  {figure['signature']}",
    ]
    if not behind["items"]:
        lines += [
            "",
            "No items are stored for this figure: it is computed from other figures, or its run stored no rows.",
        ]
    for item in behind["items"]:
        lines += ["", f"{item['item']}" + (f"  MISSING: {item['missing']}" if item["missing"] else "")]
        lines += [f"  {name} = {_identified(*v)}" for name, v in item["values"].items()]
        prompt = None
        for answer in item["answers"]:
            if answer.get("prompt") is not None and answer["prompt"] != prompt:
                prompt = answer["prompt"]
                lines.append(f"  prompt: {prompt!r}")
            lines.append(f"  key {answer['key']}" + (f", given {answer['stored']}" if "stored" in answer else ""))
            lines += [f"    {line}" for line in _answer_lines(answer)]
    return "\n".join(lines)


def _figure(result: AuditResult, figure_id: str) -> Measure:
    matching = [m for m in result.measures if m.id == figure_id] or [
        m for m in result.measures if m.id.startswith(figure_id)
    ]
    if len(matching) != 1:
        raise ConfigError(
            "FIGURE-ID", figure_id, f"{len(matching)} figures of run {result.run_id} match", "See `id` in report.json"
        )
    return matching[0]


def _identified(low: float, value: float | None, high: float) -> str:
    return f"{value:.6g}" if value is not None else f"between {low:.6g} and {high:.6g}"


def _answer_lines(stored: dict[str, Any]) -> list[str]:
    if not stored.get("answered"):
        return [f"no answer; failures: {stored.get('failures') or 'none'}"]
    answer = stored["answer"]
    if answer is None:
        return ["damaged; `audit cache verify` quarantines it"]
    if "scores" in answer:
        return [f"{score['continuation']!r}: {_score_text(score)}" for score in answer["scores"]]
    if "text" in answer:
        thought = f"; after the thought {answer['thought']!r}" if answer["thought"] else ""
        return [f"text, ended by {answer['finish_reason']}: {answer['text']!r}{thought}"]
    return [", ".join(f"{label} {p:.6g}" for label, p in answer["labels"].items())]


def _score_text(score: dict[str, Any]) -> str:
    """A log-probability with its exactness, and the tokens that it sums over."""
    if score["logprob"] is not None:
        value = f"{score['logprob']:.6g} nats"
    else:
        low = "at most" if score["low"] is None else f"{score['low']:.6g} to"
        value = f"{low} {score['high']:.6g} nats"
    tokens = ", ".join(
        f"{text!r} {'' if exact else 'at most '}{logprob:.6g}" for text, logprob, exact in score["tokens"]
    )
    notes = ", ".join(note for note in (score["exactness"], f"boundary {score['boundary']}", score["route"]) if note)
    return f"log P {value} ({notes})" + (f"; tokens {tokens}" if tokens else "")
