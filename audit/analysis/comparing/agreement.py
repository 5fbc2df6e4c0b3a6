"""How the primary figures of several suites rank the models of a store, and how far these rankings agree.

Spearman's ρ over models, for each two figures of different suites, as Kaneko et al. 2024 (Table 2) compare benchmarks.
Its interval is on Fisher's scale with Bonett and Wright's (2000) standard error for Spearman's coefficient,

    tanh(atanh ρ ± z √((1 + ρ²/2) / (n − 3)))

over new models of this kind. It takes the figures as measured: their own sampling error, which draws ρ towards 0, is
not in it. A perfect ρ has no such interval: its inner end is that of the largest coefficient below it that n ranks
without ties can have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field
from scipy import special

from audit.analysis.correlations import correlation
from audit.results import AuditResult, Measure, Reported, Scalar, where_key
from audit.signatures import EXTENT, signature_changes

#: Fewer models rank next to nothing: two figures without any relation agree perfectly in one of 24 orders of four.
FEWEST_MODELS = 5


class RankedFigure(Reported):
    """A primary figure and its value for each model that has one, from the model's latest run, on ``items`` items.

    A later run of fewer items of the same kind replaces none of more. ``left_out`` are models whose latest value was
    asked or computed otherwise than the latest of all.
    """

    suite: str
    measure: str
    where: dict[str, Scalar]
    unit: str
    values: dict[str, float]
    ranks: dict[str, float]
    items: dict[str, int] = Field(default_factory=dict)
    left_out: list[str] = Field(default_factory=list)


class RankCorrelation(Reported):
    """Spearman's ρ of two figures (places in `Agreement.figures`) over the models that have both.

    ``rho`` is None where a figure is the same for all models; ``low`` and ``high`` also with fewer models than
    `FEWEST_MODELS`.
    """

    a: int
    b: int
    n_models: int
    rho: float | None
    low: float | None
    high: float | None


class Agreement(Reported):
    """All primary figures of a store's models, and how each two of different suites agree."""

    models: list[str]
    figures: list[RankedFigure]
    correlations: list[RankCorrelation]
    confidence: float


def agreement(results: Iterable[AuditResult], confidence: float = 0.95) -> Agreement:
    """The agreement of the latest primary figures of each model.

    Parameters
    ----------
    results : iterable of AuditResult
        Oldest first: of one figure of one model, the last counts, or one before it of more items.
    """
    latest: dict[tuple[str, str, object], dict[str, Measure]] = {}
    for result in results:
        for measure in result.measures:
            if measure.spec.primary and not measure.is_subgroup:
                of_models = latest.setdefault((measure.suite, measure.measure, where_key(measure.where)), {})
                before = of_models.pop(measure.model, None)  # the latest of all stands last
                of_models[measure.model] = measure if before is None else _fuller(before, measure)
    figures = [_ranked(list(of_models.values())) for of_models in latest.values()]
    pairs = itertools.combinations(range(len(figures)), 2)
    return Agreement(
        models=list(dict.fromkeys(model for figure in figures for model in figure.values)),
        figures=figures,
        correlations=[_correlated(figures, a, b, confidence) for a, b in pairs if figures[a].suite != figures[b].suite],
        confidence=confidence,
    )


def _fuller(before: Measure, after: Measure) -> Measure:
    """The later figure, unless it is of fewer items asked in the same way."""
    alike = signature_changes(before.signature, after.signature).keys() <= EXTENT
    return before if alike and before.n_items > after.n_items else after


def _ranked(measures: Sequence[Measure]) -> RankedFigure:
    last = measures[-1]
    alike = [m for m in measures if signature_changes(m.signature, last.signature).keys() <= EXTENT]
    values = {m.model: m.value for m in alike if m.value is not None}
    return RankedFigure(
        suite=last.suite,
        measure=last.measure,
        where=last.where,
        unit=last.unit,
        values=values,
        items={m.model: m.n_items for m in alike if m.value is not None},
        ranks=dict(zip(values, ranks(list(values.values())), strict=True)),
        left_out=[m.model for m in measures if m not in alike],
    )


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, 1 for the largest; equal ones share the mean of their ranks."""
    ordered = sorted(values, reverse=True)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def _correlated(figures: Sequence[RankedFigure], a: int, b: int, confidence: float) -> RankCorrelation:
    shared = [model for model in figures[a].values if model in figures[b].values]
    x, y = ([figures[i].values[model] for model in shared] for i in (a, b))
    rho, low, high = spearman(x, y, confidence)
    return RankCorrelation(a=a, b=b, n_models=len(shared), rho=rho, low=low, high=high)


def spearman(
    x: Sequence[float], y: Sequence[float], confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Spearman's ρ of x and y (n,), and its interval; None where there is none."""
    n = len(x)
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None, None, None
    rho = correlation(np.array(ranks(x)), np.array(ranks(y)))
    if n < FEWEST_MODELS:
        return rho, None, None
    largest = 1 - 12 / (n**3 - n)  # two neighbours change places
    inner = max(-largest, min(largest, rho))
    reach = float(special.ndtri((1 + confidence) / 2)) * math.sqrt((1 + inner**2 / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(inner) + side * reach) for side in (-1, 1))
    return rho, -1.0 if rho < -largest else low, 1.0 if rho > largest else high
