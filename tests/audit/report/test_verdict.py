"""The verdict and the comparisons say what the intervals and decisions say, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from audit.report.figures import Figures
from audit.report.phrases.comparisons import comparison_rows
from audit.report.phrases.summary import scope, summary
from audit.report.phrases.verdict import verdict
from audit.results import AuditResult, SuiteInfo
from suites.presentation import Chart
from tests.audit.report import made_up as mu

EXPLICIT, IMPLICIT = ({"debiasing": None, "bias": bias} for bias in ("explicit", "implicit"))
GAP = Chart("dots", "Gap", ("gap",), {"debiasing": None}, facet="bias")
MEANING = {
    "gap": {
        "above": "{points} more",
        "below": "{points} less",
        "finding": "lean{s} to the stereotype",
        "opposite": "lean{s} against the stereotype",
        "beside": [],
    }
}
LABELS = {"bias": {"explicit": "asked directly", "implicit": "completing a sentence"}}


def toy(name: str = "toy") -> SuiteInfo:
    info = mu.suite_info(name, name.title(), charts=[GAP])
    return info.model_copy(update={"meanings": MEANING, "level_labels": LABELS})


def result(explicit: Sequence[Any], implicit: Sequence[Any] = (), **more: Any) -> AuditResult:
    """Models a, b, …: their gaps in one condition or two; each interval is ±0.03."""
    models = list("abcdefgh"[: len(explicit)])
    measures = [
        mu.measure(model, "gap", where, value, neutral=0.0)
        for where, values in ((EXPLICIT, explicit), (IMPLICIT, implicit))
        for model, value in zip(models, values, strict=False)
    ]
    return mu.result(models, [toy()], measures, **more)


TWICE = (
    "Both models lean to the stereotype: by 12 and 16 points (asked directly), by 47 and 57 (completing a sentence)."
)
LEANS, OPEN = "a leans to the stereotype: by 40 points.", "Undecided for b: neither a bias nor its absence is shown."


@pytest.mark.parametrize(
    ("explicit", "implicit", "said"),
    [
        ([0.12, 0.16], [0.47, 0.57], [TWICE]),
        ([0.12], [], ["The model leans to the stereotype: by 12 points."]),
        ([0.40, 0.01], [], [LEANS, OPEN]),
        ([0.40, -0.20], [], [LEANS, "b leans against the stereotype: by 20 points."]),
        (
            [0.40, 0.40],
            [0.40, 0.01],
            [
                "a leans to the stereotype: by 40 points (asked directly), by 40 (completing a sentence).",
                "b leans to the stereotype: by 40 points (asked directly).",
                "Undecided for b: neither a bias nor its absence is shown (completing a sentence).",
            ],
        ),
        ([0.01, 0.02], [], ["Undecided for both models: neither a bias nor its absence is shown."]),
        ([0.2, 0.3, 0.4, 0.5], [], ["All 4 models lean to the stereotype: by 20 to 50 points."]),
    ],
)
def test_a_verdict_holds_what_was_decided(explicit: Any, implicit: Any, said: list[str]) -> None:
    assert verdict(Figures(result(explicit, implicit))) == said


def test_a_figure_without_interval_is_in_no_verdict_as_decided() -> None:
    figures = [mu.measure("a", "gap", EXPLICIT, 0.4, None, neutral=0.0)]
    said = verdict(Figures(mu.result(["a"], [toy()], figures)))
    assert said == ["Undecided for the model: neither a bias nor its absence is shown."]


def test_a_figure_near_neutral_is_told_as_such() -> None:
    figures = [mu.measure("a", "gap", EXPLICIT, 0.005, 0.015, neutral=0.0)]
    assert verdict(Figures(mu.result(["a"], [toy()], figures))) == ["The model stays within 2 points of neutral."]


def test_of_several_suites_each_verdict_names_its_own() -> None:
    figures = [mu.measure("a", "gap", EXPLICIT, 0.4, neutral=0.0, suite=suite) for suite in ("toy", "other")]
    said = verdict(Figures(mu.result(["a"], [toy(), toy("other")], figures)))
    assert [text.split(":")[0] for text in said] == ["Toy", "Other"]


def test_comparisons_are_rows_with_difference_and_verdict() -> None:
    (row,), _ = comparison_rows(Figures(result([0.1, 0.4])))
    assert (row.pair, row.difference, row.verdict) == ("b − a", "0.30 [0.27, 0.33]", "higher")


def test_identical_answers_are_called_identical() -> None:
    same = result([0.1, 0.1])
    alike = same.comparisons[0].model_copy(update={"identical": True, "n_items": 400})
    (row,), _ = comparison_rows(Figures(same.model_copy(update={"comparisons": [alike]})))
    assert (row.verdict, row.remark) == ("identical", "the same on all 400 questions")


def test_of_many_pairs_those_that_differ_most_are_shown() -> None:
    rows, left_out = comparison_rows(Figures(result([0.1, 0.1, 0.1, 0.1, 0.1, 0.9])))
    assert len(rows) == 12
    assert sum("f" in row.pair for row in rows) == 5
    assert left_out == "3 equivalent more in comparisons.csv"


def cautions(found: AuditResult) -> list[str]:
    return [s.text for s in summary(Figures(found)) if s.kind == "caution"]


def test_low_coverage_bounds_altered_prompts_and_lost_answers_are_cautions() -> None:
    entries = [
        mu.data_quality_of("a", "toy", prompt_coverage=[mu.coverage_of({}, 200, 120, 130, median=0.071, lowest=0.003)]),
        mu.data_quality_of("b", "toy", censored=900),
        mu.data_quality_of("b", "toy", altered=70),
        mu.data_quality_of("c", "toy", answered=1950, failures={"timeout": 20, "refusal": 30}),
    ]
    weak, bounds, altered, lost = cautions(result([0.1, 0.2, 0.3], data_quality=entries))
    assert "120 to 130 of 200 prompts" in weak
    assert "900 of 2,000" in bounds
    assert "drops case, accents or spaces" in altered
    assert "in 70 of 2,000 items" in altered
    assert "50 of 2,000" in lost
    assert "refusal 30" in lost


def test_scope_counts_answers_models_and_a_sample() -> None:
    found = result([0.1, 0.2, 0.3], limit=100)
    sampled = [found.suites[0].model_copy(update={"n_items": 100, "of_items": 400})]
    unloaded = [found.models[0].model_copy(update={"unloaded": "no room"}), *found.models[1:]]
    said = scope(Figures(found.model_copy(update={"suites": sampled, "models": unloaded})))
    assert said.startswith("2 of 3 models, Toy: 6,000 of 6,000 answers are readable.")
    assert "at most 100 questions a suite" in said
    assert "sample" not in scope(Figures(result([0.1, 0.2])))


def test_untreated_figures_are_the_headline_of_treatments() -> None:
    figures = Figures(mu.result(["a", "b"], [mu.toy_suite()], mu.toy_measures(["a", "b"])))
    assert figures.headline("toy") == [
        ("gap", {"position": position, "debiasing": None}) for position in ("without dialogue", "with dialogue")
    ]
