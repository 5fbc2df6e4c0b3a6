"""The fault laboratory in full: python -m tests.faults [TRIALS] [KILLS] [ANSWERS] [PART/PARTS] [NAME...]

Prints a line for each fault; exits 1 when an answer was lost, wrong or left open, or a fault never
struck. Without names, all faults and the campaign of kills run (the campaign alone: ``campaign``).
PART/PARTS, such as 2/8, takes every eighth fault from the second on, and an eighth of the campaign.
"""

from __future__ import annotations

import re
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
#: Faults that are a draw each time need more of them, where the others are tried often too.
OFTEN = {"kill -9: any time": 100}


def main() -> int:
    """Run the trials that are asked for and print the table."""
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    trials, kills, answers = (*numbers, *(40, 200, 50_000)[len(numbers) :])
    [part] = [a for a in sys.argv[1:] if re.fullmatch(r"\d+/\d+", a)] or ["1/1"]
    at, parts = map(int, part.split("/"))
    names = [a for a in sys.argv[1:] if a in (*TRIALS, CAMPAIGN)] or [*TRIALS, CAMPAIGN]
    bad = 0
    print(
        f"{'fault':34} {'trials':>6} {'requests':>9} {'struck':>7} {'lost':>5} {'wrong':>6} {'unresolved':>11}", end=""
    )
    print(f" {'paid twice':>11} {'seconds':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder)) as lab:
        total = Verdict()
        for name in [n for n in names if n != CAMPAIGN][at - 1 :: parts]:
            found, problems = _repeat(lab, name, max(trials, OFTEN.get(name, 0)) if trials >= 40 else trials)
            total += found
            bad += found.lost + found.wrong + found.unresolved + problems
        print(f"all: lost {total.lost}, wrong {total.wrong}, unresolved {total.unresolved}", flush=True)
        if CAMPAIGN in names and kills:
            started = time.monotonic()
            verdict, made, acknowledged, most = campaign(lab, -(-answers // parts), -(-kills // parts), seed=at)
            bad += verdict.lost + verdict.wrong + verdict.unresolved + (most > 16)
            print(
                f"campaign: {made} kills, {acknowledged} acknowledged, lost {verdict.lost}, wrong {verdict.wrong}, "
                f"unresolved {verdict.unresolved}, paid twice {verdict.paid_twice} in all, at most {most} a kill "
                f"(16 in flight), {time.monotonic() - started:.0f} s"
            )
    return 1 if bad else 0


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
