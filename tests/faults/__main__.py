"""The fault laboratory in full.

    python -m tests.faults --trials 40 hang reset

Prints a line for each fault; exits 1 when an answer was lost, wrong or left open. Without names, all faults and the
campaign of kills run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults.lab import Lab, Verdict
from tests.faults.trials import TRIALS, campaign


def main() -> int:
    """Run the requested trials and print what they found."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", epilog=f"Faults: {', '.join(TRIALS)}")
    parser.add_argument("names", nargs="*", metavar="FAULT", help="which (default: all, and the campaign of kills)")
    parser.add_argument("--trials", type=int, default=40, help="of each fault (default: 40)")
    parser.add_argument("--kills", type=int, default=60, help="in the campaign (default: 60)")
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder)) as lab:
        for name in options.names or TRIALS:
            found = sum((TRIALS[name](lab, str(number)) for number in range(options.trials)), start=Verdict())
            bad += found.lost + found.wrong + found.unresolved
            print(f"{name:34} {found}", flush=True)
        if not options.names:
            verdict, made, acknowledged, most = campaign(lab, 200 * options.kills, options.kills)
            bad += verdict.lost + verdict.wrong + verdict.unresolved + (most > 16)
            print(f"{made} kills, {acknowledged} acknowledged, at most {most} paid twice of 16 in flight: {verdict}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
