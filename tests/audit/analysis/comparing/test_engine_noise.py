"""Engine drift on answers made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from audit.analysis.comparing.comparisons import compare_models, rank_models
from audit.analysis.comparing.engine_noise import engine_drift, with_engine_noise
from audit.analysis.table import Table
from audit.report.phrases.comparisons import describe
from suites.base import IdentifiedInterval, MeasureSpec, Row


def scored(*probabilities: float | None) -> np.ndarray:
    """Log-probabilities; None: only bounded."""
    return np.array([math.nan if p is None else math.log(p) for p in probabilities])


def rows(*values: float | None) -> Table:
    return Table.of(
        Row(
            str(i),
            {"occupation": i},
            {} if v is None else {"p": IdentifiedInterval.exact(v)},
            "timeout" if v is None else None,
        )
        for i, v in enumerate(values)
    )


def test_drift_by_hand() -> None:
    found = engine_drift(
        "s", "hf", "gguf",
        {"0": scored(0.5, 0.25), "1": scored(0.2, 0.4), "2": scored(0.1, 0.1), "3": scored(0.1)},
        {"0": scored(0.4, 0.25), "1": scored(0.2, 0.4), "2": scored(0.1, None), "4": scored(0.3)},
        rows(0.5, 0.2, None), rows(0.4, 0.25, 0.3),
    )  # fmt: skip
    gap = math.log(0.4 / 0.5)
    assert (found.n_prompts, found.n_logprobs, found.n_unpaired) == (3, 5, 3)
    assert found.logprob_mean == pytest.approx(gap / 5)
    assert found.logprob_mean_abs == pytest.approx(-gap / 5)
    assert found.logprob_max_abs == pytest.approx(-gap)
    assert found.quantities["p"] == pytest.approx({"n": 2, "mean": -0.025, "mean_abs": 0.075, "max_abs": 0.1})


def test_drift_of_nothing_in_common_is_unknown_and_not_zero() -> None:
    found = engine_drift("s", "a", "b", {"0": scored(0.5)}, {"1": scored(0.5)}, rows(0.1), rows())
    assert (found.n_prompts, found.n_unpaired, found.logprob_mean_abs) == (0, 2, None)
    assert found.quantities == {}


def test_other_continuations_are_refused() -> None:
    with pytest.raises(ValueError, match="2 continuations on a, 1 on b"):
        engine_drift("s", "a", "b", {"0": scored(0.5, 0.1)}, {"0": scored(0.5)}, rows(), rows())


def test_difference_within_engine_noise_is_reported_so() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(0.3, 0.5, 40)
    shifts = {"hf": 0.0, "gguf": 0.03, "near": 0.02, "far": 0.3}
    values = {name: base + shift + rng.normal(0, 0.001, 40) for name, shift in shifts.items()}
    comparisons = compare_models(
        {name: rows(*map(float, v)) for name, v in values.items()}, [MeasureSpec("p", "p")], suite="s", margins=0.001
    )
    found = {(c.a, c.b): c for c in with_engine_noise(comparisons, [("hf", "gguf")])}
    noise = (values["gguf"] - values["hf"]).mean()
    assert found["hf", "gguf"].engine_noise is None
    assert found["hf", "near"].engine_noise == pytest.approx(noise)
    assert "smaller than the engines' noise" in describe(found["hf", "near"])
    share = noise / (values["far"] - values["hf"]).mean()
    assert f"up to {share:.0%} of this difference" in describe(found["hf", "far"])


def test_rankings_have_intervals_and_call_ties_ties() -> None:
    rng = np.random.default_rng(1)
    base = rng.uniform(0.3, 0.5, 60)
    shifts = {"low": 0.0, "high": 0.2, "tied": 0.2, "middle": 0.1}
    values = {name: rows(*map(float, base + shift + rng.normal(0, 0.01, 60))) for name, shift in shifts.items()}
    (ranking,) = rank_models(compare_models(values, [MeasureSpec("p", "p")], suite="s"))
    assert [(r.model, r.best, r.worst) for r in ranking.ranks] == [
        ("high", 1, 2),
        ("tied", 1, 2),
        ("middle", 3, 3),
        ("low", 4, 4),
    ]
    assert [r.tied_with for r in ranking.ranks] == [["tied"], ["high"], [], []]
