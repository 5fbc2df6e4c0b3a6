"""Rankings of a store's models: ranks, Spearman's ρ against scipy, its interval, and whose figures count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from audit.analysis.comparing.agreement import agreement, spearman
from audit.report.phrases.history import agreement_scope
from audit.results import AuditResult
from suites.base import MeasureSpec
from tests.audit.report import made_up as mu


def run(
    values: dict[str, dict[str, float]], signature: str = "v:1", n_items: int | None = None, prefix: str = "fp1-"
) -> AuditResult:
    """A result with one primary figure a suite, and a secondary one that nobody ranks.

    ``prefix``: of the models' fingerprints, which end with their names' last letters.
    """
    models = list(dict.fromkeys(model for of_suite in values.values() for model in of_suite))
    measures = [
        mu.measure(
            model,
            name,
            {},
            value,
            suite=suite,
            spec=MeasureSpec(name, name, primary=name == "bias"),
            signature=signature,
            **({} if n_items is None else {"n_items": n_items}),
        )
        for suite, of_suite in values.items()
        for model, value in of_suite.items()
        for name in ("bias", "other")
    ]
    found = mu.result(models, [mu.suite_info(suite, suite) for suite in values], measures, comparisons=[])
    known = [m.model_copy(update={"fingerprint_id": f"{prefix}{m.name[-1]}"}) for m in found.models]
    return found.model_copy(update={"models": known})


@pytest.mark.parametrize("ties", [False, True])
def test_rho_is_scipys(ties: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=9)
    y = x + rng.normal(size=9)
    if ties:
        x, y = x.round(), y.round()
    found, low, high = spearman(x.tolist(), y.tolist(), 0.95)
    assert found == pytest.approx(stats.spearmanr(x, y).statistic)
    assert low < found < high


def test_ranks_are_shared_by_equal_values() -> None:
    (figure,) = agreement([run({"one": {"a": 0.2, "b": 0.5, "c": 0.5, "d": 0.1}})]).figures
    assert figure.ranks == {"a": 3, "b": 1.5, "c": 1.5, "d": 4}


def test_the_interval_is_bonett_and_wrights() -> None:
    x, y = [1, 2, 3, 4, 5, 6, 7, 8], [2, 1, 4, 3, 6, 5, 8, 7]
    rho, low, high = spearman(x, y, 0.95)
    reach = 1.959964 * math.sqrt((1 + rho**2 / 2) / 5)
    assert (low, high) == pytest.approx((math.tanh(math.atanh(rho) - reach), math.tanh(math.atanh(rho) + reach)))


def test_a_perfect_order_has_an_interval_that_is_not_a_point() -> None:
    rho, low, high = spearman([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 0.95)
    assert (rho, high) == (pytest.approx(1), 1)
    assert low < 0.3
    assert spearman([1, 2, 3, 4, 5], [5, 4, 3, 2, 1], 0.95)[1:] == (-1, pytest.approx(-low))


def test_few_models_have_no_interval_and_a_constant_no_rho() -> None:
    assert spearman([1, 2, 3, 4], [1, 2, 4, 3], 0.95) == (pytest.approx(0.8), None, None)
    assert spearman([1, 2, 3, 4, 5], [7, 7, 7, 7, 7], 0.95) == (None, None, None)


def test_only_primary_figures_of_different_suites_are_paired() -> None:
    values = {"a": 0.1, "b": 0.2, "c": 0.4, "d": 0.3, "e": 0.5}
    found = agreement([run({"one": values, "two": {**values, "f": 0.9}})])
    assert [(figure.suite, figure.measure) for figure in found.figures] == [("one", "bias"), ("two", "bias")]
    (pair,) = found.correlations
    assert (pair.n_models, pair.rho) == (5, pytest.approx(1))
    assert found.models == ["a", "b", "c", "d", "e", "f"]


def test_a_models_latest_run_of_one_way_of_asking_counts() -> None:
    first = run({"one": {"a": 0.1, "b": 0.2, "old": 0.5}}, signature="v:1")
    again = run({"one": {"a": 0.3}}, signature="v:2|limit:20")
    last = run({"one": {"b": 0.4}}, signature="v:2|limit:50")
    (figure,) = agreement([first, again, last]).figures
    assert figure.values == {"a": 0.3, "b": 0.4}
    assert figure.ranks == {"a": 2, "b": 1}
    assert figure.left_out == ["old"]


def test_models_of_one_label_are_told_apart_by_fingerprint() -> None:
    """A label that points at a new checkpoint: rankings of models that do not exist had a correlation of -1."""
    up = {f"m{i}": i / 10 for i in range(1, 7)}
    first = run({"one": up, "two": up}, prefix="fp1-c")
    down = {name: 1 - value for name, value in up.items()}
    found = agreement([first, run({"two": down}, prefix="fp1-d")])
    (pair,) = found.correlations
    assert (pair.n_models, pair.rho) == (6, pytest.approx(1))
    assert len(found.models) == 12
    assert {"m1 (fp1-c1)", "m1 (fp1-d1)"} <= set(found.models)


def test_a_later_sample_replaces_no_figure_of_more_items() -> None:
    whole = run({"one": {"a": 0.1, "b": 0.2}}, n_items=262)
    sample = run({"one": {"a": 0.9}}, signature="v:1|limit:20", n_items=20)
    (figure,) = agreement([whole, sample]).figures
    assert (figure.values, figure.items) == ({"b": 0.2, "a": 0.1}, {"b": 262, "a": 262})
    other = run({"one": {"a": 0.9}}, signature="v:2|limit:20", n_items=20)  # asked otherwise: that is the latest
    (figure,) = agreement([whole, other]).figures
    assert (figure.values, figure.left_out) == ({"a": 0.9}, ["b"])
    fewer = agreement([run({"one": {"b": 0.2}}, n_items=262), sample])
    said = "one: bias, overall: the models were not asked the same number of items (b 262, a 20)."
    assert said in agreement_scope(fewer, 5)
