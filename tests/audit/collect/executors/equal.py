"""One audit of a real model in every way to compute and store it: the values of its reports are equal, byte for byte.

``python -m tests.audit.collect.executors.equal [--models smollm2 gemma3] [--items 12] [--ways …]``

OccuGender on llama.cpp in this process, in 1, 2 and 4 actors of a Ray cluster on this machine, with a store of 1 and of
4 shards, and asked in three parts whose stores are merged.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from pathlib import Path

from audit import Audit, RayExecutor
from audit.store import Store
from backends import LlamaCppBackend
from suites import OccuGender
from tests.audit.run.test_shards import said
from tests.servers import gemma3_gguf, smollm2_gguf

MODELS = {"smollm2": smollm2_gguf, "gemma3": gemma3_gguf}
PARTS = 3
#: By name: actors, None in this process; and shards of the store. The parts are asked and joined in this process.
WAYS = {
    "local, 1 shard": (None, 1),
    "local, 4 shards": (None, 4),
    "ray, 1 actor, 1 shard": (1, 1),
    "ray, 1 actor, 4 shards": (1, 4),
    "ray, 2 actors, 1 shard": (2, 1),
    "ray, 2 actors, 4 shards": (2, 4),
    "ray, 4 actors, 1 shard": (4, 1),
    "ray, 4 actors, 4 shards": (4, 4),
    "3 parts, merged": None,
}


def report(model: str, way: str, items: int, folder: Path) -> tuple[str, int]:
    """The report of an audit, without the facts of the run itself; and the questions that it asked."""
    backend = LlamaCppBackend(MODELS[model](), threads=1)
    backend.batch_size = 4  # several batches, for several actors
    audit = Audit(
        {model: backend},
        [OccuGender()],
        db=folder / "audit.db",
        out=folder / "out",
        limit=items,
        small_sample=True,
    )
    how = WAYS[way]
    if how is None:
        return _merged(audit, folder)
    actors, shards = how
    executor = None if actors is None else RayExecutor(actors=actors, cpus=0.25)
    result = audit.only(executor=executor, store_shards=shards).run_sync()
    assert result.complete, result.problems
    return said(result), result.models[0].asked


def _merged(audit: Audit, folder: Path) -> tuple[str, int]:
    asked = 0
    with Store.open(audit.db) as into:
        for number in range(1, PARTS + 1):
            part = folder / f"part{number}.db"
            asked += audit.only(shard=(number, PARTS), db=part).run_sync().models[0].asked
            with Store.open(part, read_only=True) as store:
                into.merge(store)
    result = audit.run_sync()
    assert (result.complete, result.models[0].asked) == (True, 0)
    return said(result), asked


def compare(model: str, ways: list[str], items: int) -> bool:
    """Print a line for each way; whether all reports are equal."""
    first, equal = None, True
    for way in ways:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            text, asked = report(model, way, items, Path(folder))
        first = first or text
        equal &= text == first
        values, digest = len(text.encode()), hashlib.sha256(text.encode()).hexdigest()[:16]
        answer = "equal" if text == first else "DIFFERS"
        print(
            f"{model:8} {way:26} asked {asked:4} {values:9,} bytes {digest} {answer}"
            f" {time.monotonic() - started:6.0f} s",
            flush=True,
        )
    return equal


def main() -> int:
    """1 if a report differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--items", type=int, default=12, help="of the suite's items")
    given = parser.parse_args()
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", PYTHONPATH=os.getcwd())
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    equal = [compare(model, given.ways, given.items) for model in given.models]  # each is printed, whatever the others
    return 0 if all(equal) else 1


if __name__ == "__main__":
    raise SystemExit(main())
