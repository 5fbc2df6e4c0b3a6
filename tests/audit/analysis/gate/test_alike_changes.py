"""Changes that are the same in all items, or of yes and no; and what a gate says of those that it leaves open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.report.exports import gate_markdown
from suites.base import IdentifiedInterval, Row
from tests.audit.analysis.gate.test_against_baseline import BASE, GAP, Run, gate_of, noise


@pytest.mark.parametrize("sd", [0.0, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("kind", ["probability", "difference"])
@pytest.mark.parametrize("shape", [(20, 12), (12, 5)])
def test_a_regression_of_all_items_alike_fails_the_gate(sd: float, kind: str, shape: tuple[int, int]) -> None:
    if shape == (12, 5) and sd == 0.05:
        return  # five templates tell too little of so much noise
    spec, base = replace(GAP, kind=kind), np.random.default_rng(0).uniform(0.1, 0.3, shape)
    report = gate_of(Run(base + 0.05 + noise(1, sd, base.shape), spec), Run(base, spec))
    assert (report.figures[0].verdict, report.exit_code) == ("regressed", 3)


@pytest.mark.parametrize(("flips", "verdict"), [(5, "inconclusive"), (24, "regressed"), (192, "regressed")])
def test_regression_of_yes_and_no_is_found_beyond_chance(flips: int, verdict: str) -> None:
    order = np.random.default_rng(1).permutation(240)
    before, now = np.repeat([1.0, 0.0], [48, 192]), np.repeat([1.0, 0.0], [48 + flips, 192 - flips])
    runs = (Run(x[order].reshape(20, 12), replace(GAP, kind="probability")) for x in (now, before))
    assert gate_of(*runs).figures[0].verdict == verdict


def test_a_gate_that_passes_counts_what_is_undecided() -> None:
    specs = [replace(GAP, measure="one"), replace(GAP, measure="two", quantity="q")]
    rows = [[Row(f"{o}/{t}", {"occupation": o, "template": t},
                 {"p": IdentifiedInterval.exact(float(v)), "q": IdentifiedInterval.exact(float(v + wide * (o % 2)))})
             for (o, t), v in np.ndenumerate(BASE)] for wide in (0.0, 0.04)]  # fmt: skip
    now, before = (Run(BASE, *specs, rows=of_run) for of_run in reversed(rows))
    report = gate_of(now, before, largest_change=0.01)
    assert [figure.verdict for figure in report.figures] == ["unchanged", "inconclusive"]
    assert (report.exit_code, gate_of(now, before, open_fails="all").exit_code) == (0, 3)
    assert gate_markdown(report).startswith("# Gate passed: 2 checks, 1 of them undecided")
