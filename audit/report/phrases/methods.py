"""Where a run's figures come from: its models, versions, seed."""

from __future__ import annotations

from pathlib import PurePath

from audit.report.formatting import one_line
from audit.results import AuditResult, ModelInfo

#: What tells models of one name apart, beside the weights.
_IDENTITY = {
    "base_url": "at",
    "revision": "revision",
    "quantisation": "quantised",
    "dtype": "dtype",
    "adapter": "adapter",
}
_DIGITS = 12  # of a hash


def identity(model: ModelInfo) -> str:
    """Which weights answered and on what, as far as the backend knows them."""
    kept = {**model.notes, **model.fingerprint}
    named = model.notes.get("model") or model.fingerprint.get("model")
    said = [model.backend, *([_file_name(named)] if isinstance(named, str) else [])]
    said += [f"{label} {kept[key]}" for key, label in _IDENTITY.items() if kept.get(key) not in (None, "none")]
    if isinstance(weights := model.fingerprint.get("weights_sha256"), str):
        said.append(f"SHA-256 of the weights {weights[:_DIGITS]}…")
    return one_line(", ".join([*said, f"fingerprint {model.fingerprint_id}"]))


def _file_name(model: str) -> str:
    """Without the folder that only this machine has."""
    path = PurePath(model)
    return path.name if path.is_absolute() else model


def run_provenance(result: AuditResult) -> str:
    """What the figures come from: run, seed, models and versions."""
    limit = "all items" if result.limit is None else f"at most {result.limit} items per suite"
    models = "; ".join(f"{m.name}: {identity(m)}" for m in result.models)
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return one_line(
        f"Brackets are {100 * result.confidence:g} % intervals, clustered by what the items share. A figure without "
        f"value is missing, never zero. Run {result.run_id}, started {result.started[:19]} UTC, seed {result.seed}, "
        f"{limit}. {models}. {versions}."
    )
