"""The project's intervals for the samples of `coverage`: through the functions that every figure comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import Estimate
from audit.analysis.estimators.means import clustered_mean
from audit.analysis.estimators.probabilities import mean_probability
from audit.analysis.estimators.shares import mean_share

Floats = NDArray[np.float64]


def crossed(occupations: int, templates: int) -> Design:
    """The design of one sample of a mean, its items in order of occupations. One template stands for itself."""
    codes = np.indices((occupations, templates)).reshape(2, -1)
    return Design(codes.shape[1], {"occupation": codes[0], "template": codes[1]})


def grouped(groups: tuple[int, int], templates: int) -> Design:
    """The design of one sample of a gap: twice the mean of the first group and minus the second."""
    occupations, template = np.indices((sum(groups), templates)).reshape(2, -1)
    strata = (occupations >= groups[0]).astype(np.intp)
    clusters = {"occupation": occupations, "template": template}
    return Design(len(occupations), clusters, strata, np.array([0.5, 0.5]))


def of_means(estimate: Callable[[Floats, Design], Estimate]) -> Callable[[Any, float], tuple[Floats, Floats]]:
    """Intervals of the means of samples (samples, occupations, templates)."""

    def intervals(samples: Floats, confidence: float) -> tuple[Floats, Floats]:
        design = crossed(*samples.shape[1:])
        return ends(estimate(values, design).interval(confidence) for values in samples.reshape(len(samples), -1))

    return intervals


def of_gaps(samples: Any, confidence: float) -> tuple[Floats, Floats]:
    """Intervals of the gaps between two groups (samples, occupations, templates)."""
    first, second = samples
    design = grouped((first.shape[1], second.shape[1]), first.shape[2])
    values = np.concatenate([2 * first, -2 * second], axis=1).reshape(len(first), -1)
    return ends(clustered_mean(of_sample, design).interval(confidence) for of_sample in values)


def ends(intervals: Any) -> tuple[Floats, Floats]:
    """Lower and upper ends (samples,)."""
    low, high = np.array(list(intervals)).T
    return low, high


INTERVALS: dict[str, Callable[[Any, float], tuple[Floats, Floats]]] = {
    "probability": of_means(mean_probability),
    "share": of_means(mean_share),
    "gap": of_gaps,
}
