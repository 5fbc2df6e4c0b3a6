"""Means of many figures at once: figures with the same clusters and strata are columns of one estimate.

A suite has hundreds of figures of few items each, and most of an estimate's cost is the same for one column as for
thirty. So a computation that needs a mean is a generator: it yields a `MeanOf`, and is sent the `Estimate`. `together`
runs many of them concurrently and computes their means in as few estimates as possible.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from audit.analysis.estimators.clusters import Strata, blocks, gathered, renumbered
from audit.analysis.estimators.estimate import Codes, Estimate, Floats
from audit.analysis.estimators.kinds import ValueKind, mean_of_kind
from audit.analysis.estimators.probabilities import inside_of_range
from audit.spool import scratch

T = TypeVar("T")

#: Columns per estimate: more do not fit a processor's cache, whatever their length.
_MOST_COLUMNS = 32
#: Maximum number of values waiting to be estimated.
_MOST_VALUES = 2_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The clusters and strata of the items (n,) of a mean.

    Attributes
    ----------
    clusters : tuple of arrays (n,)
        Codes of each cluster factor, numbered by first occurrence, so that the names of the levels do not matter.
    strata : Strata or None
        As for `clustered_mean`.
    belongs : array (n, G) or None
        As for `with_memberships`.
    key : bytes
        A hash of the others: equal for equal layouts.
    """

    clusters: tuple[Codes, ...]
    strata: Strata | None
    belongs: Floats | None
    key: bytes

    @classmethod
    def of(cls, n: int, clusters: Sequence[Codes], strata: Strata | None, belongs: Floats | None = None) -> Layout:
        """The layout of ``n`` items."""
        coded = tuple(map(_as_they_occur, clusters))
        parts = [] if strata is None else [strata.codes, strata.weights]
        levels = [] if belongs is None else [belongs]
        digest = hashlib.sha256(f"{n} {len(parts)} {'' if belongs is None else belongs.shape[1]}".encode())
        for part in (*coded, *parts, *levels):
            digest.update(f"/{part.size}/".encode())
            digest.update(np.ascontiguousarray(part).data)
        return cls(coded, strata, belongs, digest.digest())

    @property
    def size(self) -> int:
        """Its bytes in memory."""
        strata = () if self.strata is None else (self.strata.codes,)
        belongs = () if self.belongs is None else (self.belongs,)
        return sum(part.nbytes for part in (*self.clusters, *strata, *belongs))


class MeanOf(NamedTuple):
    """A request for the means of columns (n, k), as in `mean_of_kind`."""

    columns: Floats
    layout: Layout
    kind: ValueKind

    def group(self) -> tuple[object, ...]:
        """Equal for requests that can share an estimate."""
        kind, inside = self.kind, b""
        if kind.is_probability:  # rows at 0 or 1 in any column are outside the model
            rows = inside_of_range(self.columns)
            inside = b"" if rows.all() else hashlib.sha256(rows.data).digest()
        return self.layout.key, replace(kind, is_count=False), kind.holds(self.columns), inside


def together(computations: Iterable[Generator[MeanOf, Estimate, T]]) -> list[T]:
    """The results of the computations, in order."""
    waiting = iter(computations)
    results: list[T] = []
    while (first := next(waiting, None)) is not None:
        results += _side_by_side(itertools.chain([first], waiting))
    return results


def _side_by_side(waiting: Iterator[Generator[MeanOf, Estimate, T]]) -> list[T]:
    """Run as many of the next computations as fit, and return their results."""
    results: dict[int, T] = {}
    asked: list[tuple[int, Generator[MeanOf, Estimate, T], MeanOf]] = []
    size = 0
    for number, computation in enumerate(waiting):
        try:
            asked.append((number, computation, next(computation)))
            size += asked[-1][2].columns.size
        except StopIteration as end:
            results[number] = end.value
        if size > _MOST_VALUES:
            break
    while asked:
        estimates = _means([request for _, _, request in asked])
        running, asked = asked, []
        for (number, computation, _), estimate in zip(running, estimates, strict=True):
            try:
                asked.append((number, computation, computation.send(estimate)))
            except StopIteration as end:
                results[number] = end.value
    return [results[number] for number in range(len(results))]


def _means(requests: Sequence[MeanOf]) -> list[Estimate]:
    """The estimate that each request asks for."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(request.group(), []).append(place)
    found: dict[int, Estimate] = {}
    for places in groups.values():
        for some in _batches(places, [requests[place].columns.shape[1] for place in places]):
            found.update(zip(some, _one_estimate([requests[place] for place in some]), strict=True))
    return [found[place] for place in range(len(requests))]


def _batches(places: Sequence[int], widths: Sequence[int]) -> Iterator[list[int]]:
    """The places in groups with a total width of at most `_MOST_COLUMNS`; a wider one forms its own group."""
    batch: list[int] = []
    total = 0
    for place, width in zip(places, widths, strict=True):
        if batch and total + width > _MOST_COLUMNS:
            yield batch
            batch, total = [], 0
        batch.append(place)
        total += width
    yield batch


def _one_estimate(requests: Sequence[MeanOf]) -> Iterator[Estimate]:
    """Estimates of requests of one group."""
    layout, kind = requests[0].layout, requests[0].kind
    is_count = np.concatenate([np.broadcast_to(r.kind.is_count, r.columns.shape[1]) for r in requests])
    columns = requests[0].columns if len(requests) == 1 else _beside([r.columns for r in requests])
    estimate = mean_of_kind(columns, layout.clusters, replace(kind, is_count=is_count), layout.strata, layout.belongs)
    ends = np.cumsum([r.columns.shape[1] for r in requests]).tolist()
    for start, end in itertools.pairwise([0, *ends]):
        yield estimate.part(slice(start, end))


def _beside(parts: Sequence[Floats]) -> Floats:
    """Columns (n, k) of several arrays as one."""
    widths = np.cumsum([part.shape[1] for part in parts]).tolist()
    columns = scratch((len(parts[0]), widths[-1]), np.float64)
    for part, start, end in zip(parts, [0, *widths], widths, strict=False):
        columns[:, start:end] = part
    return columns


def _as_they_occur(codes: Codes) -> Codes:
    """Codes (n,) renumbered by each level's first occurrence."""
    own, levels = renumbered(codes)
    first = np.full(levels, len(own))
    for rows in blocks(len(own)):
        occurring, at = np.unique(own[rows], return_index=True)
        first[occurring] = np.minimum(first[occurring], rows.start + at)
    number = np.empty(levels, dtype=np.intp)
    number[np.argsort(first)] = np.arange(levels)
    if (number == np.arange(levels)).all():
        return own
    return gathered(len(own), lambda rows: number[own[rows]], np.intp)
