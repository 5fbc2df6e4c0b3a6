"""Variance components: planted truths, statsmodels' mixed model, Cronbach's alpha."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import special

from audit.analysis.components import Components, components
from audit.analysis.estimators import Strata, ValueKind, mean_of_kind
from audit.analysis.power import Design, smallest_found


def crossed(seed: int, n_a: int = 30, n_b: int = 20, sd: tuple[float, ...] = (0.3, 0.2, 0.1)) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(n_a), np.arange(n_b), indexing="ij"))
    values = rng.normal(0, sd[0], n_a)[a] + rng.normal(0, sd[1], n_b)[b] + rng.normal(0, sd[2], a.size)
    return values, a, b


def test_a_balanced_design_gives_the_anova_estimates() -> None:
    values, a, b = crossed(0)
    table = values.reshape(30, 20)
    of_a, of_b = table.mean(1), table.mean(0)
    rest = table - of_a[:, None] - of_b + table.mean()
    cross = (rest**2).sum() / (29 * 19)
    found = components(values, {"a": a, "b": b})
    assert found is not None
    assert found.cross == pytest.approx(cross)
    assert found.factors == pytest.approx({"a": of_a.var(ddof=1) - cross / 20, "b": of_b.var(ddof=1) - cross / 30})
    assert found.sampling is None
    assert found.in_figure == pytest.approx(found.factors)


def test_generalisability_is_cronbachs_alpha_when_balanced() -> None:
    values, a, b = crossed(1)
    table = values.reshape(30, 20)
    alpha = 20 / 19 * (1 - table.var(axis=0, ddof=1).sum() / table.sum(axis=1).var(ddof=1))
    found = components(values, {"a": a, "b": b})
    assert found is not None
    assert found.generalisability(20) == pytest.approx(alpha)


def test_an_unbalanced_design_agrees_with_a_mixed_model() -> None:
    """REML of statsmodels with crossed random effects, a third of the cells missing."""
    values, a, b = crossed(2)
    kept = np.random.default_rng(3).random(a.size) < 0.67
    values, a, b = values[kept], a[kept], b[kept]
    found = components(values, {"a": a, "b": b})
    frame = pd.DataFrame({"y": values, "a": a, "b": b, "one": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = smf.mixedlm("y ~ 1", frame, groups="one", vc_formula={"a": "0 + C(a)", "b": "0 + C(b)"}).fit()
    assert found is not None
    assert [found.factors["a"], found.factors["b"]] == pytest.approx(list(fitted.vcomp), rel=0.05)
    assert found.cross == pytest.approx(fitted.scale, rel=0.05)


def test_repeats_tell_sampling_from_cross_without_bias() -> None:
    rng = np.random.default_rng(4)
    a, b, _ = (x.ravel() for x in np.meshgrid(np.arange(12), np.arange(8), np.arange(3), indexing="ij"))
    found = []
    for _ in range(300):
        cell = rng.normal(0, 0.4, (12, 8))[a, b]
        values = rng.normal(0, 0.5, 12)[a] + rng.normal(0, 0.3, 8)[b] + cell + rng.normal(0, 0.6, a.size)
        one = components(values, {"a": a, "b": b})
        assert one is not None
        found.append([one.factors["a"], one.factors["b"], one.cross, one.sampling])
    assert np.mean(found, axis=0) == pytest.approx([0.25, 0.09, 0.16, 0.36], rel=0.1)


def test_a_template_that_favours_one_gender_cancels_in_the_gap() -> None:
    rng = np.random.default_rng(5)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(40), np.arange(25), indexing="ij"))
    strata = (a >= 20).astype(np.intp)
    lean = rng.normal(0, 0.3, 25)[b] * np.where(strata == 0, 1, -1)
    values = rng.normal(0, 0.1, 40)[a] + lean + 0.4 * strata + rng.normal(0, 0.05, a.size)
    found = components(values, {"a": a, "b": b}, strata, np.array([0.5, 0.5]))
    assert found is not None
    assert found.factors["b"] == pytest.approx(0.09, rel=0.6)
    assert found.in_figure["b"] < 0.02 * found.factors["b"]
    assert found.in_figure["a"] == pytest.approx(found.factors["a"])


def test_the_planned_variance_is_that_of_new_designs() -> None:
    truth = Components({"a": 0.09, "b": 0.04}, 0.01, None, {"a": 0.09, "b": 0.04}, 1.0)
    means = np.array([crossed(seed, 60, 60)[0].mean() for seed in range(2000)])
    t = special.stdtrit(59 * (0.09 + 0.04) ** 2 / (0.09**2 + 0.04**2), 0.975)  # about: each factor has 59 df
    assert truth.half_width({"a": 60, "b": 60}, confidence=0.95) == pytest.approx(t * means.std(), rel=0.04)
    assert (
        truth.minimum_detectable_effect({"a": 15, "b": 8})
        > truth.minimum_detectable_effect({"a": 30, "b": 8})
        > truth.minimum_detectable_effect({"a": 30, "b": 80})
    )


def test_one_level_of_each_factor_tells_nothing() -> None:
    assert components(np.array([0.1, 0.2]), {"a": np.zeros(2, dtype=np.intp)}) is None


def uneven_groups(rng: np.random.Generator, draws: int = 1) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Values (n, draws) of 8 occupations that vary by 0.4, and 20 by 0.1, over 25 templates; clusters and strata."""
    deviation = np.r_[np.full(8, 0.4), np.full(20, 0.1)][:, None, None]
    values = deviation * rng.normal(size=(28, 1, draws)) + rng.normal(0, 0.05, (1, 25, draws))
    values = values + rng.normal(0, 0.1, (28, 25, draws))
    a, b = (codes.ravel() for codes in np.indices((28, 25)))
    return values.reshape(700, draws), {"a": a, "b": b}, (a >= 8).astype(np.intp)


def test_variances_of_unequal_groups_are_their_own() -> None:
    rng, halves = np.random.default_rng(2), np.array([0.5, 0.5])
    found = []
    for _ in range(40):
        values, clusters, strata = uneven_groups(rng)
        one = components(values[:, 0], clusters, strata, halves)
        assert one is not None
        found.append([own for _, own in one.by_stratum["a"]])
    assert np.mean(found, axis=0) == pytest.approx([0.16, 0.01], rel=0.2)
    assert list(one.by_stratum) == ["a"], "templates cross the groups"


def test_the_smallest_difference_is_found_in_uneven_groups() -> None:
    """By the pooled variance 23 % were found in place of 80."""
    rng, halves, powers = np.random.default_rng(3), np.array([0.5, 0.5]), []
    for _ in range(6):
        pilot, clusters, strata = uneven_groups(rng)
        one = components(pilot[:, 0], clusters, strata, halves)
        assert one is not None
        design = Design({"a": 28, "b": 25}, uneven={"a": [(0.5, 8), (0.5, 20)]})
        finds = smallest_found(one, design, alpha=0.05)
        values = uneven_groups(rng, 200)[0] + finds
        codes, kind = list(clusters.values()), ValueKind(-4.0, 4.0, is_change=True)
        estimate = mean_of_kind(values, codes, kind, Strata(strata, halves))
        powers.append(((estimate.p_two_sided() < 0.05) & (estimate.value > 0)).mean())
    assert np.mean(powers) >= 0.65


def test_a_strict_level_takes_more_with_few_templates() -> None:
    """Where a suite's figures share 5 %, each is decided in the tails, which are longer with five templates."""
    truth = Components({"a": 0.0025, "b": 0.01}, 0.01, None, {"a": 0.0025, "b": 0.01}, 1.0)
    one_factor = Components({"b": 0.01}, 0.01, None, {"b": 0.01}, 1.0)
    for found, levels, is_longer in ((truth, {"a": 20, "b": 5}, True), (one_factor, {"b": 5}, False)):
        usual, strict = (found.half_width(levels, confidence=level) for level in (0.95, 0.9995))
        df = found._error(levels, 1.0, {}).df
        by_t = special.stdtrit(df, 0.99975) / special.stdtrit(df, 0.975)
        assert (strict / usual > 1.1 * by_t) == is_longer
        assert strict / usual >= by_t - 1e-9
