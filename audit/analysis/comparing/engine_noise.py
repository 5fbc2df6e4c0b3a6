"""Engine noise: differences between several ways of running the same model.

Transformers and llama.cpp, float32 and bfloat16, in process and behind a server do not give the same numbers. These
differences are not a property of the model, so a difference between two models that is no larger is flagged. A change
of the model itself (adapter, quantisation, template) is never noise: see `comparing.attribution`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from audit.analysis.table import Floats, Table, aligned
from audit.results import Comparison, EngineDrift, FigureKey

T = TypeVar("T")


def with_engine_noise(
    comparisons: Sequence[Comparison],
    pairs: Collection[tuple[str, str]],
    lineage: Collection[frozenset[str]] = (),
) -> list[Comparison]:
    """Add the engine noise of their figure to comparisons of unrelated models.

    The noise of a figure is the largest difference of one model between any two engines (the larger bound, if only
    bounds are known). It is set for all other pairs of models, except those of ``lineage``: a derived model differs by
    a real change, which the attribution ladder shows.
    """
    engines = {frozenset(pair) for pair in pairs}
    noise: dict[FigureKey, float] = {}
    for c in comparisons:
        if frozenset((c.a, c.b)) in engines and c.bound_low is not None and c.bound_high is not None:
            key = c.figure.key
            noise[key] = max(noise.get(key, 0.0), abs(c.bound_low), abs(c.bound_high))
    return [
        c
        if frozenset((c.a, c.b)) in engines or frozenset((c.a, c.b)) in lineage or c.figure.key not in noise
        else c.model_copy(update={"engine_noise": noise[c.figure.key]})
        for c in comparisons
    ]


def engine_drift(
    suite: str,
    a: str,
    b: str,
    logprobs_a: Mapping[str, Floats],
    logprobs_b: Mapping[str, Floats],
    table_a: Table,
    table_b: Table,
) -> EngineDrift:
    """Differences of one suite's answers between two engines, b minus a.

    Parameters
    ----------
    logprobs_a, logprobs_b : mapping of str to array (k,)
        Log-probabilities of each item's continuations (nats), the same ones in the same order on both; NaN if not
        exact.
    table_a, table_b : Table
        The rows that the suite read from them.

    Raises
    ------
    ValueError
        If the engines scored different numbers of continuations of an item.
    """
    gaps: list[Floats] = []
    n_unpaired = 0
    for item in dict.fromkeys((*logprobs_b, *logprobs_a)):
        of_a, of_b = logprobs_a.get(item), logprobs_b.get(item)
        if of_a is None or of_b is None:
            n_unpaired += len(of_a if of_b is None else of_b)  # type: ignore[arg-type]
            continue
        if len(of_a) != len(of_b):
            raise ValueError(f"item {item!r}: {len(of_a)} continuations on {a}, {len(of_b)} on {b}")
        both = np.isfinite(of_a) & np.isfinite(of_b)
        n_unpaired += int((~both).sum())
        if both.any():
            gaps.append(of_b[both] - of_a[both])
    every = _summarised(np.concatenate(gaps)) if gaps else {}
    _, of_quantities = quantity_gaps(table_a, table_b, table_a.named("value"))
    return EngineDrift(
        suite=suite,
        a=a,
        b=b,
        n_prompts=len(gaps),
        n_logprobs=int(every.get("n", 0)),
        n_unpaired=n_unpaired,
        logprob_mean=every.get("mean"),
        logprob_mean_abs=every.get("mean_abs"),
        logprob_max_abs=every.get("max_abs"),
        quantities={name: _summarised(gap[np.isfinite(gap)]) for name, gap in of_quantities.items()},
    )


def quantity_gaps(a: Table, b: Table, names: Iterable[str]) -> tuple[Mapping[str, int], dict[str, Floats]]:
    """Positions of the items, and the differences of each quantity by position, NaN unless exact on both."""
    ours, theirs = aligned([a, b])
    gaps = {name: theirs.quantity(name).value - ours.quantity(name).value for name in names}
    return ours.index, {name: gap for name, gap in gaps.items() if np.isfinite(gap).any()}


def _summarised(gap: Floats) -> dict[str, float]:
    """Number, mean, mean absolute value and largest absolute value of one or more differences (n,)."""
    return {
        "n": float(gap.size),
        "mean": float(gap.mean()),
        "mean_abs": float(np.abs(gap).mean()),
        "max_abs": float(np.abs(gap).max()),
    }


def evenly_spread(values: Sequence[T], most: int) -> list[T]:
    """At most ``most`` of the values, evenly spaced in their order."""
    if len(values) <= most:
        return list(values)
    return [values[i * len(values) // most] for i in range(most)]
