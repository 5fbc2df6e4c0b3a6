"""The fault laboratory in full.

    python -m tests.faults --trials 40 hang reset

Prints a line for each fault; exits 1 when an answer was lost, wrong or left open, or a fault never
struck. Without names, all faults and the campaign of kills run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.faults import SERVER_FAULTS
from tests.faults.lab import Lab, Verdict
from tests.faults.trials import TRIALS, campaign

CAMPAIGN = "campaign"
AT_ONCE = 3  # trials; they mostly wait
#: Faults whose outcome is random need more trials, where the others are tried often too.
OFTEN = {"kill -9: any time": 100}


def main() -> int:
    """Run the requested trials and print the table."""
    options = _options()
    trials, kills, (at, parts) = options.trials, options.kills, options.part
    bad = 0
    bad = 0
    print(
        f"{'fault':34} {'trials':>6} {'requests':>9} {'struck':>7} {'lost':>5} {'wrong':>6} {'unresolved':>11}", end=""
    )
    print(f" {'paid twice':>11} {'seconds':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder)) as lab:
        total = Verdict()
        for name in [n for n in options.names if n != CAMPAIGN][at - 1 :: parts]:
            found, problems = _repeat(lab, name, max(trials, OFTEN.get(name, 0)) if trials >= 40 else trials)
            total += found
            bad += found.lost + found.wrong + found.unresolved + problems
        print(f"all: lost {total.lost}, wrong {total.wrong}, unresolved {total.unresolved}", flush=True)
        if CAMPAIGN in options.names and kills:
            started = time.monotonic()
            verdict, made, acknowledged, most = campaign(lab, -(-options.answers // parts), -(-kills // parts), seed=at)
            bad += verdict.lost + verdict.wrong + verdict.unresolved + (most > 16)
            print(
                f"campaign: {made} kills, {acknowledged} acknowledged, lost {verdict.lost}, wrong {verdict.wrong}, "
                f"unresolved {verdict.unresolved}, paid twice {verdict.paid_twice} in all, at most {most} a kill "
                f"(16 in flight), {time.monotonic() - started:.0f} s"
            )
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Strike an audit with faults and kills; no answer may be lost, wrong or left open.",
        epilog=f"Faults: {', '.join(TRIALS)}, and the {CAMPAIGN} of kills.",
    )
    parser.add_argument("names", nargs="*", metavar="FAULT", help="which (default: all, and the campaign)")
    parser.add_argument("--trials", type=int, default=40, help="of each fault (default: 40)")
    parser.add_argument("--kills", type=int, default=200, help="in the campaign (default: 200)")
    parser.add_argument("--answers", type=int, default=50_000, help="least answers of the campaign (default: 50000)")
    parser.add_argument(
        "--part",
        type=_part,
        default="1/1",
        help="2/8: every eighth fault from the second on, and an eighth of the campaign",
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in (*TRIALS, CAMPAIGN)]:
        parser.error(f"no such fault: {', '.join(unknown)}; see --help")
    options.names = options.names or [*TRIALS, CAMPAIGN]
    return options


def _part(text: str) -> tuple[int, int]:
    at, _, parts = text.partition("/")
    if not (at.isdigit() and parts.isdigit() and 1 <= int(at) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 2/8")
    return int(at), int(parts)


def _repeat(lab: Lab, name: str, trials: int) -> tuple[Verdict, int]:
    """Run one fault's trials and print their line. Returns their sum, and how many trials went another way."""
    found, broken = Verdict(), []
    started = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lives = [pool.submit(TRIALS[name], lab, str(number)) for number in range(trials)]
    for number, life in enumerate(lives):
        try:
            found += life.result()
        except AssertionError as error:
            broken.append(f"trial {number}: {error}")
    never = trials >= 40 and name in SERVER_FAULTS and not found.struck
    print(
        f"{name:34} {trials:6} {found.asked:9} {found.struck:7} {found.lost:5} {found.wrong:6} {found.unresolved:11} "
        f"{found.paid_twice:11} {time.monotonic() - started:8.0f}",
        *broken[:3],
        *(["it never struck"] if never else []),
        sep="\n    ",
        flush=True,
    )
    return found, len(broken) + never


if __name__ == "__main__":
    sys.exit(main())
