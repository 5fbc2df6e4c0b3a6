"""Levels of cluster factors and strata: codes, nesting of factors, and sums and means by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from audit.analysis.estimators.estimate import Codes, Floats


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
    def of_items(self) -> Floats:
        """Each item's weight in the mean (n,): that of its stratum, divided equally among the stratum's items."""
        return (self.weights / np.bincount(self.codes))[self.codes]

    def means(self, columns: Floats) -> Floats:
        """Means (S, k) of columns (n, k) by stratum."""
        return cluster_means(columns, self.codes)

    def mean(self, columns: Floats) -> Floats:
        """The weighted mean (k,) of columns (n, k)."""
        return np.asarray(self.weights @ self.means(columns))

    def of_levels(self, codes: Codes) -> Codes:
        """The stratum of each level (levels,) of a factor nested in the strata; all 0 for one that crosses them."""
        levels = int(codes.max()) + 1
        if pairs(self.codes, codes) > levels:
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
        if not any(pairs(coarse, codes) == int(codes.max()) + 1 for coarse in kept):
            kept.append(codes)
    return kept


def pairs(a: Codes, b: Codes) -> int:
    """The number of combinations of two factors' levels."""
    return renumbered(a * (int(b.max()) + 1) + b)[1]


def renumbered(codes: Codes) -> tuple[Codes, int]:
    """Codes (n,) renumbered 0…levels-1 in order, and the number of levels."""
    if codes.size == 0:
        return codes, 0
    lowest = int(codes.min())
    span = int(codes.max()) - lowest + 1
    if span > 4 * codes.size + 1000:  # a table of all of them would be mostly empty
        levels, coded = np.unique(codes, return_inverse=True)
        return coded, len(levels)
    occurs = np.zeros(span, dtype=np.bool_)
    occurs[codes - lowest] = True
    number = np.cumsum(occurs) - 1
    return number[codes - lowest], int(number[-1]) + 1


def sums(columns: Floats, codes: Codes, size: int) -> Floats:
    """Sums (size, k) of columns (n, k) by level."""
    n, k = columns.shape
    if k <= 4:  # without the cost of building a matrix
        return np.column_stack([np.bincount(codes, weights=column, minlength=size) for column in columns.T])
    indicator = sparse.csc_matrix((np.ones(n), codes, np.arange(n + 1)), shape=(size, n))
    return np.asarray(indicator @ columns)


def cells(factors: Sequence[Codes]) -> Codes:
    """One code (n,) for each combination of levels."""
    cell = factors[0].astype(np.int64)
    for codes in factors[1:]:
        cell = cell * (int(codes.max()) + 1) + codes
    return cell


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


def cluster_means(columns: Floats, codes: Codes) -> Floats:
    """Means (G, k) of columns (n, k) by cluster; ``codes`` (n,) run from 0 to G - 1."""
    sums = [np.bincount(codes, weights=column) for column in columns.T]
    return np.column_stack(sums) / np.bincount(codes)[:, None]
