"""Facts about a run that its result states: the models, the suites, the config, the versions, examples of answers."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from audit.analysis.answers import SuiteAnswers
from audit.collect import SAMPLE_VERSION, Outcome
from audit.config import AuditConfig
from audit.prepare.resolve import DescribedBackend, ResolvedAudit
from audit.results import AuditSource, Example, ModelInfo, SuiteInfo, writable
from audit.store import Store
from audit.store.keys import from_json_bytes, key_text, prompt_json
from backends.base import GenerateRequest, Request, SupportsPrices, count_tokens
from suites.base import Item, Suite

_PACKAGES = ("bias-audit", "numpy", "scipy", "torch", "transformers", "llama-cpp-python", "httpx")
#: Counts of an outcome that its model's are the sums of.
_SUMMED = ("failed", "retried", "seconds", "prompt_tokens", "completion_tokens")


def suite_signature(audit: AuditConfig, suite: Suite) -> dict[str, Any]:
    """What a suite asks in this audit: its own signature, and the sample."""
    return {
        "suite": suite.name,
        "version": suite.version,
        **suite.signature(),
        "limit": audit.limit,
        **({"seed": audit.seed, "sample": SAMPLE_VERSION} if audit.limit is not None else {}),
        **({"seed": audit.seed, "until": audit.until} if audit.until is not None else {}),
    }


def config_json(audit: AuditConfig) -> dict[str, Any]:
    """The config as the store keeps it with a run."""
    names = ("seed", "limit", "until", "shard", "confidence", "margins", "limits")
    return {
        "models": {name: type(backend).__name__ for name, backend in audit.models.items()},
        "suites": {name: suite_signature(audit, suite) for name, suite in audit.suites.items()},
        **{name: getattr(audit, name) for name in names},
    }


def audit_source(audit: AuditConfig) -> AuditSource:
    """Where the audit and its store lie, for commands that name them."""
    changed = {name: list(value) if isinstance(value, tuple) else value for name, value in audit.changed.items()}
    for where in ("executor", "store_shards"):  # they change where the models compute, and where answers lie
        changed.pop(where, None)
    return AuditSource(
        config=None if audit.origin is None else str(audit.origin),
        db=str(audit.db),
        out=str(audit.out),
        changed={name: str(value) if isinstance(value, Path) else value for name, value in changed.items()},
    )


def model_info(described: DescribedBackend, rounds: Sequence[Outcome]) -> ModelInfo:
    """A model's identity, and what asking it took."""
    backend, description = described.backend, described.description
    notes = {**description.notes, **{name: note for outcome in rounds for name, note in outcome.notes.items()}}
    has_any = any(outcome.answered or outcome.cached for outcome in rounds)
    return ModelInfo(
        name=described.name,
        backend=type(backend).__name__,
        fingerprint=writable(dict(description.fingerprint)),
        fingerprint_id=described.fingerprint_id,
        notes=writable(notes),
        statements=writable(list(description.statements)),
        limits=writable(list(description.limits)),
        asked=sum(outcome.answered for outcome in rounds),
        cached=rounds[-1].cached if rounds else 0,
        **{name: sum(getattr(outcome, name) for outcome in rounds) for name in _SUMMED},
        failed_for_good=sum(outcome.for_good for outcome in rounds),
        failures=dict(sum((outcome.failures for outcome in rounds), Counter())),
        reasons={kind: text for outcome in reversed(rounds) for kind, text in outcome.reasons.items()},
        stopped=next((outcome.stopped for outcome in rounds if outcome.stopped), ""),
        cost=backend.spent() if isinstance(backend, SupportsPrices) else None,
        unloaded="" if has_any else next((outcome.unloaded for outcome in rounds if outcome.unloaded), ""),
    )


def _is_sampled(request: Request) -> bool:
    return isinstance(request, GenerateRequest) and request.sampling.temperature > 0


def suite_info(name: str, suite: Suite, audit: AuditConfig, resolved: ResolvedAudit, n_items: int) -> SuiteInfo:
    """What a suite says of itself, for the report; ``n_items`` of its items were asked."""
    shown, texts = suite.shown, suite.shown.texts
    lengths: dict[str, dict[str, int]] = {text: {} for text in texts}
    for model, described in resolved.models.items():
        counts = count_tokens(described.backend, list(texts.values()))
        for text, count in zip(texts, counts or (), strict=False):
            lengths[text][model] = count
    kind = suite.title or suite.name
    is_only_one = sum((other.title or other.name) == kind for other in audit.suites.values()) == 1
    return SuiteInfo(
        name=name,
        title=kind if is_only_one else f"{kind} ({name})",
        n_items=n_items,
        of_items=resolved.of_items[name],
        draws=any(_is_sampled(item.request) for item in resolved.items[name]),
        signature=suite_signature(audit, suite),
        tables=[dataclasses.asdict(table) for table in shown.tables],
        charts=[dataclasses.asdict(chart) for chart in suite.charts()],
        published=[dataclasses.asdict(figure) for figure in shown.published],
        text_tokens=lengths,
        cautions=list(shown.cautions),
        meanings={measure: dataclasses.asdict(meaning) for measure, meaning in shown.meanings.items()},
        level_labels={factor: dict(labels) for factor, labels in shown.level_labels.items()},
    )


def versions() -> dict[str, str]:
    """The versions of what computes the figures."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def read_examples(
    store: Store,
    suite: str,
    model: str,
    answers: SuiteAnswers,
    items: Mapping[str, Item],
    figures: Mapping[str, list[str]],
) -> Iterator[Example]:
    """Examples of one model and suite.

    Parameters
    ----------
    items : mapping
        The suite's own items by their ids. The prompt of what follows from an answer is in the store, if it was sent.
    figures : mapping
        The items to show, and the ids of the figures that use each.
    """
    for item_id, ids in figures.items():
        own = items.get(item_id.partition("~")[0])
        found = store.answers.inspect(key_text(answers.items[item_id])) or {}
        factors = answers.table.factors_of(item_id) if own is None else own.factors
        prompt = found.get("prompt") if own is None else from_json_bytes(prompt_json(own.request))
        yield Example(
            model=model,
            suite=suite,
            item_id=item_id,
            factors=dict(factors),
            figures=list(ids),
            prompt=writable(prompt),
            answer=writable(_answer_of(found)),
        )


def _answer_of(found: Mapping[str, Any]) -> Any:
    """The answer with named fields; an error if it failed, None if it is missing."""
    if found.get("answered"):
        return found["answer"]
    return {"error": found["failures"][-1]["error"]} if found.get("failures") else None
