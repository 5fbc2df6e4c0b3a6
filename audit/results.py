"""What an audit gives: measures, comparisons, and what is needed to trust them.

Everything here is plain data with a JSON form. Reports and gates read it and compute nothing of it again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, field_serializer, field_validator, model_validator

from audit.signatures import canonical_json, encode_parts, read_signature, write_signature
from suites.base import MeasureSpec, Row

Scalar = str | int | float | bool | None
Where = frozenset[tuple[str, tuple[bool, Scalar]]]


def level_key(level: Scalar) -> tuple[bool, Scalar]:
    """A level as a key: True is not 1, although Python takes them for equal."""
    return isinstance(level, bool), level


def where_key(where: Mapping[str, Scalar]) -> Where:
    """A condition as a key: the order of its factors does not matter."""
    return frozenset((factor, level_key(level)) for factor, level in where.items())


FigureKey = tuple[str | None, str, str, Where]


@dataclass(frozen=True, slots=True)
class FigureName:
    """The name of a figure and where it holds; ``model`` None: the figure of all models."""

    suite: str
    measure: str
    where: Mapping[str, Scalar]
    model: str | None = None

    @property
    def key(self) -> FigureKey:
        """The name as a key: equal for equal figures, in whatever order the factors stand."""
        return self.model, self.suite, self.measure, where_key(self.where)

    @property
    def id(self) -> str:
        """Short stable hash of the name: 12 hex digits of the SHA-256 of its canonical JSON."""
        canonical = canonical_json([self.model, self.suite, self.measure, self.where])
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """``measure (factor level, …)``."""
        where = ", ".join(f"{factor} {level}" for factor, level in self.where.items())
        return f"{self.measure} ({where})" if where else self.measure

    def __str__(self) -> str:
        of_model = "" if self.model is None else f" of {self.model}"
        return f"{self.title}{of_model} on {self.suite}"


class _HasFigure(Protocol):
    suite: str
    measure: str
    where: dict[str, Scalar]


class OfFigure:
    """What is said of one figure, whose name it holds."""

    @property
    def figure(self: _HasFigure) -> FigureName:
        """The figure's name."""
        return FigureName(self.suite, self.measure, self.where, getattr(self, "model", None))


#: The keys of report.json that are older than the names in the code. They are a public format and stay.
REPORT_KEYS: Mapping[str, str] = {
    "data_quality": "ledger",
    "is_subgroup": "detail",
    "minimum_detectable_effect": "detectable",
    "n_unpaired": "unmatched",
    "p_adjusted": "p_holm",
    "probability_mass": "coverage",
}


class Reported(BaseModel):
    """A frozen value with a JSON form, under the keys of report.json."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: REPORT_KEYS.get(name, name),
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class Measure(OfFigure, Reported):
    """A signed, named figure of one model.

    Attributes
    ----------
    id : str
        `FigureName.id`, the FIGURE-ID of ``audit show``. The same figure has the same id in every run.
    value : float or None
        The estimate from the items with a readable answer (the complete case). None when it is only bounded, or
        nothing could be read.
    low, high : float or None
        Confidence interval (clustered): what every decision rests on. For a bounded figure, or one with missing
        answers: from the interval of the lower bound to that of the upper bound. None with fewer than two clusters,
        or where one of them holds nearly all items.
    bound_low, bound_high : float or None
        Identification bounds of the estimate itself, without sampling error; a missing answer may be anything that
        the quantity can be. Equal to ``value`` when exact and complete.
    complete_case_low, complete_case_high : float or None
        Interval over the items with a readable answer alone, as if the missing ones were like them. None where none
        is missing: then it is ``low`` to ``high``.
    naive_low, naive_high : float or None
        The interval that takes every row as independent; for comparison only.
    p, p_adjusted : float or None
        Two-sided, that the value is ``neutral``, with the interval's standard error, whatever the missing answers
        would have been; and corrected over the model's figures of the suite by the rule of `audit.analysis.decisions`
        (``p_holm`` in report.json, an older name). None for correlations, and where there is no neutral value.
    levels : mapping of str to int
        How many levels of each sampled factor the figure rests on.
    contrast : bool
        As in `MeasureSpec`. No part of ``signature``: it is measured the same.
    undefined_strata : list
        Levels of the spec's stratum without rows, or without weight: the figure has no value then.
    missing : int
        Items without a readable answer. ``censored``: items known only by bounds.
    probability_mass : float or None
        Mean raw probability mass behind a normalised figure (its lower bound where bounded).
    signature : str
        ``key:value|key:value…``: all that reproduces the figure, the model apart.
    spec : MeasureSpec
        What the suite asked for. Its JSON leaves out what has the default value, the kind apart: without
        one it is of an older version.
    """

    id: str
    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    value: float | None
    low: float | None
    high: float | None
    bound_low: float | None
    bound_high: float | None
    naive_low: float | None
    naive_high: float | None
    n_items: int
    n_clusters: int
    missing: int
    censored: int
    probability_mass: float | None
    signature: str
    p: float | None = None
    p_adjusted: float | None = None
    complete_case_low: float | None = None
    complete_case_high: float | None = None
    levels: dict[str, int] = {}
    estimator: str = "mean"
    unit: str = "probability"
    neutral: float | None = None
    family: str = ""
    is_subgroup: bool = False
    contrast: bool = False
    undefined_strata: list[Scalar] = []
    spec: MeasureSpec

    @field_serializer("spec")
    def _without_defaults(self, spec: MeasureSpec) -> dict[str, Any]:
        values = ((field, getattr(spec, field.name)) for field in dataclasses.fields(spec))
        stored = {field.name: value for field, value in values if value != field.default or field.name == "kind"}
        if spec.weights is not None:  # pairs: the keys of a JSON object are text, and levels need not be
            stored["weights"] = list(spec.weights.items())
        return stored

    @field_validator("spec", mode="before")
    @classmethod
    def _from_stored(cls, spec: Any) -> Any:
        if not isinstance(spec, dict):
            return spec
        by_unit = {} if "kind" in spec else _quantity_by_unit(spec.get("unit", "probability"))
        weights = {} if spec.get("weights") is None else {"weights": dict(spec["weights"])}
        return {**spec, **by_unit, **weights}


Verdict = Literal["larger", "smaller", "equivalent", "inconclusive", "not comparable"]

#: Verdicts in words: of -0.3 and -0.05 many readers would call the first the larger effect.
VERDICT_WORDS: dict[Verdict, str] = {
    "larger": "higher",
    "smaller": "lower",
    "equivalent": "equivalent",
    "inconclusive": "inconclusive",
    "not comparable": "not comparable",
}


#: Why a question is open although more items of the same kind might not close it.
OpenBecause = Literal["too few clusters", "missing answers", "unpaired items"]


class Comparison(OfFigure, Reported):
    """One measure of two models, paired item by item, b minus a.

    Attributes
    ----------
    difference : float or None
        Over the ``n_items`` that both answered (the complete case); None where it is known only by bounds.
    low, high : float or None
        Interval at ``confidence``, without correction; whatever the ``n_missing`` answers would have been.
    bound_low, bound_high : float or None
        Identification bounds of the difference: an answer missing of either may be anything the quantity can be.
    complete_case_low, complete_case_high : float or None
        Interval over the items that both answered alone. None where no answer is missing.
    p, p_adjusted : float or None
        Two-sided, that there is no difference; and corrected over the suite, by Holm among the ``primary`` figures and
        for the false discovery rate among the others (``p_holm`` in report.json, an older name).
    decided_low, decided_high, decided_confidence : float or None
        The interval that decided, and its confidence after the correction: for "equivalent" that of the two
        one-sided tests, with room for clusters of a kind not seen; else that of the test for a difference.
    alike_within : float or None
        The smallest margin within which the two would be called equivalent.
    open_because : str or None
        Why nothing is claimed, where it is not for want of items.
    margin : float
        The user's equivalence margin.
    minimum_detectable_effect : float or None
        The smallest difference that this design finds with 80 % power.
    n_items : int
        Items that both answered. ``n_missing``: of which an answer is missing. ``n_unpaired``: that only one of the two
        has a value of, the other none by design; they are left out.
    levels : mapping of str to int
        How many levels of each sampled factor the items hold.
    population : str
        Over what the comparison generalises.
    undefined_for : list of str
        The models for which no item that both answered defines the figure; both of them where each is defined on
        other items, and none where they answered no item in common.
    engine_noise : float or None
        The largest difference of this figure between engines with the same weights.
    words : str
        All this in a few sentences.
    """

    suite: str
    measure: str
    where: dict[str, Scalar]
    a: str
    b: str
    difference: float | None
    low: float | None
    high: float | None
    bound_low: float | None
    bound_high: float | None
    p: float | None
    p_adjusted: float | None
    effect_size: float | None
    margin: float
    minimum_detectable_effect: float | None
    n_items: int
    n_clusters: int
    verdict: Verdict
    test: str
    family: str
    words: str = ""
    engine_noise: float | None = None
    is_subgroup: bool = False
    n_unpaired: int = 0
    undefined_for: list[str] = []
    confidence: float = 0.95
    primary: bool = False
    population: str = ""
    levels: dict[str, int] = {}
    n_missing: int = 0
    complete_case_low: float | None = None
    complete_case_high: float | None = None
    decided_low: float | None = None
    decided_high: float | None = None
    decided_confidence: float | None = None
    alike_within: float | None = None
    open_because: OpenBecause | None = None

    @property
    def missing_share(self) -> float:
        """Share of the items of which an answer is missing."""
        return self.n_missing / (self.n_items + self.n_missing) if self.n_missing else 0.0

    @property
    def within_noise(self) -> bool:
        """Whether a difference is known, and is no larger than what the same weights differ by on two engines."""
        return (
            self.engine_noise is not None and self.difference is not None and abs(self.difference) <= self.engine_noise
        )


#: How a measured figure stands to a printed one: the same to the last printed digit; not the same, but the printed one
#: lies in the measured interval; outside it; or there is nothing to compare.
Agreement = Literal["within rounding", "within the interval", "differs", "unknown"]


class Reproduction(OfFigure, Reported):
    """A figure measured on a paper's own model, beside the printed one. ``difference`` is measured minus printed.

    ``design_difference`` says how the two designs differ; empty where they do not.
    """

    suite: str
    measure: str
    where: dict[str, Scalar]
    model: str
    published_model: str
    printed: float
    difference: float | None
    agreement: Agreement
    design_difference: str = ""


class Rank(Reported):
    """A model's plausible ranks, 1 the highest. ``tied_with`` are the models not distinguishable from it."""

    model: str
    best: int
    worst: int
    tied_with: list[str]


class Ranking(OfFigure, Reported):
    """Models ordered by one measure, the highest value first. A model with an interval of ranks is a tie."""

    suite: str
    measure: str
    where: dict[str, Scalar]
    ranks: list[Rank]


class PromptDrift(Reported):
    """How one prompt's answers differ between two engines, b minus a.

    ``logprob`` is the mean over its continuations (nats), ``variation`` the total variation, and
    ``quantities`` the difference of each quantity of its row. None, or no entry: not exact on both.
    """

    item: str
    logprob: float | None
    variation: float | None
    quantities: dict[str, float]


class EngineDrift(Reported):
    """How the answers of the same weights differ between two engines, prompt by prompt. b minus a.

    Attributes
    ----------
    n_prompts, n_logprobs : int
        Prompts, and continuations of them, that both engines scored exactly.
    n_unpaired : int
        Continuations left out: one engine has no score, or only bounds.
    logprob_mean, logprob_mean_abs, logprob_max_abs : float or None
        Difference of a continuation's log-probability, nats.
    variation_mean, variation_max : float or None
        Total variation between the two engines' distributions over the prompt's continuations
        and everything else, in [0, 1].
    farthest : str or None
        The item with the largest total variation.
    quantities : mapping
        For each numeric quantity of the rows (P̃ of each group…): ``n``, ``mean``, ``mean_abs``
        and ``max_abs`` of its difference over items that are exact on both.
    prompts : list of PromptDrift
        Single prompts, to be drawn: all, or an even sample where they are many.
    """

    suite: str
    a: str
    b: str
    n_prompts: int
    n_logprobs: int
    n_unpaired: int
    logprob_mean: float | None
    logprob_mean_abs: float | None
    logprob_max_abs: float | None
    variation_mean: float | None
    variation_max: float | None
    farthest: str | None
    quantities: dict[str, dict[str, float]]
    prompts: list[PromptDrift] = []


class Rung(Reported):
    """A model as one suite asks it."""

    model: str
    suite: str

    def title_beside(self, other: Rung) -> str:
        """Its name beside another rung's: the model, or the suite where that is what differs."""
        return self.model if self.suite == other.suite else f"{self.model} ({self.suite})"


class ItemChange(Reported):
    """How one item's quantities change in a step, b minus a. No entry: not exact on both."""

    item: str
    factors: dict[str, Scalar]
    quantities: dict[str, float]


class AttributionStep(Reported):
    """What one change of a model, or of how it is asked, does: b minus a, item by item.

    Attributes
    ----------
    changes : list of str
        What differs: parts of the model (``adapter``, ``quantisation``…) or keys of the suite's signature
        (``prompt_format``). Empty where the two are only declared to be a step.
    engine : list of str
        Fields of the engine that differ as well; the step then holds the engines' noise too.
    comparisons : list of Comparison
        Each figure's change with its decision, corrected within this step alone.
    quantities : mapping
        As in `EngineDrift`: ``n``, ``mean``, ``mean_abs`` and ``max_abs`` of each quantity's change over items.
    items : list of ItemChange
        Single items: all, or an even sample where they are many.
    """

    a: Rung
    b: Rung
    changes: list[str]
    engine: list[str] = []
    comparisons: list[Comparison]
    quantities: dict[str, dict[str, float]]
    items: list[ItemChange] = []


class VarianceComponents(OfFigure, Reported):
    """Where the spread of a primary figure's items comes from, as variances; 0 or more.

    Attributes
    ----------
    against : str or None
        Of the differences ``model`` - ``against``, item by item; None: of the model's own values.
    factors, cross, sampling, in_figure, per_item
        As in `audit.analysis.components.Components`.
    engine : float or None
        What another engine changes in an item, where the model was asked on two.
    levels : mapping of str to int
        How many levels of each factor there are, and ``n_items`` items.
    generalisability : float or None
        Eρ² of the first factor: how far its levels' means would be the same with other levels of the others.
    """

    suite: str
    measure: str
    where: dict[str, Scalar]
    model: str
    against: str | None = None
    factors: dict[str, float]
    cross: float | None
    sampling: float | None
    in_figure: dict[str, float]
    per_item: float
    engine: float | None = None
    levels: dict[str, int]
    n_items: int
    generalisability: float | None


class ModelInfo(Reported):
    """A model as it was audited, and what asking it took.

    ``statements``: what its backend says first of its numbers; ``limits``: what cannot be known of them.
    """

    name: str
    backend: str
    fingerprint: dict[str, Scalar]
    fingerprint_id: str
    notes: dict[str, str]
    asked: int
    cached: int
    failed: int
    retried: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None
    statements: list[str] = []
    limits: list[str] = []


class SuiteInfo(Reported):
    """A suite as it was run: how many items, its signature, its layouts and published figures.

    ``text_tokens``: length in tokens of the suite's named texts, ``{text name: {model: tokens}}``.
    ``cautions``: what its options do to the figures.
    """

    name: str
    title: str
    n_items: int
    signature: dict[str, Any]
    tables: list[dict[str, Any]] = []
    charts: list[dict[str, Any]] = []
    published: list[dict[str, Any]] = []
    text_tokens: dict[str, dict[str, int]] = {}
    cautions: list[str] = []


class DataQuality(Reported):
    """How sound the answers of one model to one suite are.

    ``failures`` counts items without answer by reason; ``failures_by`` the same by the level of the
    suite's ``failures_factor`` (or its first stratum), to show whether the gaps themselves are biased.
    """

    model: str
    suite: str
    n_items: int
    answered: int
    failures: dict[str, int]
    failures_by: dict[str, int]
    censored: int
    merged: int
    straddled: int
    probability_mass: float | None


class SelfCheck(Reported):
    """What a run's own questions, asked a second time, say about one model's answers.

    Attributes
    ----------
    asked_again, unanswered, disagreed : int
        Questions with two answers; second questions without one; and pairs that the model's noise does not explain.
    rate_low, rate_high : float
        Interval of the rate of disagreeing pairs (Clopper and Pearson), at the run's confidence.
    foreign_at_most : float
        The largest share of all answers that may be another model's, given ``rate_high``.
    noise : float
        Nats by which scores of one model move: the largest move of an agreeing pair, or what the probe found.
    largest_move : float
        Nats by which any two answers to one question are apart.
    """

    model: str
    asked_again: int
    unanswered: int
    disagreed: int
    rate_low: float
    rate_high: float
    foreign_at_most: float
    noise: float
    largest_move: float


class Example(Reported):
    """An item shown behind figures: its prompt and raw answer.

    ``figures`` are the ids of the measures that rest on it.
    """

    model: str
    suite: str
    item_id: str
    factors: dict[str, Scalar]
    prompt: Any
    answer: Any
    figures: list[str] = []


class UntilDecided(Reported):
    """How a run ended that asks until its question is decided.

    Attributes
    ----------
    question
        What was to be decided: against a baseline, the limits, or how the models compare.
    decided : bool
        False: everything was asked, or the run was stopped, and the question is open.
    look, looks : int
        At which look the run ended, of how many planned.
    items, of_items : int
        Items asked of each model, of how many.
    confidence : float
        Level at which the run's statements hold together, wherever it ends. The result's own ``confidence``, that of
        its intervals, is higher: one look's share of the error.
    """

    question: Literal["baseline", "limits", "comparison"]
    decided: bool
    look: int
    looks: int
    items: int
    of_items: int
    confidence: float


class AuditResult(Reported):
    """The whole outcome of one run."""

    run_id: str
    title: str
    started: str
    finished: str
    complete: bool
    interrupted: bool
    seed: int
    limit: int | None
    confidence: float
    versions: dict[str, str]
    models: list[ModelInfo]
    suites: list[SuiteInfo]
    measures: list[Measure]
    comparisons: list[Comparison]
    data_quality: list[DataQuality]
    examples: list[Example] = []
    problems: list[str] = []
    rankings: list[Ranking] = []
    drift: list[EngineDrift] = []
    reproductions: list[Reproduction] = []
    self_checks: list[SelfCheck] = []
    ladder: list[AttributionStep] = []
    components: list[VarianceComponents] = []
    until: UntilDecided | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, data: Any) -> Any:
        return upgraded(data) if isinstance(data, dict) else data


# ------------------------------------------------------------------- results of older versions

#: Measures that older results name otherwise, by their suite.
RENAMED_MEASURES: Mapping[str, Mapping[str, str]] = {
    "DebiasingPositions": {
        "forgotten": "effect_attenuation",
        "forgotten_p_diverse": "effect_attenuation_p_diverse",
        "share_forgotten": "share_attenuated",
    }
}
#: What quantities were before suites declared it: it followed from their unit.
_BY_UNIT: Mapping[str, Mapping[str, Any]] = {
    "probability": {"kind": "probability"},
    "share": {"kind": "share"},
    "difference of probabilities": {"kind": "difference"},
    "difference of shares": {"kind": "difference", "is_count": True},
    "difference of bias scores": {"kind": "difference", "range": (-2.0, 2.0), "is_count": True},
    "difference of gaps": {"kind": "difference", "range": (-2.0, 2.0)},
    "difference of effects": {"kind": "difference", "range": (-4.0, 4.0)},
}
_RENAMED_ROW = re.compile("/forgotten$")  # the end of an id of their derived rows


def upgraded(result: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of a result that an older version stored, as this one would have stored it.

    Older measures have no ``spec``: it is read from their signature. Renamed measures get their new names, and with
    them new ids, so that a baseline from before is compared with a run of today.
    """
    measures = result.get("measures") or ()
    if not any(isinstance(measure, dict) and "spec" not in measure for measure in measures):
        return result
    try:
        names = {info["name"]: RENAMED_MEASURES.get(info["signature"].get("suite"), {}) for info in result["suites"]}
        newer = [_upgraded_measure(measure, names.get(measure["suite"], {})) for measure in measures]
        ids = {old["id"]: new["id"] for old, new in zip(measures, newer, strict=True)}
        return {
            **result,
            "measures": newer,
            "suites": [_renamed(info, names[info["name"]]) for info in result["suites"]],
            "comparisons": [_renamed(c, names.get(c["suite"], {})) for c in result["comparisons"]],
            "rankings": [_renamed(r, names.get(r["suite"], {})) for r in result.get("rankings", ())],
            "examples": [
                {**example, "figures": [ids.get(figure, figure) for figure in example["figures"]]}
                for example in result.get("examples", ())
            ],
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return result  # no result of an audit: the fields say what is wrong with it


def _quantity_by_unit(unit: str) -> Mapping[str, Any]:
    """Kind, range and counting of a quantity in a result of an older version."""
    return _BY_UNIT.get(unit, {"kind": "real"})


def _upgraded_measure(measure: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    parts = read_signature(measure["signature"])
    new = _renamed(measure, names)
    spec = MeasureSpec(
        measure=new["measure"],
        quantity=names.get(parts["quantity"], parts["quantity"]),
        where=new["where"],
        estimator=parts["estimator"],
        clusters=tuple(parts["clusters"]),
        covariate=parts["covariate"],
        probability_mass=parts["coverage"],
        is_subgroup=new.get("detail", False),
        **_quantity_by_unit(new.get("unit", "probability")),
        **{name: new[name] for name in ("unit", "neutral", "family", "contrast") if name in new},
    )
    if new["measure"] != measure["measure"]:
        new["id"] = FigureName(new["suite"], new["measure"], new["where"], new["model"]).id
        new["signature"] = write_signature(encode_parts(parts), spec)
    return {**new, "spec": spec}


def _renamed(value: Any, names: Mapping[str, str], under: str = "") -> Any:
    """A JSON value with every measure in it under its new name."""
    match value:
        case dict():
            return {key: _renamed(inner, names, key) for key, inner in value.items()}
        case list():
            return [_renamed(inner, names, under) for inner in value]
        case str() if under in ("measure", "measures"):
            return names.get(value, value)
        case str() if under == "family":  # a measure, and what else distinguishes the family
            measure, comma, rest = value.partition(",")
            return names.get(measure, measure) + comma + rest
    return value


def renamed_quantities(result: AuditResult) -> dict[str, Mapping[str, str]]:
    """By the names of a result's suites: today's names of quantities that its stored rows name otherwise."""
    return {info.name: RENAMED_MEASURES.get(info.signature.get("suite", ""), {}) for info in result.suites}


def renamed_row(row: Row, names: Mapping[str, str]) -> Row:
    """The row of an older store as it is derived today: its quantities under their new names, and its new id."""
    if not names:
        return row
    values = {names.get(name, name): value for name, value in row.values.items()}
    return dataclasses.replace(row, item_id=_RENAMED_ROW.sub("/attenuation", row.item_id), values=values)
