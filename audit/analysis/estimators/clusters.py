"""Levels of cluster factors and strata: codes, nesting of factors, and sums and means by level."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from audit.analysis.estimators.estimate import Codes, Floats
from audit.spool import scratch

#: The largest product of spans for which a combination's code fits into 64 bits.
_MOST_CODES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Strata:
    """Fixed groups of items, each with its weight in the mean.

    Attributes
    ----------
    codes : array (n,)
        Each item's stratum, 0…S-1; every stratum has items.
    weights : array (S,)
        Their weights, which add up to 1.
    """

    codes: Codes
    weights: Floats

    @classmethod
    def one(cls, n: int) -> Strata:
        """All items as one stratum: the plain mean."""
        return cls(np.zeros(n, dtype=np.intp), np.ones(1))

    @property
    def of_each_item(self) -> Floats:
        """The weight (S,) of each item of a stratum: the stratum's, divided equally among its items."""
        return np.asarray(self.weights / np.bincount(self.codes))

    def means(self, columns: Floats) -> Floats:
        """Means (S, k) of columns (n, k) by stratum."""
        return cluster_means(columns, self.codes)

    def mean(self, columns: Floats) -> Floats:
        """The weighted mean (k,) of columns (n, k)."""
        return np.asarray(self.weights @ self.means(columns))

    def of_levels(self, codes: Codes) -> Codes:
        """The stratum of each level (levels,) of a factor nested in the strata; all 0 for one that crosses them."""
        levels = int(codes.max()) + 1
        if combinations([self.codes, codes]).number > levels:
            return np.zeros(levels, dtype=np.intp)
        stratum = np.empty(levels, dtype=np.intp)
        stratum[codes] = self.codes
        return stratum


def crossed_factors(clusters: Sequence[Codes]) -> list[Codes]:
    """The factors that vary and are not nested in another, coded 0…levels-1."""
    coded = [renumbered(codes)[0] for codes in clusters]
    varying = [codes for codes in coded if codes.size and codes.max() > 0]
    kept: list[Codes] = []
    # Coarse factors first: a finer one that only subdivides their levels adds nothing.
    for codes in sorted(varying, key=lambda codes: int(codes.max())):
        if not any(combinations([coarse, codes]).number == int(codes.max()) + 1 for coarse in kept):
            kept.append(codes)
    return kept


@dataclass(frozen=True, slots=True)
class Combinations:
    """The combinations of factors' levels that occur, numbered 0…number-1 in the order of the levels.

    Attributes
    ----------
    factors : sequence of arrays (n,)
        Codes, 0 or more.
    spans : list of int
        One more than the largest code of each.
    occurring : array (number,)
        What `_mixed` gives for each combination, in order.
    place : array or None
        The number of each combination, by what `_mixed` gives; None where a table of all would be mostly empty.
    joined : Combinations or None
        Those of several factors whose numbers are the codes of the first one here.
    """

    factors: Sequence[Codes]
    spans: list[int]
    occurring: Codes
    place: Codes | None
    joined: Combinations | None = None

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.occurring)

    def of(self, rows: slice) -> Codes:
        """The number of some rows' combination."""
        mixed = _mixed(self.factors, self.spans, rows)
        return mixed_places(mixed, self.occurring) if self.place is None else self.place[mixed]

    @property
    def levels(self) -> list[Codes]:
        """The codes (number,) of each factor in each combination."""
        left, found = self.occurring, []
        for span in reversed(self.spans[1:]):
            left, code = np.divmod(left, span)
            found.append(code)
        first = [left] if self.joined is None else [codes[left] for codes in self.joined.levels]
        return [*first, *reversed(found)]


def mixed_places(mixed: Codes, occurring: Codes) -> Codes:
    """The place of each code among those that occur, which are in order."""
    return np.searchsorted(occurring, mixed)


def _mixed(factors: Sequence[Codes], spans: Sequence[int], rows: slice) -> Codes:
    """One code for each combination of levels of some rows."""
    mixed = factors[0][rows].astype(np.int64)
    for codes, span in zip(factors[1:], spans[1:], strict=True):
        mixed = mixed * span + codes[rows]
    return mixed


def combinations(factors: Sequence[Codes]) -> Combinations:
    """The combinations of levels that occur; codes are 0 or more."""
    n = len(factors[0])
    spans = [int(codes.max(initial=-1)) + 1 for codes in factors]
    span = math.prod(spans)
    if span > _MOST_CODES:  # few of them occur: those of all but the last factor are numbered first
        joined = combinations(factors[:-1])
        return replace(combinations([gathered(n, joined.of, np.int64), factors[-1]]), joined=joined)
    if span <= 4 * n + 1000:
        occurs = np.zeros(span, dtype=np.bool_)
        for rows in blocks(n):
            occurs[_mixed(factors, spans, rows)] = True
        return Combinations(factors, spans, np.flatnonzero(occurs), np.cumsum(occurs) - 1)
    found = np.empty(0, dtype=np.int64)
    for rows in blocks(n):  # a table of all would be mostly empty
        found = np.union1d(found, _mixed(factors, spans, rows))
    return Combinations(factors, spans, found, None)


def renumbered(codes: Codes) -> tuple[Codes, int]:
    """Codes (n,) renumbered 0…levels-1 in order, and the number of levels. The same array if that is what they are."""
    if codes.size == 0:
        return codes, 0
    lowest = int(codes.min())
    span = int(codes.max()) - lowest + 1
    if span > 4 * codes.size + 1000:  # a table of all of them would be mostly empty
        levels = np.unique(codes)
        return gathered(len(codes), lambda rows: np.searchsorted(levels, codes[rows]), np.intp), len(levels)
    occurs = np.zeros(span, dtype=np.bool_)
    for rows in blocks(len(codes)):
        occurs[codes[rows] - lowest] = True
    if lowest == 0 and occurs.all():
        return codes, span
    number = np.cumsum(occurs) - 1
    return gathered(len(codes), lambda rows: number[codes[rows] - lowest], np.intp), int(number[-1]) + 1


#: Rows that are computed at a time. What is made of a figure's rows on the way is as long as a block, and not as all
#: of them: only sums by level, or by combination of levels, stay. Sums add up over the blocks, in order.
BLOCK = 2**16

Making = Callable[[slice], Floats]
"""Gives values (rows, k) of some rows, made of the figure's own."""


def blocks(n: int) -> Iterator[slice]:
    """The rows (n,) block by block; one block if there are none."""
    return (slice(start, min(start + BLOCK, n)) for start in range(0, max(n, 1), BLOCK))


def gathered(shape: int | tuple[int, int], make: Callable[[slice], Any], dtype: Any) -> NDArray[Any]:
    """What is made of the rows, (n,) or (n, k), which are many, put together outside of memory."""
    found = scratch(shape, dtype)
    for rows in blocks(len(found)):
        found[rows] = make(rows)
    return found


def total(n: int, make: Making) -> Floats:
    """The sum over all blocks of what is made of each."""
    return functools.reduce(operator.add, map(make, blocks(n)))


def level_sums(make: Making, codes: Codes, size: int) -> Floats:
    """Sums (size, k) by level of what is made of the rows."""
    return total(len(codes), lambda rows: sums(make(rows), codes[rows], size))


def level_means(make: Making, codes: Codes) -> Floats:
    """Means (G, k) by cluster of what is made of the rows; ``codes`` (n,) run from 0 to G - 1."""
    counts = np.bincount(codes)
    added = total(
        len(codes),
        lambda rows: np.column_stack(
            [np.bincount(codes[rows], weights=column, minlength=len(counts)) for column in make(rows).T]
        ),
    )
    return np.asarray(added / counts[:, None])


def cluster_means(columns: Floats, codes: Codes) -> Floats:
    """Means (G, k) of columns (n, k) by cluster; ``codes`` (n,) run from 0 to G - 1."""
    return level_means(columns.__getitem__, codes)


def from_strata(columns: Floats, strata: Strata, means: Floats) -> Making:
    """The distances of columns (n, k) from their strata's means (S, k)."""
    return lambda rows: columns[rows] - means[strata.codes[rows]]


def sums(columns: Floats, codes: Codes, size: int) -> Floats:
    """Sums (size, k) of columns (n, k) by level."""
    n, k = columns.shape
    if k <= 4:  # without the cost of building a matrix
        return np.column_stack([np.bincount(codes, weights=column, minlength=size) for column in columns.T])
    indicator = sparse.csc_matrix((np.ones(n), codes, np.arange(n + 1)), shape=(size, n))
    return np.asarray(indicator @ columns)


def additive_rank(factors: Sequence[Codes], levels: Sequence[int]) -> int:
    """Rank of the additive design: Σ levels - (K-1), less (K-1) per additional connected component."""
    offsets = np.cumsum([0, *levels[:-1]])
    nodes = [codes + offset for codes, offset in zip(factors, offsets, strict=True)]
    total = sum(levels)
    edges = sparse.coo_matrix(
        (
            np.ones(len(nodes[0]) * (len(nodes) - 1)),
            (np.tile(nodes[0], len(nodes) - 1), np.concatenate(nodes[1:])),
        ),
        shape=(total, total),
    )
    components, _ = sparse.csgraph.connected_components(edges, directed=False)
    return total - (len(factors) - 1) * int(components)
