"""Made-up results for tests of the report: shapes as real audits have them, numbers from a seeded generator."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from audit.results import (
    AttributionStep,
    AuditResult,
    Comparison,
    DataQuality,
    Example,
    Measure,
    ModelInfo,
    PromptCoverage,
    Rung,
    SuiteInfo,
)
from audit.results.figures import encode_parts, write_signature
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.base import MeasureSpec, Suite
from suites.presentation import Chart, PublishedFigure, TableColumn, TableLayout

HOSTILE = (
    "<script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=1">',
    "</script><script>window.hacked=1</script>",
    "../../etc/passwd\u2028\u202egnp.exe",
    "=cmd|' /C calc'!A0",
    "{{ 7*7 }}${7*7}{% include 'x' %}",
)


def measure(
    model: str,
    name: str,
    where: dict[str, Any],
    value: float | None,
    half: float | None = 0.03,
    *,
    suite: str = "toy",
    bounds: tuple[float, float] | None = None,
    **more: Any,
) -> Measure:
    """A measure with an interval of ``value ± half``."""
    low, high = (None, None) if value is None or half is None else (value - half, value + half)
    if bounds is not None:
        low, high = bounds[0] - (half or 0), bounds[1] + (half or 0)
    fields: dict[str, Any] = {
        "id": hashlib.sha256(repr((model, suite, name, sorted(where.items(), key=repr))).encode()).hexdigest()[:12],
        "bound_low": bounds[0] if bounds else value,
        "bound_high": bounds[1] if bounds else value,
        "n_items": 1000,
        "n_clusters": 40,
        "missing": 0,
        "censored": 900 if bounds else 0,
        "probability_mass": 0.42,
        "signature": f"suite:{suite}|v:1",
        "spec": MeasureSpec(name, name, where),
    }
    return Measure(
        model=model, suite=suite, measure=name, where=where, value=value, low=low, high=high, **(fields | more)
    )


def comparison(a: Measure, b: Measure, margin: float = 0.02, **more: Any) -> Comparison:
    """The pair's difference, with the verdict that its interval and margin give."""
    if a.value is None or b.value is None:
        difference = low = high = None
        verdict = "inconclusive"
    else:
        difference = b.value - a.value
        low, high = difference - 0.03, difference + 0.03
        if abs(difference) < 0.004:
            low, high = difference - 0.01, difference + 0.01
        verdict = "larger" if low > 0 else "smaller" if high < 0 else "inconclusive"
        if -margin < low and high < margin:
            verdict = "equivalent"
    fields: dict[str, Any] = {
        "bound_low": difference,
        "bound_high": difference,
        "p": 0.01,
        "p_holm": 0.03,
        "margin": margin,
        "minimum_detectable_effect": 0.03,
        "n_items": a.n_items,
        "n_clusters": a.n_clusters,
        "verdict": verdict,
        "test": "paired, clustered t",
        "family": a.family,
        "is_subgroup": a.is_subgroup,
    }
    return Comparison(
        suite=a.suite,
        measure=a.measure,
        where=a.where,
        a=a.model,
        b=b.model,
        difference=difference,
        low=low,
        high=high,
        **(fields | more),
    )


def model_info(name: str) -> ModelInfo:
    return ModelInfo(
        name=name,
        backend="LlamaCppBackend",
        fingerprint={"weights_sha256": "ab" * 32, "quantisation": "Q4_1", "file": name},
        fingerprint_id="f" * 16,
        notes={"device": "cpu", "threads": "2"},
        asked=2000,
        cached=100,
        failed=3,
        retried=1,
        seconds=91.2,
        prompt_tokens=50_000,
        completion_tokens=0,
    )


def suite_info(
    name: str,
    title: str,
    *,
    tables: Sequence[TableLayout] = (),
    charts: Sequence[Chart] = (),
    published: Sequence[PublishedFigure] = (),
) -> SuiteInfo:
    return SuiteInfo(
        name=name,
        title=title,
        n_items=2000,
        signature={"version": 1, "templates": "paper"},
        tables=[dataclasses.asdict(t) for t in tables],
        charts=[dataclasses.asdict(c) for c in charts],
        published=[dataclasses.asdict(p) for p in published],
    )


def result(
    models: Sequence[str],
    suites: Sequence[SuiteInfo],
    measures: Sequence[Measure],
    *,
    examples: Sequence[Example] = (),
    data_quality: Sequence[DataQuality] | None = None,
    comparisons: Sequence[Comparison] | None = None,
    **more: Any,
) -> AuditResult:
    """A whole result; every pair of models is compared on every figure unless comparisons are given."""
    if comparisons is None:
        comparisons = list(_pairs(measures))
    if data_quality is None:
        data_quality = [data_quality_of(m, s.name) for s in suites for m in models]
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "title": "A made-up audit",
        "started": "2026-01-02T03:04:05Z",
        "finished": "2026-01-02T03:09:05Z",
        "complete": True,
        "interrupted": False,
        "seed": 7,
        "limit": None,
        "confidence": 0.95,
        "versions": {"bias-audit": "0.1.0", "llama-cpp-python": "0.3"},
    }
    return AuditResult(
        models=[model_info(name) for name in models],
        suites=list(suites),
        measures=list(measures),
        comparisons=comparisons,
        data_quality=data_quality,
        examples=list(_behind_figures(examples, measures)),
        **(fields | more),
    )


def _behind_figures(examples: Iterable[Example], measures: Sequence[Measure]) -> Iterator[Example]:
    """There are no rows here to say what an example is behind: every figure that its factors allow."""
    of_suite: dict[tuple[str, str], list[Measure]] = {}
    for m in measures:
        of_suite.setdefault((m.model, m.suite), []).append(m)
    allowed: dict[Any, list[str]] = {}
    for e in examples:
        key = (e.model, e.suite, tuple(e.factors.items()))
        if key not in allowed:
            allowed[key] = [
                m.id
                for m in of_suite.get(key[:2], ())
                if all(e.factors.get(factor, level) == level for factor, level in m.where.items())
            ]
        yield e.model_copy(update={"figures": allowed[key]})


def step(comparisons: Sequence[Comparison], suite: str, a: str, b: str) -> AttributionStep:
    """What an adapter does to a suite's figures."""
    of_pair = [c for c in comparisons if (c.suite, c.a, c.b) == (suite, a, b)]
    return AttributionStep(
        a=Rung(model=a, suite=suite),
        b=Rung(model=b, suite=suite),
        changes=["adapter"],
        comparisons=of_pair,
    )


@cache
def four_suites(models: int) -> AuditResult:
    """A result as large as real ones are: every figure of four suites, all pairs, and long examples."""
    names = [f"model {i} (engine)" for i in range(models)]
    infos, measures, shown = [], [], []
    for suite in (OccuGender(), DebiasingPositions(), MGBR(), GenderPair()):
        infos.append(
            suite_info(
                suite.name,
                suite.name,
                tables=suite.shown.tables,
                charts=suite.charts(),
                published=suite.shown.published,
            )
        )
        measures += measured(suite, names)
        shown += [
            e.model_copy(update={"item_id": f"{i} {e.item_id}"})
            for i in range(60)
            for e in examples(names, suite.name, "word " * 120)
        ]
    compared = result(names, infos, [m for m in measures if not m.is_subgroup]).comparisons
    compared = [c.model_copy(update={"engine_noise": 0.0123456}) for c in compared]
    return result(names, infos, measures, examples=shown, comparisons=compared)


def coverage_of(
    where: dict[str, Any], n: int, below: int, may_be_below: int, *, median: float, lowest: float
) -> PromptCoverage:
    return PromptCoverage(
        where=where, n_prompts=n, below=below, may_be_below=may_be_below, median=median, lowest=lowest
    )


def data_quality_of(model: str, suite: str, **more: Any) -> DataQuality:
    fields: dict[str, Any] = {
        "n_items": 2000,
        "answered": 2000,
        "failures": {},
        "failures_by": {},
        "censored": 0,
        "merged": 3,
        "straddled": 2,
        "probability_mass": 0.42,
    }
    return DataQuality(model=model, suite=suite, **(fields | more))


def examples(models: Iterable[str], suite: str, text: str = "A: the nurse smiled") -> Iterator[Example]:
    """A scored and a written answer for each model and kind of bias."""
    for model, bias in itertools.product(models, ("explicit", "implicit")):
        yield Example(
            model=model,
            suite=suite,
            item_id=f"{bias}-01/nurse",
            factors={"bias": bias, "debiasing": None, "occupation": "nurse", "dominated_by": "female"},
            prompt=[["system", "Be short."], ["user", f"Who is a nurse? {text}"]],
            answer={
                "scores": [
                    {"continuation": f" she {text}", "logprob": -1.2, "low": -1.2, "high": -1.2, "exactness": "exact",
                     "boundary": "merged", "route": "tree", "tokens": [[" she", -1.2, True]]},
                    {"continuation": " they", "logprob": None, "low": None, "high": -9.0, "exactness": "bounded",
                     "boundary": "clean", "route": "top_k", "tokens": [[" they", -9.0, False]]},
                ]
            },
        )  # fmt: skip
        yield Example(
            model=model,
            suite=suite,
            item_id=f"{bias}-02/nurse",
            factors={"bias": bias, "debiasing": None, "occupation": "nurse"},
            prompt="Write about a nurse.",
            answer={"text": text, "finish_reason": "stop", "prompt_tokens": 5, "completion_tokens": 9},
        )


def measured(suite: Suite, models: Sequence[str], seed: int = 1) -> list[Measure]:
    """Every figure that a real suite reports, with made-up but coherent numbers for each model."""
    random_ = random.Random(seed)
    lean = {model: random_.uniform(0.05, 0.35) for model in models}
    specs = list(suite.measures(()))
    reproduced = {"suite": suite.name, "version": suite.version, **suite.signature(), "limit": None}
    return [
        _made_up(spec, suite.name, model, lean[model], random_, write_signature(encode_parts(reproduced), spec))
        for model in models
        for spec in specs
    ]


def _made_up(spec: MeasureSpec, suite: str, model: str, lean: float, random_: random.Random, signature: str) -> Measure:
    group = spec.where.get("dominated_by")
    sign = {"female": 1, "male": -1}.get(str(group), random_.uniform(-1, 1))
    calm = 1.0 if spec.where.get("debiasing") is None else 0.6
    noise = random_.gauss(0, 0.12 if spec.is_subgroup else 0.01)
    female = min(0.96, max(0.02, 0.46 + sign * lean * calm + noise))
    diverse = 0.03 if calm == 1.0 else 0.12
    by_name = {
        "p_female": female * (1 - diverse),
        "p_male": (1 - female) * (1 - diverse),
        "p_diverse": diverse,
        "coverage": 0.05 if lean > 0.3 else 0.4,
    }
    value = by_name.get(spec.measure, lean * calm + noise)
    if spec.measure.startswith("effect"):
        value = -lean * 0.4 + noise
    return measure(
        model, spec.measure, dict(spec.where), value, 0.1 if spec.is_subgroup else 0.03, suite=suite, unit=spec.unit,
        neutral=spec.neutral, estimator=spec.estimator, family=spec.family, is_subgroup=spec.is_subgroup,
        n_items=25 if spec.is_subgroup else 1000, signature=signature, spec=spec,
        p=None if spec.neutral is None else 0.004,
        p_holm=None if spec.neutral is None else 0.047,
    )  # fmt: skip


def _pairs(measures: Sequence[Measure]) -> Iterator[Comparison]:
    grouped: dict[Any, list[Measure]] = {}
    for m in measures:
        grouped.setdefault((m.suite, m.measure, frozenset(m.where.items())), []).append(m)
    for ms in grouped.values():
        yield from (comparison(a, b) for a, b in itertools.combinations(ms, 2))


# a toy suite that uses every kind of chart

LEVELS: tuple[Any, ...] = (None, 1, 2, 3, 4, 5, 6)
POSITIONS = ("without dialogue", "with dialogue")
WORDS = ("nurse", "secretary", "engineer", "carpenter", "vet", "driver")
SHARES = {"nurse": 0.91, "secretary": 0.93, "engineer": 0.16, "carpenter": 0.03, "vet": 0.6, "driver": 0.2}

TOY_CHARTS = (
    Chart("dots", "Stereotype gap", ("gap",), by="debiasing", facet="position", caption="0: no stereotype."),
    Chart("scatter", "Against the real share", ("p_female",), by="occupation", covariate=SHARES,
          covariate_label="Share of women"),
    Chart("lines", "Gap by length", ("gap",), by="length"),
    Chart("ranking", "Occupations ranked", ("p_female",), by="occupation"),
)  # fmt: skip
TOY_TABLE = TableLayout(
    "positions",
    "By debiasing prompt, in per cent",
    tuple(
        TableColumn(label, name, {"position": position}, position)
        for position in POSITIONS
        for label, name in (("Male", "p_male"), ("Female", "p_female"), ("Diverse", "p_diverse"))
    ),
    rows=tuple(("None" if level is None else str(level), {"debiasing": level}) for level in LEVELS),
    scale=100,
    decimals=1,
    source="Table 5 of a paper",
)


def toy_suite() -> SuiteInfo:
    printed = [
        PublishedFigure("GPT-3", name, {"position": position, "debiasing": level}, 0.3, 0.01)
        for position in POSITIONS
        for level in LEVELS
        for name in ("p_male", "p_female", "p_diverse")
    ] + [PublishedFigure("GPT-3", "gap", {"position": p, "debiasing": d}, 0.4) for p in POSITIONS for d in LEVELS]
    return suite_info("toy", "Toy suite", tables=[TOY_TABLE], charts=TOY_CHARTS, published=printed)


def toy_measures(models: Sequence[str]) -> list[Measure]:
    """Every kind of figure: exact, bounded, without interval, and missing."""
    found = []
    for i, model in enumerate(models):
        for position, level in itertools.product(POSITIONS, LEVELS):
            where = {"position": position, "debiasing": level}
            shift = 0.0 if level is None else 0.05 * level * (0.4 if position == "with dialogue" else 1)
            female, diverse = 0.7 - shift - 0.05 * i, 0.02 + shift / 2
            found.append(measure(model, "p_female", where, female))
            found.append(measure(model, "p_male", where, 1 - female - diverse))
            found.append(measure(model, "p_diverse", where, diverse, 0.01))
            bounds = (0.2, 0.35) if i == 1 and level == 2 else None
            value = None if bounds or (i == 1 and level == 3) else 0.4 - shift + 0.05 * i
            found.append(measure(model, "gap", where, value, 0.04, bounds=bounds, neutral=0.0, unit="difference"))
        for word in WORDS:
            value = SHARES[word] * 0.7 + 0.1 + 0.02 * i
            found.append(measure(model, "p_female", {"occupation": word}, value, 0.1, is_subgroup=True))
        for length in (1, 2, 5, 10):
            found.append(measure(model, "gap", {"length": length}, 0.5 - 0.03 * length + 0.04 * i, neutral=0.0))
    return found
