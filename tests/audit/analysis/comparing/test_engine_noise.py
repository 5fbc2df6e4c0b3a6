"""Engine drift on answers made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.analysis.comparing.comparisons import compare_models, rank_models
from audit.analysis.comparing.engine_noise import DRAWN_PROMPTS, engine_drift, total_variation, with_engine_noise
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
    assert (found.variation_max, found.variation_mean, found.farthest) == (pytest.approx(0.1), pytest.approx(0.05), "0")
    assert found.quantities["p"] == pytest.approx({"n": 2, "mean": -0.025, "mean_abs": 0.075, "max_abs": 0.1})
    first, second, third = found.prompts
    assert (first.item, first.logprob, first.variation) == ("0", pytest.approx(gap / 2), pytest.approx(0.1))
    assert (first.quantities, second.quantities) == ({"p": pytest.approx(-0.1)}, {"p": pytest.approx(0.05)})
    assert (third.logprob, third.variation, third.quantities) == (0.0, None, {})


def test_many_prompts_are_thinned_evenly() -> None:
    answers = {str(i): scored(0.5) for i in range(2500)}
    found = engine_drift("s", "a", "b", answers, answers, rows(), rows())
    kept = [int(prompt.item) for prompt in found.prompts]
    assert found.n_prompts == 2500
    assert (kept[0], len(kept)) == (0, DRAWN_PROMPTS)
    assert set(np.diff(kept)) <= {6, 7}


def test_drift_of_nothing_in_common_is_unknown_and_not_zero() -> None:
    found = engine_drift("s", "a", "b", {"0": scored(0.5)}, {"1": scored(0.5)}, rows(0.1), rows())
    assert (found.n_prompts, found.n_unpaired, found.logprob_mean_abs, found.variation_mean) == (0, 2, None, None)
    assert found.quantities == {}


def test_other_continuations_are_refused() -> None:
    with pytest.raises(ValueError, match="2 continuations on a, 1 on b"):
        engine_drift("s", "a", "b", {"0": scored(0.5, 0.1)}, {"0": scored(0.5)}, rows(), rows())


@given(st.lists(st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)), min_size=1, max_size=8))
def test_total_variation_is_the_largest_difference_of_any_event(pairs: list[tuple[float, float]]) -> None:
    p, q = (np.array(side) / (sum(side) + 0.5) for side in zip(*pairs, strict=True))
    whole_p, whole_q = np.append(p, 1 - p.sum()), np.append(q, 1 - q.sum())
    largest = max(
        abs(sum(whole_p[i] - whole_q[i] for i in range(len(whole_p)) if event >> i & 1))
        for event in range(2 ** len(whole_p))
    )
    assert total_variation(np.log(p), np.log(q)) == pytest.approx(largest)


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
