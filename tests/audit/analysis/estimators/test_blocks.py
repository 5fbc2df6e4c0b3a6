"""Estimates of many rows are made block by block, and are those of all rows at once."""

from __future__ import annotations

import importlib
import math
import pkgutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from audit.analysis import estimators
from audit.analysis.estimators import Estimate, Floats, Layout, Strata, ValueKind, clusters, few_levels_decide, medians
from audit.analysis.estimators.few_levels import rests_on_few_levels
from audit.analysis.estimators.kinds import mean_of_kind


def set_block(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let blocks have so many rows, in all modules that know the size."""
    for found in pkgutil.iter_modules(estimators.__path__):
        module = importlib.import_module(f"{estimators.__name__}.{found.name}")
        if hasattr(module, "BLOCK"):
            monkeypatch.setattr(module, "BLOCK", size)


def numbers(estimate: Estimate) -> Floats:
    """All numbers of an estimate."""
    sides = (*estimate.reach, *(estimate.sampled or ()))
    return np.concatenate([estimate.value, estimate.se, estimate.df, *(part for side in sides for part in side)])


def design(n: int, seed: int) -> tuple[Floats, list[np.ndarray], Strata]:
    """Probabilities (n, 2) over 30 occupations of two groups and 7 templates."""
    draw = np.random.default_rng(seed)
    occupation, template = draw.integers(0, 30, n), draw.integers(0, 7, n)
    effects = draw.normal(size=30)[occupation] + draw.normal(size=7)[template]
    values = 1 / (1 + np.exp(2 - effects[:, None] - draw.normal(size=(n, 2))))
    return values, [occupation, template], Strata(occupation % 2, np.array([0.3, 0.7]))


KINDS = {
    "real": ValueKind(-math.inf, math.inf),
    "probability": ValueKind(0.0, 1.0, is_probability=True),
    "count": ValueKind(0.0, 1.0, is_count=True, is_probability=True),
    "change": ValueKind(-1.0, 1.0, is_change=True),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n_factors", [0, 1, 2])
def test_blocks_give_the_estimate_of_all_rows(monkeypatch, name, n_factors):
    values, factors, strata = design(500, n_factors)
    values = {"count": (values > 0.2).astype(float), "change": values - values[::-1]}.get(name, values)
    for groups in (None, strata):
        whole = mean_of_kind(values, factors[:n_factors], KINDS[name], groups)
        with monkeypatch.context() as patched:
            set_block(patched, 37)
            in_blocks = mean_of_kind(values, factors[:n_factors], KINDS[name], groups)
        np.testing.assert_allclose(numbers(in_blocks), numbers(whole), rtol=1e-10, atol=1e-13)


def test_blocks_find_the_same_few_levels_and_layout(monkeypatch):
    values, factors, strata = design(500, 3)
    values[factors[0] == 4] = 1.0
    rare = values[:, 0] * 0.02

    def found():
        layout = Layout.of(500, [factor * 7 + 3 for factor in factors], strata)
        few = few_levels_decide(values, factors, strata).tolist(), rests_on_few_levels(rare, factors)
        return few, layout.key, [codes.tolist() for codes in layout.clusters]

    whole = found()
    set_block(monkeypatch, 37)
    assert found() == whole


@pytest.mark.parametrize("n", [38, 39, 500])
def test_medians_of_many_rows_are_exact(monkeypatch, n):
    draw = np.random.default_rng(n)
    columns = np.column_stack([draw.normal(size=n) * 10.0 ** draw.integers(-300, 300, n), draw.integers(-1, 2, n)])
    strata = Strata(np.arange(n) % 2, np.array([0.5, 0.5]))
    whole = medians.medians(columns, strata)
    set_block(monkeypatch, 37)
    assert medians.medians(columns, strata).tobytes() == (whole + 0.0).tobytes()


def test_combinations_of_huge_factors_are_told_apart():
    """Their mixed code takes more than 64 bits: what lies beyond fell away, and other levels seemed the same."""
    draw = np.random.default_rng(0)
    factors = [draw.choice([0, 2**13, 2**17 - 1], 300) for _ in range(4)]
    found = clusters.combinations(factors)
    rows = [tuple(map(int, row)) for row in zip(*factors, strict=True)]
    assert found.number == len(set(rows))
    assert found.of(slice(None)).tolist() == [sorted(set(rows)).index(row) for row in rows]
    assert [tuple(map(int, row)) for row in zip(*found.levels, strict=True)] == sorted(set(rows))


def test_combinations_that_occur_are_numbered_in_order(monkeypatch):
    draw = np.random.default_rng(1)
    for most in (5, 10**6):  # with a table of all, and where that would be mostly empty
        a, b = draw.integers(0, most, 300), draw.integers(0, 3, 300)
        set_block(monkeypatch, 37)
        found = clusters.combinations([a, b])
        levels, own = np.unique(np.column_stack([a, b]), axis=0, return_inverse=True)
        assert np.concatenate([found.of(rows) for rows in clusters.blocks(300)]).tolist() == own.ravel().tolist()
        assert np.column_stack(found.levels).tolist() == levels.tolist()


def test_a_mean_of_many_rows_takes_little_beside_them():
    """It took 240 bytes a row beside the values and the layout."""
    n = 8 * clusters.BLOCK
    values, factors, strata = design(n, 5)
    kind, values = replace(KINDS["probability"]), values[:, :1].copy()
    layout = Layout.of(n, factors, strata)
    tracemalloc.start()
    try:
        mean_of_kind(values, layout.clusters, kind, layout.strata)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * n
