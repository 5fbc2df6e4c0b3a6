"""CrowS-Pairs by the suite that ships and by a file, all 1,508 pairs on a real model: the same figures.

    python -m tests.suites.custom FOLDER --model smollm2

FOLDER holds ``crows_pairs_anonymized.csv``. Each of the two has a store of its own, so that the model is asked twice.
Exits with 1 where a figure, its interval or its p-value differs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit import Audit
from audit.results import Measure
from backends import named_backend
from suites import CrowSPairs, from_file
from suites.base import Suite
from tests.suites.custom.test_pairs import DECLARED

FILE = "crows_pairs_anonymized.csv"


def measured(suite: Suite, model: str, folder: Path, limit: int | None) -> Mapping[Any, Measure]:
    """The figures of one audit."""
    options: dict[str, Any] = {"limit": limit, "small_sample": limit is not None}
    audit = Audit({"m": named_backend(f"embedded:{model}")}, [suite], db=folder / "a.db", out=folder / "out", **options)
    return {(m.measure, tuple(sorted(m.where.items()))): m for m in audit.run_sync().measures}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", choices=["smollm2", "gemma3"], default="smollm2")
    parser.add_argument("--limit", type=int, default=None, help="a sample of the pairs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        shutil.copy(given.folder / FILE, scratch / FILE)
        (scratch / "crows.toml").write_text(DECLARED + "repeated = true\n", "utf-8")  # one pair is there twice
        suites = {"built-in": CrowSPairs(folder=given.folder), "file": from_file(scratch / "crows.toml")}
        found = {}
        for name, suite in suites.items():
            (scratch / name).mkdir()
            found[name] = measured(suite, given.model, scratch / name, given.limit)
    built_in, own = found.values()
    differ = built_in.keys() ^ own.keys()
    for key, figure in built_in.items():
        mine = own.get(key)
        same = mine is not None and all(
            getattr(figure, name) == getattr(mine, name) for name in ("value", "low", "high", "p", "n_items")
        )
        print(f"{'same' if same else 'DIFFERS':8}{figure.n_items:6}  {figure.value!r:22} {key}", flush=True)
        differ |= set() if same else {key}
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
