"""Ten models on four suites, 400,000 stored answers: measures, comparisons, rankings. Target: 60 s, 1.5 GB, 2 cores.

    python -m tests.benchmarks.bench_compare

The rows are written to a real store first, outside the clock, and read back from it within.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from audit.analysis.comparing.comparisons import compare_models, rank_models
from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.store import Store, StoredRow
from suites.base import IdentifiedInterval, MeasureSpec, Row

MODELS, SUITES, OCCUPATIONS, TEMPLATES, CONDITIONS = 10, 4, 40, 25, 10
QUANTITIES = ("p_male", "p_female", "p_diverse")


def rows(model: int, suite: int) -> Iterator[StoredRow]:
    """10,000 items; one in 200 missing, one in 100 known only by bounds."""
    rng = np.random.default_rng((model, suite))
    occupation = np.random.default_rng(suite).normal(0.4, 0.1, OCCUPATIONS)
    for (o, t, c), noise in np.ndenumerate(rng.normal(0.01 * model, 0.05, (OCCUPATIONS, TEMPLATES, CONDITIONS))):
        factors = {
            "occupation": f"occupation {o}",
            "template": t,
            "condition": f"condition {c}",
            "share": o / OCCUPATIONS,
        }
        luck = rng.random()
        p = float(np.clip(occupation[o] + noise, 0, 1))
        mass = {"mass": IdentifiedInterval.exact(0.8)}
        exact = {name: IdentifiedInterval.exact(p / (i + 1)) for i, name in enumerate(QUANTITIES)} | mass
        bounded = {name: IdentifiedInterval(None, max(p - 0.01, 0), p + 0.01) for name in QUANTITIES} | mass
        missing = "timeout" if luck < 0.005 else None
        values = {} if missing else bounded if luck > 0.99 else exact
        yield StoredRow(Row(f"{o}/{t}/{c}", factors, values, missing), ())


def specs() -> list[MeasureSpec]:
    """For each quantity and condition: the mean, a correlation, and one figure an occupation. 1,260 in all."""
    clusters = ("occupation", "template")
    found = []
    for quantity in QUANTITIES:
        for c in range(CONDITIONS):
            where = {"condition": f"condition {c}"}
            found.append(
                MeasureSpec(quantity, quantity, where, clusters=clusters, probability_mass="mass", family=quantity)
            )
            found.append(MeasureSpec(f"r_{quantity}", quantity, where, "correlation", clusters, "share", family="r"))
            found += [
                MeasureSpec(
                    quantity, quantity, {**where, "occupation": f"occupation {o}"}, clusters=clusters, is_subgroup=True
                )
                for o in range(OCCUPATIONS)
            ]
    return found


def main() -> None:
    """Print the time and the peak memory."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # each line at once, in a pipe too
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "bench.db") as store:
        for model in range(MODELS):
            for suite in range(SUITES):
                store.runs.write_rows("run", f"model {model}", f"suite {suite}", rows(model, suite))
        written = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        start, work, reading = time.perf_counter(), time.process_time(), 0.0
        n_rows = n_measures = n_comparisons = n_rankings = 0
        for suite in range(SUITES):
            by_model = {}
            for model in range(MODELS):
                name, before = f"model {model}", time.process_time()
                by_model[name] = [stored.row for stored in store.runs.read_rows("run", name, f"suite {suite}")]
                reading += time.process_time() - before
                n_rows += len(by_model[name])
                n_measures += len(
                    measure_table(Table.of(by_model[name]), specs(), model=name, suite=f"suite {suite}", signature={})
                )
            comparisons = compare_models(by_model, specs(), suite=f"suite {suite}")
            n_comparisons += len(comparisons)
            n_rankings += len(rank_models(comparisons))
        seconds, work = time.perf_counter() - start, time.process_time() - work
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{n_rows} rows, {n_measures} measures, {n_comparisons} comparisons, {n_rankings} rankings")
    print(f"{seconds:.1f} s ({work:.1f} s of CPU, {reading:.1f} of them reading the store)")
    print(f"peak {peak:.2f} GB ({written:.2f} GB before the clock)")


if __name__ == "__main__":
    main()
