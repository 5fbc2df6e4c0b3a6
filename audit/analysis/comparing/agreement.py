"""How the primary figures of several suites rank the models of a store, and how far these rankings agree.

Spearman's ρ over models, for every two figures of different suites, as Kaneko et al. 2024 (Table 2) compare benchmarks.
Its interval uses Fisher's scale with Bonett and Wright's (2000) standard error for Spearman's coefficient,

    tanh(atanh ρ ± z √((1 + ρ²/2) / (n − 3)))

and generalises to new models of this kind. It ignores the sampling error of the figures themselves, which biases ρ
towards 0. A perfect ρ has no such interval: its inner end is that of the next smaller coefficient possible with n
untied ranks.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field
from scipy import stats

from audit.results import AuditResult, Measure, Reported
from audit.results.figures import EXTENT, OfFigure, signature_changes

#: With fewer models a ranking says next to nothing: two unrelated figures rank four models the same in 1 of 24 cases.
FEWEST_MODELS = 5
#: Of a fingerprint, beside a label that several models have.
_DIGITS = 12


class RankedFigure(OfFigure):
    """A primary figure and its value for each model that has one, from the model's latest run, on ``items`` items.

    A later run on fewer items of the same kind does not replace one on more. ``left_out`` are models whose latest value
    was asked or computed differently from the latest of all.
    """

    unit: str
    values: dict[str, float]
    ranks: dict[str, float]
    items: dict[str, int] = Field(default_factory=dict)
    left_out: list[str] = Field(default_factory=list)


class RankCorrelation(Reported):
    """Spearman's ρ of two figures (indices in `Agreement.figures`) over the models that have both.

    ``rho`` is None if a figure is the same for all models; ``low`` and ``high`` also with fewer than `FEWEST_MODELS`
    models.
    """

    a: int
    b: int
    n_models: int
    rho: float | None
    low: float | None
    high: float | None


class Agreement(Reported):
    """All primary figures of a store's models, and the correlations of those of different suites."""

    models: list[str]
    figures: list[RankedFigure]
    correlations: list[RankCorrelation]
    confidence: float


def agreement(results: Iterable[AuditResult], confidence: float = 0.95) -> Agreement:
    """The agreement of the latest primary figures of each model.

    A model is what its fingerprint identifies: two under one label are two, one under two labels is one. ``results``:
    oldest first; for each figure and model the last one counts, or an earlier one on more items.
    """
    latest: dict[object, dict[str, Measure]] = {}
    labels: dict[str, str] = {}
    for result in results:
        fingerprints = {model.name: model.fingerprint_id for model in result.models}
        labels |= {fingerprint: name for name, fingerprint in fingerprints.items()}
        for measure in (m for m in result.measures if m.spec.primary and not m.is_subgroup):
            of_models = latest.setdefault(measure.figure.key[1:], {})
            model = fingerprints[measure.model]
            before = of_models.pop(model, measure)  # so that the latest of all comes last
            is_smaller = _is_alike(before, measure) and before.n_items > measure.n_items
            of_models[model] = before if is_smaller else measure
    times = Counter(labels.values())
    names = {of: name if times[name] == 1 else f"{name} ({of[:_DIGITS]})" for of, name in labels.items()}
    figures = [_ranked({names[model]: measure for model, measure in of.items()}) for of in latest.values()]
    correlations = []
    for (a, one), (b, other) in itertools.combinations(enumerate(figures), 2):
        if one.suite != other.suite:
            both = [model for model in one.values if model in other.values]
            x, y = ([of.values[model] for model in both] for of in (one, other))
            rho, low, high = spearman(x, y, confidence)
            correlations.append(RankCorrelation(a=a, b=b, n_models=len(both), rho=rho, low=low, high=high))
    models = list(dict.fromkeys(model for figure in figures for model in figure.values))
    return Agreement(models=models, figures=figures, correlations=correlations, confidence=confidence)


def _is_alike(one: Measure, other: Measure) -> bool:
    """Whether two figures were asked and computed the same way, if not on as many items."""
    return signature_changes(one.signature, other.signature).keys() <= EXTENT


def _ranked(measures: Mapping[str, Measure]) -> RankedFigure:
    *_, last = measures.values()
    alike = {model: measure for model, measure in measures.items() if _is_alike(measure, last)}
    values = {model: measure.value for model, measure in alike.items() if measure.value is not None}
    ranks = stats.rankdata([-value for value in values.values()]).tolist()  # ties get the mean of their ranks
    return RankedFigure(
        **last.model_dump(include={"suite", "measure", "where", "unit"}),
        values=values,
        items={model: alike[model].n_items for model in values},
        ranks=dict(zip(values, ranks, strict=True)),
        left_out=[model for model in measures if model not in alike],
    )


def spearman(
    x: Sequence[float], y: Sequence[float], confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Spearman's ρ of x and y (n,), and its interval; None if undefined."""
    n = len(x)
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None, None, None
    rho = float(stats.spearmanr(x, y).statistic)
    if n < FEWEST_MODELS:
        return rho, None, None
    largest = 1 - 12 / (n**3 - n)  # with two neighbours swapped
    inner = max(-largest, min(largest, rho))
    reach = float(stats.norm.ppf((1 + confidence) / 2)) * math.sqrt((1 + inner**2 / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(inner) + side * reach) for side in (-1, 1))
    return rho, -1.0 if rho < -largest else low, 1.0 if rho > largest else high
