"""Every lie on every route: ``python -m tests.backends.openai.lies [--seeds 6] [--lie NAME] [--style STYLE]``.

Those that begin after the probe are for whole audits: ``python -m tests.backends.openai.lies.audits --lie …``.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from tests.backends.openai.lies.catalogue import LIES, UNDER_WAY, UNKNOWABLE
from tests.backends.openai.lies.server import STYLES
from tests.backends.openai.lies.trial import trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--lie", action="append", help="a part of its name; several are allowed")
    parser.add_argument("--style", choices=STYLES)
    options = parser.parse_args()
    wanted = options.lie or [""]
    told = ("honest", *(name for name in LIES if name not in UNDER_WAY))
    names = [name for name in told if any(part in name for part in wanted)]
    print(
        f"{'lie':<40} {'style':<6} {'wrong/exact':>12} {'false/bounds':>13} {'outside/drawn':>13} {'asked':>6}  ended"
    )
    accepted = 0
    for name in names:
        lie = LIES[name](np.random.default_rng(0)) if name in LIES else None
        for style in lie.styles if lie is not None else STYLES:
            if options.style not in (None, style):
                continue
            outcomes = trials(name, style, range(options.seeds))
            wrong, exact = sum(o.wrong for o in outcomes), sum(o.exact for o in outcomes)
            false, bounds = sum(o.false_bounds for o in outcomes), sum(o.bounds for o in outcomes)
            outside, sampled = sum(o.outside for o in outcomes), sum(o.sampled for o in outcomes)
            asked = max(o.requests for o in outcomes)
            ends = "; ".join(f"{n}× {end}" for end, n in Counter(o.ended for o in outcomes).most_common())
            reason = UNKNOWABLE.get((name, style), lie.unknowable if lie is not None else "")
            hidden = f" [unknowable: {reason}]" if reason else ""
            if not hidden:
                accepted += sum(o.accepted_wrong for o in outcomes)
            print(
                f"{name:<40} {style:<6} {f'{wrong}/{exact}':>12} {f'{false}/{bounds}':>13} "
                f"{f'{outside}/{sampled}':>13} {asked:>6}  {ends}{hidden}",
                flush=True,
            )
    print(f"wrong scores and false bounds accepted in runs that named no problem: {accepted}")


if __name__ == "__main__":
    main()
