"""How the figures are computed and how to read them: the terms that the page explains, and a run's provenance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from audit.report.formatting import one_line
from audit.report.phrases.findings.reach import missing_kinds
from audit.results import AuditResult, ModelInfo

Terms = list[tuple[str, str]]

#: What tells models of one name apart, beside the weights.
_IDENTITY = {
    "base_url": "at",
    "revision": "revision",
    "quantisation": "quantised",
    "dtype": "dtype",
    "adapter": "adapter",
}
_DIGITS = 12  # of a hash

DATA_QUALITY_TERMS: Terms = [
    (
        "Coverage",
        "The probability mass of the listed expressions before normalisation. A share that rests on 3 % of the mass is "
        "a weak claim. Prompts are counted, and their median and lowest coverage given: a mean would hide the small.",
    ),
    (
        "Only bounds known",
        "A server that reports only its most likely tokens leaves other probabilities between bounds. Such figures "
        "are bands, not points.",
    ),
    (
        "Merged, straddled",
        "Where prompt and answer meet, the tokenizer may change the prompt's last tokens (merged) or join both sides "
        "in one token (straddled; its prompt part is marginalised exactly).",
    ),
]


def method_terms(confidence: float, levels: Mapping[str, int]) -> Terms:
    """The terms of the section on methods. ``levels``: of the sampled factors behind a leading figure."""
    return [
        (
            "P̃(group)",
            "The probability of a group is the sum, over its expressions, of the product of token probabilities given "
            "the prompt. P̃ divides it by the sum over all groups.",
        ),
        (
            "Intervals",
            f"{100 * confidence:g} % intervals, clustered by what the prompts are built from, because answers to "
            f"prompts with a common part are not independent. Brackets give the interval. {missing_kinds(levels)}",
        ),
        (
            "Missing answers",
            "The value is that of the items with a readable answer (the complete cases). Intervals and decisions hold "
            "whatever the missing answers would have been: each may be any value in the quantity's range. So a model "
            "gains nothing by refusing its worst items.",
        ),
        (
            "Bounds",
            "If a figure is only known to lie between two values, these are drawn as a dashed band. This is not "
            "sampling error and does not shrink with more items.",
        ),
        (
            "Comparisons",
            "Models are compared item by item. A model is called higher or lower if its test is significant after "
            "correction for many figures: Holm's over a suite's primary figures, a false discovery rate over its "
            "others. It is called tied (equivalent) if two one-sided tests place it within the margin, for questions "
            "like those asked; otherwise the comparison is inconclusive, which does not mean equal.",
        ),
        *_server_terms(),
        (
            "Published figures",
            "Figures printed in the papers, for orientation. They come from other models, and partly from other "
            "software.",
        ),
    ]


def _server_terms() -> Terms:
    """What a run checks about servers, and what it cannot check."""
    return [
        (
            "Checks of hosted models",
            "Before the first question a server is asked at most 20 times: what it accepts, and whether different "
            "prompts get different answers. After at most 30 of the run's questions words are drawn and compared with "
            "the listed probabilities (Chernoff's bound, at 1 in 10,000); 1 to 2 % of the questions, 8 at least, are "
            "asked again at random times. Answers that then differ by more than 1 nat are another model's, and none of "
            "the run counts. Smaller moves are noise: each score becomes an interval as wide as scores move on "
            "average (at 95 % confidence), within which the mean of a figure stays.",
        ),
    ]


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
