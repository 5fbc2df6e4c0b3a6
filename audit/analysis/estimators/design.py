"""Which clusters and fixed strata the items of a figure belong to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from audit.analysis.estimators.estimate import Codes, Floats
from suites.base import RUN

#: Fewer levels decide by their own degrees of freedom, not by Satterthwaite's, and a report says how few they are.
FEW_LEVELS = 5


@dataclass(frozen=True)
class Design:
    """The groups of items (n,).

    Attributes
    ----------
    n : int
        Items.
    clusters : mapping of str to array (n,)
        The level, 0…G-1, of each sampled factor. Those that vary, and are not nested in another, count: `crossed`.
        Empty: items are independent.
    strata : array (n,)
        Each item's fixed stratum, 0…S-1; every one has items. Variation between strata is no error.
    weights : array (S,)
        Their weights in the figure, which add up to 1.
    membership : (str, array (n, G)), optional
        One more sampled factor, of which an item may have several levels: its name, and 1 where an item belongs.
    correlated : (array (n,), array (G,)), optional
        Of a correlation: each item's correlated cluster, and the clusters' covariate.
    """

    n: int
    clusters: Mapping[str, Codes] = field(default_factory=dict)
    strata: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    weights: Floats = field(default_factory=lambda: np.ones(1))
    membership: tuple[str, Floats] | None = None
    correlated: tuple[Codes, Floats] | None = None

    def __post_init__(self) -> None:
        if not self.strata.size:
            object.__setattr__(self, "strata", np.zeros(self.n, dtype=np.intp))
        object.__setattr__(self, "clusters", {name: renumbered(codes) for name, codes in self.clusters.items()})

    @cached_property
    def item_weights(self) -> Floats:
        """Each item's weight (n,) in the figure."""
        return (self.weights / np.bincount(self.strata, minlength=len(self.weights)))[self.strata]

    @cached_property
    def crossed(self) -> Mapping[str, Codes]:
        """The factors that vary and do not only subdivide another's levels."""
        varying = {name: codes for name, codes in self.clusters.items() if codes.size and codes.max() > 0}
        kept: dict[str, Codes] = {}
        for name, codes in sorted(varying.items(), key=lambda pair: int(pair[1].max())):  # coarse factors first
            if not any(is_nested(codes, coarse) for coarse in kept.values()):
                kept[name] = codes
        return {name: codes for name, codes in self.clusters.items() if name in kept}

    @cached_property
    def is_of_one_cluster(self) -> bool:
        """Whether items are clustered, but all in one: nothing is known of others."""
        return bool(self.clusters) and not self.crossed

    @cached_property
    def shows_an_error(self) -> bool:
        """Whether there are several items, and in each stratum several levels of each crossed factor."""
        if self.n < 2 or self.is_of_one_cluster:
            return False
        return all(of.is_known for of in self.level_weights.values())

    @cached_property
    def strata_of(self) -> Mapping[str, Codes]:
        """For each crossed factor, the stratum (G,) of its levels; all 0 if they occur in several."""
        found = {}
        for name, codes in self.crossed.items():
            found[name] = np.zeros(int(codes.max()) + 1, dtype=np.intp)
            if len(self.weights) > 1 and is_nested(codes, self.strata):
                found[name][codes] = self.strata
        return found

    @cached_property
    def level_weights(self) -> Mapping[str, LevelWeights]:
        """The weights in the figure of each crossed factor's levels; of the items, as "item", if none is crossed."""
        if not self.crossed:
            return {"item": LevelWeights(np.arange(self.n), self.item_weights, self.strata)}
        weights, squares = self.item_weights, self.item_weights**2 if self.cells.are_sparse else None
        return {
            name: LevelWeights(codes, weights, self.strata_of[name], squares) for name, codes in self.crossed.items()
        }

    @cached_property
    def levels(self) -> dict[str, int]:
        """The number of levels of each sampled factor; of items if there is none."""
        levels = {name: int(codes.max(initial=-1)) + 1 for name, codes in self.clusters.items()} or {"item": self.n}
        return levels if self.membership is None else {**levels, self.membership[0]: self.membership[1].shape[1]}

    @cached_property
    def fewest(self) -> int:
        """The fewest levels that a crossed factor, except for runs, has in a stratum; items if there is none."""
        counts = [int(np.bincount(of).min()) for name, of in self.strata_of.items() if name != RUN]
        if self.membership is not None:
            counts.append(self.membership[1].shape[1])
        if self.is_of_one_cluster:
            return 1
        return min(counts, default=int(np.bincount(self.strata).min()) if self.n else 0)

    @cached_property
    def n_clusters(self) -> int:
        """The correlated clusters; else `fewest`."""
        return self.fewest if self.correlated is None else len(self.correlated[1])

    @cached_property
    def most_df(self) -> float:
        """The most degrees of freedom: of two to four levels, their number less one."""
        return self.fewest - 1.0 if self.crossed and self.fewest < FEW_LEVELS else np.inf

    @cached_property
    def cells(self) -> Cells:
        """The combinations of stratum and crossed factors; items, where one factor alone is crossed."""
        factors = list(self.crossed.values())
        if len(factors) < 2:
            return Cells(np.arange(self.n), self.strata, factors, self.item_weights, np.arange(self.n))
        codes = combined([self.strata, *factors])
        first = np.zeros(int(codes.max()) + 1, dtype=np.intp)
        first[codes[::-1]] = np.arange(self.n)[::-1]
        weights = level_sums(codes, self.item_weights)
        return Cells(codes, self.strata[first], [of[first] for of in factors], weights, first)


class LevelWeights:
    """What the error of a mean takes from the weights (G,) of levels in it, which lie in strata (G,).

    Attributes
    ----------
    df : array (S,)
        Satterthwaite's (tr M)²/tr M² of the sum of squares as a quadratic form M: G - 1 for equal levels.
    to_variance, to_third, to_between : arrays (S,)
        By what the weighted sums' squares and cubes are multiplied for the part of the mean's variance and third
        cumulant, and for the variance between levels.
    spread : array (S,)
        The sum of the levels' squared weights.
    """

    def __init__(self, codes: Codes, weights: Floats, strata: Codes, noise: Floats | None = None) -> None:
        """``noise`` (n,): the items' own variances in the mean, where they outweigh those of levels alike."""
        self.strata, part = strata, level_sums(codes, weights)
        whole = np.bincount(strata, part)
        w = part / whole[strata]
        q = w**2 if noise is None else level_sums(codes, noise) / whole[strata] ** 2
        w2, w3, q1, q2 = (np.bincount(strata, of) for of in (w**2, w**3, q, q**2))
        wq, wq2, w2q = (np.bincount(strata, of) for of in (w * q, w * q**2, w**2 * q))
        self.is_known = bool((np.bincount(strata) > 1).all())
        # E Σ w²(u - Σwu)² = σ²(Σw² - 2Σw³ + (Σw²)²): variance / squares is G/(G - 1) for equal levels.
        of_equal = np.maximum(w2 - 2 * w3 + w2**2, 1e-300)
        # Of sums t with variances q, Σ (t - wΣt)² has these tr M and tr M².
        trace = np.maximum(q1 - 2 * wq + w2 * q1, 1e-300)
        of_square = q2 + 2 * wq**2 + 2 * w2 * q2 + 2 * q1 * w2q - 4 * wq2 - 4 * q1 * w2 * wq + (q1 * w2) ** 2
        worth = np.maximum(1 / w2, 2.5)  # as many equal levels as the weights are worth
        self.df = trace**2 / np.maximum(of_square, 1e-300)
        self.to_variance, self.to_between = w2 / of_equal, 1 / (of_equal * whole**2)
        self.to_third = worth**2 / ((worth - 1) * (worth - 2))
        self.spread = whole**2 * w2


@dataclass(frozen=True)
class Cells:
    """Each item's cell (n,), each cell's stratum and level of every crossed factor (C,), its weight and
    its first item (C,)."""

    of_item: Codes
    strata: Codes
    levels: Sequence[Codes]
    weights: Floats
    first: Codes

    @cached_property
    def number(self) -> int:
        """How many there are."""
        return len(self.strata)

    @cached_property
    def counts(self) -> Floats:
        """Items in each cell (C,)."""
        return np.bincount(self.of_item, minlength=self.number).astype(float)

    @cached_property
    def free(self) -> Codes:
        """Degrees of freedom (S,) that an additive fit of the factors leaves in each stratum; 0 if none."""
        number = np.bincount(self.strata)
        return np.array([
            max(count - _additive_rank([renumbered(of[self.strata == s]) for of in self.levels]), 0)
            for s, count in enumerate(number.tolist())
        ])  # fmt: skip

    @cached_property
    def are_sparse(self) -> bool:
        """Whether fewer than a third of the levels' combinations occur."""
        levels = [[len(np.unique(of[self.strata == s])) for of in self.levels] for s in np.unique(self.strata)]
        return len(self.levels) > 1 and 3 * self.number < sum(map(math.prod, levels))

    @cached_property
    def in_strata(self) -> Sequence[tuple[Codes, Floats]]:
        """For each factor, the combination (C,) of its level with the stratum, and the items of each combination."""
        codes = [combined([self.strata, of]) for of in self.levels]
        return [(of, level_sums(of, self.counts)) for of in codes]


def level_sums(codes: Codes, of: Floats) -> Floats:
    """The sum (G,) of values (n,) in each level."""
    return np.asarray(np.bincount(codes, of), dtype=np.float64)


def _additive_rank(factors: Sequence[Codes]) -> int:
    """Rank of the additive design: Σ levels - (K - 1), less (K - 1) per further connected component."""
    sizes = [int(codes.max()) + 1 for codes in factors]
    if len(factors) == 1:
        return sizes[0]
    if len(factors[0]) == np.prod(sizes):  # every combination occurs
        return sum(sizes) - len(factors) + 1
    from scipy.sparse import coo_array, csgraph  # slow to import, and only incomplete designs need it

    nodes = [codes + sum(sizes[:at]) for at, codes in enumerate(factors)]
    links = np.tile(nodes[0], len(nodes) - 1), np.concatenate(nodes[1:])
    graph = coo_array((np.ones(len(links[0])), links), shape=(sum(sizes), sum(sizes)))
    components, _ = csgraph.connected_components(graph, directed=False)
    return sum(sizes) - (len(factors) - 1) * int(components)


def renumbered(codes: NDArray[np.integer]) -> Codes:
    """Codes (n,) renumbered 0…levels-1, in order."""
    if not codes.size:
        return codes.astype(np.intp)
    lowest, highest = int(codes.min()), int(codes.max())
    if highest - lowest > 4 * codes.size + 1000:  # a table of all codes would be mostly empty
        return np.asarray(np.unique(codes, return_inverse=True)[1].astype(np.intp))
    occurs = np.zeros(highest - lowest + 1, dtype=np.bool_)
    occurs[codes - lowest] = True
    if lowest == 0 and occurs.all():
        return codes.astype(np.intp, copy=False)
    return np.asarray((np.cumsum(occurs) - 1)[codes - lowest], dtype=np.intp)


def combined(factors: Sequence[Codes]) -> Codes:
    """The combination (n,) of the factors' levels, 0…, in order."""
    codes = factors[0]
    for of in factors[1:]:
        codes = renumbered(codes.astype(np.int64) * (int(of.max(initial=0)) + 1) + of)
    return renumbered(codes)


def is_nested(fine: Codes, coarse: Codes) -> bool:
    """Whether each level of ``fine`` (n,) lies within one level of ``coarse`` (n,)."""
    first = np.zeros(int(fine.max(initial=0)) + 1, dtype=np.intp)
    first[fine] = coarse
    return bool(np.array_equal(first[fine], coarse))


def level_means(values: Floats, codes: Codes) -> Floats:
    """Mean (G,) of values (n,) by level, 0…G-1, all of which occur."""
    return np.bincount(codes, values) / np.bincount(codes)
