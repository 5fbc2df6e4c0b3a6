"""CrowS-Pairs by the suite that ships and by a file, all 1,508 pairs on a real model: the same figures.

    python -m tests.suites.custom FOLDER --model smollm2 --store crows-smollm2

FOLDER holds ``crows_pairs_anonymized.csv``. ``--store`` keeps the answers: a run that was stopped goes on where it was.
Both forms ask the same questions, so that each is asked once. Exits with 1 where a figure, its interval or its p-value
differs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit import Audit
from audit.results import Measure
from backends import HFBackend
from backends.catalogue.named import EMBEDDED
from suites import CrowSPairs, from_file
from tests.suites.custom.test_pairs import DECLARED

FILE = "crows_pairs_anonymized.csv"


def measured(given: argparse.Namespace) -> dict[str, Mapping[Any, Measure]]:
    """The figures of each form, by measure and levels."""
    store: Path = given.store
    store.mkdir(parents=True, exist_ok=True)
    shutil.copy(given.folder / FILE, store / FILE)
    (store / "crows.toml").write_text(DECLARED + "repeated = true\n", "utf-8")  # one pair is there twice
    suites = [CrowSPairs(folder=given.folder), from_file(store / "crows.toml")]
    model = HFBackend(EMBEDDED[given.model](), dtype="float32", threads=given.threads)
    options: dict[str, Any] = {"limit": given.limit, "small_sample": given.limit is not None}
    result = Audit({"m": model}, suites, db=store / "answers.db", out=store / "out", **options).run_sync()
    assert result.complete, "some answers are missing"
    return {
        suite.name: {(m.measure, tuple(sorted(m.where.items()))): m for m in result.measures if m.suite == suite.name}
        for suite in suites
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", choices=[*EMBEDDED], default="smollm2")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=None, help="a sample of the pairs")
    parser.add_argument("--threads", type=int, default=None)
    built_in, own = measured(parser.parse_args()).values()
    differ = len(built_in.keys() ^ own.keys())
    for key, figure in built_in.items():
        mine = own.get(key)
        same = mine is not None and all(
            getattr(figure, name) == getattr(mine, name) for name in ("value", "low", "high", "p", "n_items")
        )
        print(f"{'same' if same else 'DIFFERS':8}{figure.n_items:6}  {figure.value!r:22} {key}", flush=True)
        differ += not same
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
