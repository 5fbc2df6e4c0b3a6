"""How often intervals of a sample of the questions hold the truth: few of all pairs of sector and wording are asked.

    python -m tests.simulations.sampled --samples 2000

Of each line: the share of samples whose interval holds the truth, and the mean width over 2 · 1.96 true standard
errors; of the project's interval, and of the textbook's clustered by both (Cameron, Gelbach & Miller 2011, with as
many degrees of freedom as the fewer levels less one).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.probabilities import mean_probability
from audit.analysis.estimators.shares import mean_share
from tests.simulations.coverage import PROBABILITY_EFFECTS, SHARE_EFFECTS
from tests.simulations.processes import Process

Floats = NDArray[np.float64]

SEED = 49
#: Questions, sectors, wordings: OccuGender's, of one stereotype and of both.
DESIGNS = ((20, 11, 14), (40, 13, 19), (100, 17, 19))
KINDS = {"probability": (mean_probability, PROBABILITY_EFFECTS), "yes/no": (mean_share, SHARE_EFFECTS)}


def clustered_by_both(y: Floats, sector: NDArray[np.intp], wording: NDArray[np.intp]) -> tuple[float, float]:
    """The textbook's 95 % interval of the mean of answers (n,)."""
    residual, n = y - y.mean(), len(y)

    def of(codes: NDArray[np.intp]) -> float:
        levels = len(np.unique(codes))
        return levels / (levels - 1) * float((np.bincount(codes, residual) ** 2).sum()) / n**2

    variance = of(sector) + of(wording) - of(sector * (wording.max() + 1) + wording)
    variance = variance if variance > 0 else max(of(sector), of(wording))
    fewest = min(len(np.unique(sector)), len(np.unique(wording)))
    half = float(stats.t.ppf(0.975, fewest - 1)) * math.sqrt(variance)
    return float(y.mean()) - half, float(y.mean()) + half


def lines(samples: int) -> Iterator[str]:
    """The table's lines."""
    for n, sectors, wordings in DESIGNS:
        for kind, mean in (("probability", 0.3), ("yes/no", 0.5), ("yes/no", 0.1)):
            estimate, effects = KINDS[kind]
            held, widths = np.zeros(2), np.zeros(2)
            for number, effect in enumerate(effects):
                rng, count = np.random.default_rng([SEED, n, number]), samples // len(effects)
                populations, truth = Process(effect, mean, kind == "yes/no").draw(rng, count, sectors, wordings)
                ends, means = [], []
                for population in populations:
                    s, w = np.divmod(rng.choice(population.size, n, replace=False), wordings)
                    y = population[s, w]
                    own = estimate(y, Design(n, {"sector": s, "wording": w})).interval(0.95)
                    ends.append((own, clustered_by_both(y, s, w)))
                    means.append(y.mean())
                low, high = np.moveaxis(np.array(ends), 2, 0)
                held += ((low <= truth) & (truth <= high)).mean(axis=0)
                widths += (high - low).mean(axis=0) / (2 * 1.96 * np.std(means))
            (own_held, both_held), (own_width, both_width) = held / len(effects), widths / len(effects)
            name = f"{kind} {mean:g}, {n} of {sectors} x {wordings}"
            yield f"{name:34} {own_held:6.1%} {own_width:5.2f}   by both {both_held:6.1%} {both_width:5.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    for line in lines(parser.parse_args().samples):
        print(line, flush=True)


if __name__ == "__main__":
    main()
