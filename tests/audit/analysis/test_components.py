"""Variance components: the ANOVA estimates, planted truths."""

from __future__ import annotations

import numpy as np
import pytest

from audit.analysis.power import suite_components
from audit.analysis.table import Table
from suites.base import IdentifiedInterval, MeasureSpec, Row

N, M = 30, 20
SPEC = MeasureSpec("gap", "gap", clusters=("occupation", "template"), kind="difference", primary=True)


def values(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 0.3, (N, 1)) + rng.normal(0, 0.2, (1, M)) + rng.normal(0, 0.1, (N, M))


def table_of(of: np.ndarray) -> Table:
    return Table.of(
        Row(f"{o}/{t}", {"occupation": o, "template": t}, {"gap": IdentifiedInterval.exact(float(value))})
        for (o, t), value in np.ndenumerate(of)
    )


def test_a_balanced_design_gives_the_anova_estimates() -> None:
    y = values(0)
    rows, columns = y.mean(1), y.mean(0)
    rest = ((y - rows[:, None] - columns + y.mean()) ** 2).sum() / ((N - 1) * (M - 1))
    (found,) = suite_components("s", {"a": table_of(y)}, [SPEC])
    assert found.in_figure == pytest.approx({"occupation": rows.var(ddof=1) / N, "template": columns.var(ddof=1) / M})
    assert found.of_items == pytest.approx(rest / (N * M))


def test_differences_have_components_of_their_own() -> None:
    y, noise = values(2), np.random.default_rng(3).normal(0, 0.01, (N, M))
    found = suite_components("s", {"a": table_of(y), "b": table_of(y + noise)}, [SPEC])
    assert [(one.model, one.against) for one in found] == [("a", None), ("b", None), ("b", "a")]
    assert (found[0].levels, found[0].n_items) == ({"occupation": N, "template": M}, N * M)
    assert found[2].of_items == pytest.approx(1e-4 / (N * M), rel=0.2)
    assert max(found[2].in_figure.values()) < 1e-5


def test_one_level_separates_nothing() -> None:
    assert suite_components("s", {"m": table_of(values(4)[:1, :1])}, [SPEC]) == []
