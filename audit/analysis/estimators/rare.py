"""Standard errors of counts of which few or none differ from the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from audit.analysis.estimators.clusters import (
    Making,
    Strata,
    combinations,
    crossed_factors,
    from_strata,
    level_means,
    total,
)
from audit.analysis.estimators.estimate import Codes, Estimate, Floats
from audit.analysis.estimators.medians import medians
from audit.analysis.estimators.unseen import UNSEEN_LOG_ODDS

#: Values that differ by less than this share of their range count as nearly equal.
_ALIKE = 1e-3
#: Cells up to which changes that are alike say nothing of others, and from which on they show what they are.
_FEW_CELLS, _MANY_CELLS = 25, 50


def allow_for_few_outcomes(
    estimate: Estimate,
    values: Floats,
    clusters: Sequence[Codes],
    least: float,
    most: float,
    strata: Strata | None = None,
) -> Estimate:
    """The estimate of counted values with an error that is also valid if few of them differ from the rest.

    If 1 of 200 answers is a yes, the variance within the sample says next to nothing, and if none
    is, it says nothing at all. So the error is never below the one whose 95 % interval reaches as
    far as a score interval (Wilson 1927, J. Am. Stat. Assoc. 22), for differences that of Newcombe
    (1998, Stat. Med. 17, method 10). It allows for clusters through the effective number of items (Korn &
    Graubard 1998, Surv. Methodol. 24). One outcome more than was seen, of the largest size and in all
    items of a cell, enters that number and the size of an outcome: it dominates if nothing was
    seen, fades with every outcome seen, and prevents one outcome from making an estimate more certain than none.

    If nothing was seen, the data do not show how similar a cluster's items are: cells then count as
    independent. An outcome that only a few templates produce, none of them in the sample, is missed.

    Parameters
    ----------
    estimate : Estimate
        `clustered_mean` of the same values and clusters.
    values : array (n,) or (n, k)
        Outcomes, or differences of outcomes. They deviate from their median.
    clusters : sequence of integer arrays (n,)
        As for `clustered_mean`.
    least, most : float
        Range of a value.
    strata : Strata, optional
        As for `clustered_mean`. Values deviate from their stratum's median.

    Returns
    -------
    Estimate
        With an error that reaches at least as far.
    """
    columns = values.reshape(len(values), -1)
    strata = strata or Strata.one(len(columns))
    middle = medians(columns, strata)
    distance = _reach_of_few(estimate, columns.__getitem__, middle, clusters, (least, most), strata)
    return estimate.widened(distance, distance)


def _reach_of_few(
    estimate: Estimate,
    make: Making,
    middle: Floats,
    clusters: Sequence[Codes],
    limits: tuple[float, float],
    strata: Strata,
) -> Floats:
    """The reach (k,) of a 95 % interval that allows for one more outcome than what is made of the rows shows.

    ``middle`` (S, k): its medians by stratum.
    """
    least, most = limits
    length, of_item = len(strata.codes), strata.of_each_item

    def part(rows: slice) -> Floats:
        return np.asarray(of_item[strata.codes[rows]])[:, None]

    def added(of: Callable[[Floats], Floats]) -> Floats:
        """The sum of the rows' parts of a function of their distance from the median."""
        return total(length, lambda rows: (part(rows) * of(make(rows) - middle[strata.codes[rows]])).sum(axis=0))

    n = 1 / float(total(length, lambda rows: (part(rows) ** 2).sum()))  # the effective number of equally weighted items
    room_above, room_below = np.maximum(most - middle, 0.0).max(axis=0), np.maximum(middle - least, 0.0).max(axis=0)
    reach = np.maximum(room_above, room_below)
    up, down, squares = (
        n * added(of) for of in (lambda x: np.maximum(x, 0.0), lambda x: np.maximum(-x, 0.0), lambda x: x**2)
    )
    in_cell = length / _number_of_cells(clusters, length)
    size = (squares + in_cell * reach**2) / (up + down + in_cell * reach)
    # The variance of the mean without clusters.
    means = level_means(make, strata.codes)
    independent = total(length, lambda rows: ((part(rows) * (make(rows) - means[strata.codes[rows]])) ** 2).sum(axis=0))
    independent = independent * n / max(n - 1, 1)
    seen = np.divide(estimate.se**2, independent, out=np.ones_like(independent), where=independent > 0)
    inflation = (squares * np.maximum(seen, 1.0) + (in_cell * reach) ** 2) / (squares + in_cell * reach**2)
    effective = n / inflation
    t = np.asarray(special.stdtrit(estimate.df, 0.975), dtype=np.float64)
    # No outcome can lie on a side without room: a share, unlike a difference, has only one side.
    more, fewer = (
        np.where(room > 0, _score_interval(np.minimum(sums / size / n, 1.0), effective, t), 0.0)
        for sums, room in ((up, room_above), (down, room_below))
    )
    farthest = np.maximum(np.hypot(more[1], fewer[0]), np.hypot(more[0], fewer[1]))
    return np.asarray(size * farthest)


def _score_interval(share: Floats, n: Floats, t: Floats) -> tuple[Floats, Floats]:
    """The reach of Wilson's interval below and above a share of ``n`` items."""
    shift = t**2 / n
    middle = (share + shift / 2) / (1 + shift)
    half = np.sqrt(shift * (share * (1 - share) + shift / 4)) / (1 + shift)
    return share - (middle - half), middle + half - share


def _number_of_cells(clusters: Sequence[Codes], n: int) -> int:
    """The number of combinations of levels; ``n`` without clusters."""
    factors = crossed_factors(clusters)
    return combinations(factors).number if factors else n


def allow_for_unseen_outcomes(
    estimate: Estimate,
    values: Floats,
    clusters: Sequence[Codes],
    least: float,
    most: float,
    strata: Strata | None = None,
) -> Estimate:
    """The estimate of bounded values with an error that is also valid if they are nearly equal.

    Five equal values prove nothing: if all values are equal, the error reaches as far as that of
    `allow_for_few_outcomes`. It fades as (1 + d² / r²)⁻² with the values' mean squared distance d² from their
    stratum's median, r being `_ALIKE` of the range: neither a value's last digits nor rounding it decides. Where
    values vary, it is next to nothing.
    """
    columns = values.reshape(len(values), -1)
    strata = strata or Strata.one(len(columns))
    middle = medians(columns, strata)
    alike: Making = lambda rows: middle[strata.codes[rows]]  # noqa: E731
    distance = _reach_of_few(estimate, alike, middle, clusters, (least, most), strata)
    distance *= _alikeness(columns, middle, strata, most - least)
    return estimate.widened(distance, distance)


def allow_for_unseen_changes(
    estimate: Estimate,
    values: Floats,
    clusters: Sequence[Codes],
    least: float,
    most: float,
    strata: Strata | None = None,
) -> Estimate:
    """The estimate of bounded changes with an error that is also valid if hardly an item changed, or few did alike.

    As `allow_for_unseen_outcomes`, but for a change of all items by more than rare ones could undo. Of n items alike a
    share u is of a kind not seen, at most (the score interval of 0 of n). Were these apart by as much as
    `UNSEEN_LOG_ODDS` moves a probability (0.245; in proportion for wider ranges), they could undo a change of 0.245 u
    times the range. A mean change of x times that fades the room by x⁻⁴: a change of all items is then what was asked,
    and no less certain where all change alike. Of few cells the room stays: all of it up to `_FEW_CELLS`, none from
    `_MANY_CELLS` on.

    Changes that are alike are taken to vary by r in each cell (the resolution of an instrument, JCGM 100:2008, F.2.2),
    so that none is certain.
    """
    columns = values.reshape(len(values), -1)
    strata = strata or Strata.one(len(columns))
    middle = medians(columns, strata)
    alike: Making = lambda rows: middle[strata.codes[rows]]  # noqa: E731
    n_cells = _number_of_cells(clusters, len(columns))
    few = min(max((_MANY_CELLS - n_cells) / (_MANY_CELLS - _FEW_CELLS), 0.0), 1.0)
    # Where all changes of many cells are alike, cells count as independent: t is theirs, not that of five templates.
    df = few * estimate.df + (1 - few) * np.maximum(estimate.df, n_cells - 1.0)
    room = _reach_of_few(replace(estimate, df=df), alike, middle, clusters, (least, most), strata)
    beyond = np.abs(estimate.value) / (float(2 * special.expit(UNSEEN_LOG_ODDS / 2) - 1) * room)
    distance = (
        room * _alikeness(columns, middle, strata, most - least) * np.maximum(few, np.maximum(beyond, 1.0) ** -4.0)
    )
    distance = np.maximum(distance, estimate.t * _ALIKE * (most - least) / np.sqrt(n_cells))
    return estimate.widened(distance, distance)


def _alikeness(columns: Floats, middle: Floats, strata: Strata, width: float) -> Floats:
    """How near the columns (n, k) are to their strata's medians against a range of this width: from 1 to 0 (k,)."""
    apart = from_strata(columns, strata, middle)
    squares = total(len(columns), lambda rows: (apart(rows) ** 2).sum(axis=0)) / len(columns)
    return np.asarray((1 + squares / (_ALIKE * width) ** 2) ** -2.0)
