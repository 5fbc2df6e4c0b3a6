"""What limits a suite's figures: its own cautions, bounds, missing answers, little probability mass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.report.figures import Figures
from audit.report.formatting import measure_label, one_line, percent, where_label
from audit.report.phrases.counted import enumeration
from audit.results import LITTLE_COVERAGE, NOT_ASKED, AuditResult, DataQuality, PromptCoverage
from backends.errors import ERROR_KINDS

_MANY_WEAK = 0.1  # with a smaller share of prompts of little coverage, there is no caution
_MANY_FAILED = 0.01  # with a smaller share of failures, there is no caution


#: What it means for the figures, and what to do.
STRADDLED_IN_PART = (
    "The former are given the prompt's text, the latter its tokens, so that their probabilities may be some per cent "
    "apart for that alone. End the prompt in a whole word, or set a separator."
)


def cautions(figures: Figures, suite: str) -> Iterator[str]:
    """The suite's own cautions; then figures known only by bounds, and missing answers."""
    many = len(figures.result.suites) > 1
    info = figures.suite(suite)
    title = one_line(info.title)
    for caution in info.cautions:
        yield f"{title}: {one_line(caution)}" if many else one_line(caution)
    place = f" on {title}" if many else ""
    yield from _of_common_words(figures, suite, place)
    entries = [entry for entry in figures.result.data_quality if entry.suite == suite]
    unloaded = {model.name for model in figures.result.models if model.unloaded}  # the problems say why, once
    for e in entries:
        if e.model in unloaded:
            continue
        if e.censored:
            yield (
                f"{one_line(e.model)}{place}: {e.censored:,} of {e.n_items:,} items are known only by bounds, because "
                "the server does not report every probability, none of its sampled answers names a group, or some of "
                "them are unknown (an unfinished thought, a content filter). "
                "The bounds are drawn as dashed bands, separate from sampling error."
            )
        if e.straddled_in_part:
            yield (
                f"{one_line(e.model)}{place}: in {e.straddled_in_part:,} of {e.n_items:,} items some continuations "
                f"share a token with the prompt and others do not. {STRADDLED_IN_PART}"
            )
        if e.altered:
            yield (
                f"{one_line(e.model)}{place}: the tokenizer drops case, accents or spaces, so that the model read "
                f"another prompt than the suite's in {e.altered:,} of {e.n_items:,} items. Prompts that differ in "
                "nothing else are the same to it."
            )
        if sum(e.failures.values()) > max(0, _MANY_FAILED * e.n_items):
            yield f"{one_line(e.model)}{place}: {_missing(figures, e)}"


def _of_common_words(figures: Figures, suite: str, place: str) -> Iterator[str]:
    """Contrasts of the sign and size that their words alone have, after a neutral start."""
    alone = {(m.model, m.measure): m.value for m in figures.result.measures if m.suite == suite}
    for name, where, _ in figures.leading(suite):
        for m in figures.by_model(suite, name, where):
            base = alone.get((m.model, m.spec.baseline))
            if m.value and base and m.value * base > 0 and abs(base) >= abs(m.value) / 2:
                yield (
                    f"{one_line(m.model)}{place}: {measure_label(name)} is {m.value:+.2f}, and the same words after a "
                    f"neutral start give {base:+.2f}: it may only say how common the words are (prior_corrected)."
                )


def _missing(figures: Figures, entry: DataQuality) -> str:
    """How many items have no answer, by reason; what that means for the figures; and what can be done about it."""
    unasked = entry.failures.get(NOT_ASKED, 0)
    lost = {reason: n for reason, n in entry.failures.items() if reason != NOT_ASKED}
    without = f"{unasked:,} of {entry.n_items:,} items were not asked, or their answers are quarantined."
    said = [without] if unasked else []
    if lost:
        reasons = ", ".join(f"{one_line(k)} {v:,}" for k, v in sorted(lost.items(), key=lambda kv: -kv[1]))
        said.append(f"{sum(lost.values()):,} of {entry.n_items:,} items have no readable answer ({reasons}).")
    own = (m for m in figures.result.measures if (m.model, m.suite) == (entry.model, entry.suite) and m.missing)
    holds = "intervals and decisions hold whatever the missing answers would have been"
    if any(not m.spec.has_range for m in own):
        holds += ", except those of figures without a range, which are of the answered items alone"
    said.append(f"Values are those of the answered items; {holds}.")
    if unasked and entry.model not in figures.result.contradicted:
        said.append("Run the audit again to ask the rest.")
    elif not ERROR_KINDS.isdisjoint(lost) and not fails_for_good(figures.result, entry.model):
        said.append("Run the audit again to repeat the failed requests.")
    return " ".join(said)


def fails_for_good(result: AuditResult, model: str) -> bool:
    """Whether all that failed of a model's answers, those of scorers too, would fail again in the same way."""
    failures = [(reason, n) for e in result.data_quality if e.model == model for reason, n in e.failures.items()]
    errors = sum(n for reason, n in failures if reason in ERROR_KINDS)
    return 0 < errors <= sum(one.failed_for_good for one in result.models if one.name == model)


def weak_claims(figures: Figures, suites: Sequence[str]) -> Iterator[str]:
    """That the models expect something else than the listed answers, in one sentence for all suites."""
    weakest: dict[str, DataQuality] = {}
    where: dict[str, None] = {}
    for e in figures.result.data_quality:
        if e.suite in suites and is_weak(e):
            if e.model not in weakest or _weakness(e) > _weakness(weakest[e.model]):
                weakest[e.model] = e
            where[one_line(figures.suite(e.suite).title)] = None
    if weakest:
        place = f" on {enumeration(where)}" if len(figures.result.suites) > 1 else ""
        shares = "; ".join(f"{one_line(model)} {_little(e)}" for model, e in weakest.items())
        bounded = any(one.may_be_below > one.below for e in weakest.values() for one in e.prompt_coverage)
        hold = "hold, or may hold," if bounded else "hold"
        yield (
            f"Weak claim{place}: in many prompts the listed answers {hold} less than {100 * LITTLE_COVERAGE:.0f} % of "
            f"what the model expects to come next ({shares}). The figures only say how that small mass is distributed."
        )


def is_weak(entry: DataQuality) -> bool:
    """Whether in more than one prompt of ten, of some condition, the expressions have little probability mass."""
    return _weakness(entry) > _MANY_WEAK


def _weakness(entry: DataQuality) -> float:
    """The largest share of a condition's prompts with little coverage; of older results only means are known."""
    if entry.prompt_coverage:
        return entry.prompt_coverage[-1].share_below
    return float(entry.probability_mass is not None and entry.probability_mass < LITTLE_COVERAGE)


def _little(entry: DataQuality) -> str:
    """``59 of 100 prompts, median 7.1 %, lowest 0.3 %``, and where most are if that is not everywhere."""
    if not entry.prompt_coverage:
        return f"{percent(entry.probability_mass or 0.0)} on average"
    whole, *worst = entry.prompt_coverage
    said = f"{prompts_below(whole)} prompts, median {percent(whole.median)}, lowest {percent(whole.lowest)}"
    return "".join([said, *(f", with {where_label(one.where)} {prompts_below(one)}" for one in worst)])


def prompts_below(coverage: PromptCoverage) -> str:
    """``59 of 100``, or ``59 to 80 of 100`` where only bounds are known."""
    up_to = f" to {coverage.may_be_below:,}" if coverage.may_be_below > coverage.below else ""
    return f"{coverage.below:,}{up_to} of {coverage.n_prompts:,}"
