"""How often p is tiny without a difference, where levels are few or one group has few of them.

python -m tests.simulations.far_tails --samples 200000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from audit.analysis.estimators import Codes, Floats, Strata, ValueKind, mean_of_kind
from tests.audit.analysis.designs import grid

LEVELS = (0.01, 0.001, 0.0001)
CHANGES = ValueKind(-2.0, 2.0, is_change=True)
_AT_ONCE = 2_000

#: From a generator and a number of samples: values (items, samples) whose true mean is 0.
Draw = Callable[[np.random.Generator, int], Floats]


def crossed(occupations: int, templates: int, ratio: float) -> tuple[Draw, list[Codes], None]:
    """Normal effects; the templates' part of the mean's variance is ``ratio`` times that of the occupations."""
    a, b = grid(occupations, templates)
    of_templates = (ratio * templates / occupations) ** 0.5
    unit = 0.1 / max(1.0, of_templates)

    def draw(rng: np.random.Generator, samples: int) -> Floats:
        own, other, items = (rng.standard_normal((n, samples)) for n in (occupations, templates, len(a)))
        return np.asarray(unit * (own[a] + of_templates * other[b] + 0.1 * items))

    return draw, [a, b], None


def grouped(few: int, many: int, times: float) -> tuple[Draw, list[Codes], Strata]:
    """Two groups of equal weight; the occupations of the small one deviate ``times`` as far."""
    strata = Strata((np.arange(few + many) >= few).astype(np.intp), np.array([0.5, 0.5]))
    deviation = 0.02 * np.where(strata.codes == 0, times, 1.0)[:, None]
    return lambda rng, n: deviation * rng.standard_normal((few + many, n)), [np.arange(few + many)], strata


def tiny(draw: Draw, clusters: Sequence[Codes], strata: Strata | None, samples: int) -> list[int]:
    """How many of the samples have a p below each of the `LEVELS`."""
    rng, found = np.random.default_rng(1), [0] * len(LEVELS)
    for _ in range(samples // _AT_ONCE):
        p = mean_of_kind(draw(rng, _AT_ONCE), clusters, CHANGES, strata).p_two_sided()
        found = [count + int((p < level).sum()) for count, level in zip(found, LEVELS, strict=True)]
    return found


def main() -> None:
    """Print a table, with Clopper and Pearson's 95 % intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200_000)
    samples = parser.parse_args().samples // _AT_ONCE * _AT_ONCE
    designs = {
        f"{n} × 5, templates' part {r:g} times": crossed(n, 5, r) for n in (20, 40, 200) for r in (1.0, 10.0, 60.0)
    }
    designs |= {f"5 + {n}, the five {r:g} times": grouped(5, n, r) for n in (20, 35, 100) for r in (1.0, 2.0, 4.0)}
    print(f"{samples} samples without a difference: share with p below {LEVELS}, as a multiple of that level")
    for name, design in designs.items():
        shown = []
        for count, level in zip(tiny(*design, samples), LEVELS, strict=True):
            low = special.betaincinv(count, samples - count + 1, 0.025) if count else 0.0
            high = special.betaincinv(count + 1, samples - count, 0.975)
            shown.append(f"{count / samples / level:.2f} ({low / level:.2f} to {high / level:.2f})")
        print(f"  {name:36} {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
