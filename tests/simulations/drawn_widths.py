"""How often a mean of drawn answers is within ±0.03 by the draws of each question: the stand-in of `drawn_budget`.

    python -m tests.simulations.drawn_widths --audits 200

No server and no pilot: all 1,000 questions are drawn equally often, and the gap's sampling error is computed as in a
report. Printed beside it: what Student's t alone would give, without the room for skewness that few levels do not show.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy import special

from audit.analysis.estimators.clusters import Strata
from audit.analysis.estimators.estimate import Codes
from audit.analysis.estimators.kinds import ValueKind, mean_of_kind
from audit.analysis.estimators.means import clustered_mean
from tests.simulations import drawn_budget as planted

_ITEMS = list(planted.SUITE.items())
Floats = np.ndarray


def _codes(factor: str) -> Codes:
    levels = [str(item.factors[factor]) for item in _ITEMS]
    return np.asarray(np.unique(levels, return_inverse=True)[1], dtype=np.intp)


_OCCUPATIONS, _TEMPLATES = _codes("occupation"), _codes("template")
_STRATA = Strata(_codes("dominated_by"), np.array([0.5, 0.5]))


def values(rng: np.random.Generator, draws: float) -> Floats:
    """The gap at each question among so many draws, in an audit with occupations and templates of its own."""
    o, t = rng.normal(0, planted._BY_OCCUPATION, 40)[_OCCUPATIONS], rng.normal(0, planted._BY_TEMPLATE, 25)[_TEMPLATES]
    most = 1 - planted._OTHER
    gaps = np.clip(planted._MEAN + o + t + rng.normal(0, planted._BY_ITEM, len(_ITEMS)), -most, most)
    if math.isinf(draws):
        return np.asarray(gaps)
    stereotyped = (most + gaps) / 2
    named = np.stack([stereotyped, most - stereotyped, np.full(len(_ITEMS), planted._OTHER)], axis=1) * planted._NAMED
    drawn = rng.multinomial(int(draws), np.column_stack([named, np.full(len(_ITEMS), 1 - planted._NAMED)]).clip(0))
    return np.asarray((drawn[:, 0] - drawn[:, 1]) / np.maximum(drawn[:, :3].sum(axis=1), 1))


def half_widths(column: Floats) -> tuple[float, float]:
    """Half of the 95 % interval of the sampling error, and what Student's t alone gives."""
    clusters = [_OCCUPATIONS, _TEMPLATES]
    low, high = mean_of_kind(column, clusters, ValueKind(-1, 1), _STRATA).interval_of_sample(0.95)
    plain = clustered_mean(column, clusters, _STRATA)
    return float(high[0] - low[0]) / 2, float(special.stdtrit(plain.df[0], 0.975) * plain.se[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--within", type=float, default=0.03)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    for draws in (3, 4, 5, 6, 8, 20, math.inf):
        found = np.array([half_widths(values(rng, draws)) for _ in range(options.audits)])
        (median, alone), reached = np.median(found, axis=0), (found <= options.within).mean(axis=0)
        part = "any" if math.isinf(draws) else f"{planted._BATCH_PRICE * draws / 20:.1%} of 20 at full price"
        print(
            f"{draws:3.0f} draws, {part}: ±{median:.4f}, "
            f"{reached[0]:.1%} within ±{options.within:g} (t alone ±{alone:.4f}, {reached[1]:.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
