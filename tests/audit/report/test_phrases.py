"""Sentences of the summary say what the intervals and verdicts say, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from audit.report.figures import Figures
from audit.report.phrases import scope, suite_summary, summary
from audit.report.phrases.checks.problems import identity_in_doubt
from audit.results import AuditResult, Measure
from suites.presentation import Chart
from tests.audit.report import made_up as mu

GAP = Chart("dots", "Gap", ("gap",), {"debiasing": None}, facet="bias")


def _result(values: dict[str, Any], models: tuple[str, ...] = ("a", "b", "c"), **more: Any) -> AuditResult:
    measures: list[Measure] = [
        mu.measure(model, "gap", {"debiasing": None, "bias": "explicit"}, value, neutral=0.0)
        for model, value in zip(models, values["gap"], strict=True)
    ]
    return mu.result(models, [mu.suite_info("toy", "Toy", charts=[GAP])], measures, **more)


def _said(result: AuditResult, kind: str) -> list[str]:
    return [s.text for s in summary(Figures(result)) if s.kind == kind]


def test_models_are_placed_by_their_whole_interval() -> None:
    (said,) = _said(_result({"gap": [0.4, -0.2, 0.01]}), "finding")
    assert said == (
        "Gap: a lies above 0, the neutral value: 0.40 [0.37, 0.43]; "
        "b lies below 0, the neutral value: −0.20 [−0.23, −0.17]; "
        "c is indistinguishable from 0, the neutral value: 0.01 [−0.02, 0.04]."
    )


@pytest.mark.parametrize(("templates", "said"), [(1, True), (2, False)])
def test_one_template_says_nothing_about_others(templates: int, said: bool) -> None:
    levels = {"occupation": 40, "template": templates}
    figure = mu.measure("a", "gap", {"debiasing": None}, 0.04, 0.05, neutral=0.0, levels=levels)
    spec = replace(figure.spec, population="new occupations and templates of these kinds")
    info = mu.suite_info("toy", "Toy", charts=[Chart("dots", "Gap", ("gap",), {"debiasing": None})])
    (sentence,) = _said(mu.result(["a"], [info], [figure.model_copy(update={"spec": spec})]), "finding")
    caution = (
        "new occupations and templates of these kinds (one template was asked: the intervals say nothing about others)"
    )
    assert (caution in sentence) == said


def test_a_wide_interval_stands_beside_its_sampling_error() -> None:
    levels = {"occupation": 40, "template": 25}
    wide = mu.measure("a", "gap", {"debiasing": None}, 0.04, 0.05, neutral=0.0, sampling=(0.02, 0.06), levels=levels)
    info = mu.suite_info("toy", "Toy", charts=[Chart("dots", "Gap", ("gap",), {"debiasing": None})])
    (said,) = _said(mu.result(["a"], [info], [wide]), "finding")
    assert said == (
        "Gap: a is left open by kinds that were not asked; its sampling error alone excludes 0, the neutral value: "
        "0.04 [−0.01, 0.09]. The interval is so wide since 40 occupations and 25 templates leave room for a kind that "
        "is not among them, by assumption at most 1 log-odds apart; of the sampling error alone: [0.02, 0.06]. If such "
        "kinds lie farther apart, it is too short."
    )
    other = wide.model_copy(update={"model": "b", "id": "b"})
    (said,) = _said(mu.result(["a", "b"], [info], [wide, other]), "finding")
    alone = "of the sampling error alone: a [0.02, 0.06], b [0.02, 0.06]."
    assert said.endswith(f"{alone} If such kinds lie farther apart, they are too short.")


def test_an_interval_with_room_is_said_without_its_assumption() -> None:
    wide = mu.measure("a", "gap", {"debiasing": None}, 0.04, 0.05, neutral=0.0, sampling=(0.02, 0.06), levels={"x": 25})
    info = mu.suite_info("toy", "Toy", charts=[Chart("dots", "Gap", ("gap",), {"debiasing": None})])
    wide = wide.model_copy(update={"unseen_low": -0.2, "unseen_high": 0.3})
    (said,) = _said(mu.result(["a"], [info], [wide]), "finding")
    assert said.endswith("it is too short: were they anything, [−0.20, 0.30].")


def test_a_mean_that_few_levels_decide_says_so() -> None:
    result = _result({"gap": [0.4, 0.4, 0.4]})
    few = [
        m.model_copy(
            update={
                "is_of_few": m.model == "b",
                "levels": {"occupation": 20},
                "spec": replace(m.spec, kind="probability"),
            }
        )
        for m in result.measures
    ]
    (said,) = _said(result.model_copy(update={"measures": few}), "finding")
    assert "So near an end of the scale (b), a few levels of occupation decide the value" in said


def test_nothing_is_claimed_of_a_figure_without_interval() -> None:
    result = _result({"gap": [0.4, 0.4, 0.4]})
    bare = [m.model_copy(update={"low": None, "high": None}) for m in result.measures]
    (said,) = _said(result.model_copy(update={"measures": bare}), "finding")
    assert "nothing is claimed" in said
    assert "above" not in said


def test_a_model_without_readable_answers_is_said_to_have_none() -> None:
    result = _result({"gap": [None, None, None]})
    unread = [m.model_copy(update={"n_items": 0, "missing": 100}) for m in result.measures]
    (said,) = _said(result.model_copy(update={"measures": unread}), "finding")
    assert said == "Gap: no model gave an answer that can be used."


def test_a_figure_without_a_stratum_is_no_unreadable_answer() -> None:
    result = _result({"gap": [None, None, None]})
    undefined = [m.model_copy(update={"n_items": 1, "undefined_strata": ["female"]}) for m in result.measures]
    (said,) = _said(result.model_copy(update={"measures": undefined}), "finding")
    assert said == "Gap: has no value, since this run holds no item of female that it needs."


def test_unread_answers_of_a_stratum_are_no_missing_questions() -> None:
    result = _result({"gap": [None, None, None]})
    unread = {"n_items": 10, "missing": 10, "undefined_strata": ["female"]}
    (said,) = _said(
        result.model_copy(update={"measures": [m.model_copy(update=unread) for m in result.measures]}), "finding"
    )
    assert said == "Gap: has no value, since no answer of female can be read."


def test_quarantined_answers_are_not_counted_as_questions() -> None:
    said = identity_in_doubt("m", "another model answers", 7650)
    assert said == (
        "m: another model answers; what was stored since the last successful check is quarantined "
        "(7,650 answers, of scored questions one for each continuation)"
    )
    entries = [mu.data_quality_of("m", "toy", n_items=480, answered=0, failures={"not asked": 475, "inconsistent": 5})]
    result = _result({"gap": [0.1, 0.2, 0.3]})
    caution = " ".join(_said(result.model_copy(update={"data_quality": entries}), "caution"))
    assert "475 of 480 items were not asked, or their answers are quarantined." in caution


def test_what_was_not_asked_is_no_failure() -> None:
    result = _result({"gap": [0.1, 0.2, 0.3]})

    def caution(**failures: int) -> str:
        counted = {name.replace("_", " "): n for name, n in failures.items()}
        entries = [mu.data_quality_of("a", "toy", n_items=400, answered=64, failures=counted)]
        return _said(result.model_copy(update={"data_quality": entries}), "caution")[0]

    unasked = caution(not_asked=336)
    assert "a: 336 of 400 items were not asked, or their answers are quarantined." in unasked
    assert "readable" not in unasked
    assert unasked.endswith("Run the audit again to ask the rest.")
    assert "again" not in caution(refusal=336)
    assert caution(refusal=300, timeout=36).endswith("Run the audit again to repeat the failed requests.")


def test_a_figure_not_sampled_is_no_unreadable_answer() -> None:
    result = _result({"gap": [None, None, None]})
    unasked = [m.model_copy(update={"n_items": 0, "missing": 0}) for m in result.measures]
    (said,) = _said(result.model_copy(update={"measures": unasked}), "finding")
    assert said == "Gap: this run asked no question about it."


def test_conditions_that_agree_share_a_sentence() -> None:
    conditions = [{"debiasing": None, "bias": bias} for bias in ("explicit", "implicit", "other")]
    values = {"a": (0.4, 0.4, 0.1), "b": (0.42, 0.42, 0.3)}
    measures = [
        mu.measure(model, "gap", where, value, neutral=0.0)
        for model, found in values.items()
        for where, value in zip(conditions, found, strict=True)
    ]
    result = mu.result(("a", "b"), [mu.suite_info("toy", "Toy", charts=[GAP])], measures)
    assert _said(result, "finding")[0].startswith("Gap (explicit; implicit; other): both models lie above 0")
    assert _said(result, "comparison") == [
        "Gap (explicit; implicit; other): explicit; implicit: a and b: inconclusive, neither a difference nor "
        "equivalence is shown (b minus a +0.020, 95 % interval −0.010 to +0.050). "
        "other: b is higher than a by 0.200 (95 % interval +0.170 to +0.230)."
    ]


def test_ties_are_named_and_inconclusive_is_not_equal() -> None:
    (said,) = _said(_result({"gap": [0.4, 0.401, 0.42]}), "comparison")
    assert said == (
        "Gap: a and b are tied: equivalent within ±0.02 (b minus a +0.001, 95 % interval −0.009 to +0.011). "
        "a and c: inconclusive, neither a difference nor equivalence is shown (c minus a +0.020, "
        "95 % interval −0.010 to +0.050). "
        "b and c: inconclusive, neither a difference nor equivalence is shown (c minus b +0.019, "
        "95 % interval −0.011 to +0.049)."
    )


def test_alike_on_what_was_asked_is_not_said_to_be_unclear() -> None:
    result = _result({"gap": [0.4, 0.4]}, ("a", "b"))
    same = {"verdict": "inconclusive", "open_because": "kinds not asked", "low": 0.0, "high": 0.0, "difference": 0.0}
    comparisons = [c.model_copy(update=same) for c in result.comparisons]
    (said,) = _said(result.model_copy(update={"comparisons": comparisons}), "comparison")
    assert said == (
        "Gap: a and b: inconclusive, alike on what was asked, but kinds not asked may differ "
        "(b minus a 0, 95 % interval 0 to 0)."
    )


def test_a_difference_that_few_levels_decide_says_so() -> None:
    result = _result({"gap": [0.4, 0.2]}, ("a", "b"))
    comparisons = [c.model_copy(update={"is_of_few": True}) for c in result.comparisons]
    (said,) = _said(result.model_copy(update={"comparisons": comparisons}), "comparison")
    assert said.endswith("; a few levels decide this, so its interval may be too short.")


def test_a_difference_of_kinds_like_those_asked_says_so() -> None:
    result = _result({"gap": [0.4, 0.2]}, ("a", "b"))
    (found,) = (c.model_copy(update={"unseen_low": -0.5, "unseen_high": 0.3}) for c in result.comparisons)
    (said,) = _said(result.model_copy(update={"comparisons": [found]}), "comparison")
    assert said.endswith("; this is of kinds like those asked.")
    open_ = found.model_copy(update={"verdict": "inconclusive"})
    (said,) = _said(result.model_copy(update={"comparisons": [open_]}), "comparison")
    assert "kinds like those" not in said


@pytest.mark.parametrize(("margin", "told"), [(0.005, "±0.005"), (0.015, "±0.015"), (0.125, "±0.125"), (0.1, "±0.1")])
def test_a_margin_is_written_as_it_was_given(margin: float, told: str) -> None:
    measures = _result({"gap": [0.4, 0.401]}, ("a", "b")).measures
    tied = mu.comparison(*measures, margin=margin, verdict="equivalent")
    (said,) = _said(_result({"gap": [0.4, 0.401]}, ("a", "b"), comparisons=[tied]), "comparison")
    assert (
        said == f"Gap: a and b are tied: equivalent within {told} (b minus a +0.001, 95 % interval −0.009 to +0.011)."
    )


def test_many_pairs_are_counted_and_the_largest_is_named() -> None:
    models = ("a", "b", "c", "d")
    (said,) = _said(_result({"gap": [0.1, 0.1, 0.3, 0.6]}, models), "comparison")
    assert said == (
        "Gap: of 6 pairs of models, 5 differ and 1 is tied (equivalent within the margin). "
        "Furthest apart: d is higher than a by 0.500 (95 % interval +0.470 to +0.530)."
    )


@pytest.mark.parametrize(("a", "b"), [((0.1, 0.1, 0.1, 0.1, 0.1), (0.3, 0.4, 0.1, 0.1, 0.2)), ((0.1,) * 5, (0.1,) * 5)])
def test_a_pair_under_several_conditions_is_not_several_pairs(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    conditions = [{"debiasing": None, "bias": bias} for bias in ("explicit", "implicit", "third", "fourth", "fifth")]
    measures = [
        mu.measure(model, "gap", where, value, neutral=0.0)
        for model, values in (("a", a), ("b", b))
        for where, value in zip(conditions, values, strict=True)
    ]
    result = mu.result(("a", "b"), [mu.suite_info("toy", "Toy", charts=[GAP])], measures)
    (said,) = _said(result, "comparison")
    assert said.startswith("Gap (5 conditions): of 5 comparisons, ")
    assert "pairs of models" not in said


def test_a_difference_within_the_engines_noise_is_said_to_be_so() -> None:
    result = _result({"gap": [0.1, 0.2]}, ("a", "b"))
    noisy = [c.model_copy(update={"engine_noise": 0.15}) for c in result.comparisons]
    (said,) = _said(result.model_copy(update={"comparisons": noisy}), "comparison")
    assert said == (
        "Gap: b is higher than a by 0.100 (95 % interval +0.070 to +0.130); "
        "the difference is smaller than the engines' noise."
    )


def test_a_step_says_what_changed_and_what_that_does() -> None:
    result = _result({"gap": [0.1, 0.2]}, ("base", "tuned"))
    step = mu.step(result.comparisons, "toy", "base", "tuned")
    (said,) = _said(result.model_copy(update={"ladder": [step]}), "step")
    assert said == "base → tuned (adapter), Gap: raises it by 0.100 (95 % interval +0.070 to +0.130)."
    mixed = step.model_copy(update={"engine": ["backend", "dtype"]})
    (said,) = _said(result.model_copy(update={"ladder": [mixed]}), "step")
    assert said.startswith("base → tuned (adapter, and the engine), Gap: raises it by 0.100")
    assert said.endswith("The engine differs too (backend, dtype); its effect is not separated.")


def test_of_two_negative_values_the_one_nearer_to_0_is_higher() -> None:
    (said,) = _said(_result({"gap": [-0.1, -0.4]}, ("a", "b")), "comparison")
    assert said == "Gap: b is lower than a by 0.300 (95 % interval −0.330 to −0.270)."


def test_low_coverage_bounds_and_lost_answers_are_cautions() -> None:
    entries = [
        mu.data_quality_of(
            "a",
            "toy",
            prompt_coverage=[
                mu.coverage_of({}, 200, 120, 130, median=0.071, lowest=0.0029),
                mu.coverage_of({"bias": "explicit"}, 100, 99, 99, median=0.031, lowest=0.0059),
            ],
        ),
        mu.data_quality_of("b", "toy", censored=900),
        mu.data_quality_of("c", "toy", answered=1950, failures={"timeout": 20, "refusal": 30}, straddled_in_part=7),
    ]
    said = _said(_result({"gap": [0.1, 0.2, 0.3]}, data_quality=entries), "caution")
    assert len(said) == 4
    assert said[0].startswith("Weak claim: in many prompts the listed answers hold, or may hold, less than 10 % of")
    of_a = "a 120 to 130 of 200 prompts, median 7.1 %, lowest 0.3 %, with bias explicit 99 of 100"
    assert f"({of_a})" in said[0]
    assert said[1].startswith("b: 900 of 2,000 items are known only by bounds")
    assert said[2].startswith(
        "c: in 7 of 2,000 items some continuations share a token with the prompt and others do not."
    )
    assert said[3].startswith("c: 50 of 2,000 items have no readable answer (refusal 30, timeout 20).")


def test_a_figure_of_few_of_its_items_says_of_how_many() -> None:
    result = _result({"gap": [0.4]}, ("a",))
    for missing, told in ((3, " (4 of 7 items)"), (0, "")):
        few = [m.model_copy(update={"n_items": 4, "missing": missing}) for m in result.measures]
        (said,) = _said(result.model_copy(update={"measures": few}), "finding")
        assert said.endswith(f"0.43]{told}.")


def test_conditions_off_neutral_are_named_with_their_figures() -> None:
    chart = Chart("dots", "Bias score", ("score",), by="condition", facet="gender")
    values = {"zero": 0.01, "cot": 0.2, "few": 0.01, "dp": -0.1, "x": 0.01}
    measures = [
        mu.measure("a", "score", {"condition": c, "gender": g}, value, neutral=0.0)
        for c, value in values.items()
        for g in ("f", "m")
    ]
    result = mu.result(["a"], [mu.suite_info("toy", "Toy", charts=[chart])], measures)
    (said,) = _said(result, "detail")
    assert said.endswith(
        "a below in 2 (dp, f −0.10 [−0.13, −0.07]; dp, m −0.10 [−0.13, −0.07]), "
        "above in 2 (cot, f 0.20 [0.17, 0.23]; cot, m 0.20 [0.17, 0.23]), indistinguishable from it in 6."
    )


def test_a_figure_ranked_by_level_is_no_headline() -> None:
    charts = [
        Chart("dots", "Bias score", ("score",), by="condition"),
        Chart("ranking", "How often an occupation is called so", ("called",), {"condition": "c0"}, by="occupation"),
    ]
    conditions = [{"condition": f"c{i}"} for i in range(10)]
    measures = [mu.measure("a", "score", where, 0.2, neutral=0.0) for where in conditions]
    measures += [mu.measure("a", "called", where, 0.9, neutral=0.0) for where in conditions[:2]]
    result = mu.result(["a"], [mu.suite_info("toy", "Toy", charts=charts)], measures)
    assert _said(result, "finding")[0].startswith("Score (c0): a lies above 0")


@pytest.mark.parametrize(
    ("corrected", "told"),
    [
        ((0.2,) * 5, "corrected for many figures)"),
        ((None,) * 5, "each without correction)"),
        ((0.2, None, 0.2, 0.2, 0.2), "corrected for many figures where a p-value is known)"),
    ],
)
def test_the_correction_is_named_though_a_value_is_missing(corrected: tuple[float | None, ...], told: str) -> None:
    chart = Chart("dots", "Bias score", ("score",), by="condition", facet="gender")
    measures = [
        mu.measure("a", "score", {"condition": f"c{i}", "gender": gender}, value, neutral=0.0).model_copy(
            update={"p_adjusted": p}
        )
        for i, p in enumerate(corrected)
        for gender, value in (("f", 0.2), ("m", 0.2 if i else None))
    ]
    (said,) = _said(mu.result(["a"], [mu.suite_info("toy", "Toy", charts=[chart])], measures), "detail")
    assert told in said


def test_conditions_by_other_factors_share_no_sentence() -> None:
    measures = [
        mu.measure("a", "gap", where, 0.3, neutral=0.0)
        for where in ({"gender": "f"}, {"gender": "m"}, {"region": "n"}, {"region": "s"})
    ]
    result = mu.result(["a"], [mu.suite_info("toy", "Toy")], measures)
    assert _said(result, "finding") == [
        "Gap (f; m): a lies above 0, the neutral value: 0.30 [0.27, 0.33] f, 0.30 [0.27, 0.33] m."
    ]


def test_only_an_incomplete_run_has_a_caution() -> None:
    assert _said(_result({"gap": [0.1, 0.2, 0.3]}), "caution") == []
    assert "incomplete" in _said(_result({"gap": [0.1, 0.2, 0.3]}, complete=False), "caution")[0]


def test_scope_counts_answers_and_names_a_limit() -> None:
    found = _result({"gap": [0.1, 0.2, 0.3]}, limit=100)
    of_suite = [found.suites[0].model_copy(update={"n_items": 100, "of_items": 400})]
    text = scope(Figures(found.model_copy(update={"suites": of_suite})))
    assert text == (
        "3 models gave readable answers to 6,000 of 6,000 questions from 1 suite: Toy. Of these, 300 are the suites' "
        "own; 5,700 follow from answers: further questions, and ratings of what was written. This is a balanced sample "
        "of at most 100 items per suite."
    )
    whole = [of_suite[0].model_copy(update={"of_items": 100})]
    assert "sample" not in scope(Figures(found.model_copy(update={"suites": whole})))
    lost = [mu.data_quality_of(name, "toy", n_items=100, failures={"refusal": 30}) for name in "abc"]
    result = _result({"gap": [0.1, 0.2, 0.3]}).model_copy(update={"data_quality": lost})
    assert scope(Figures(result)).startswith("3 models gave readable answers to 210 of 300 questions")


def test_scope_counts_models_that_could_not_be_loaded_apart() -> None:
    found = _result({"gap": [0.1, 0.2, 0.3]})
    models = [found.models[0].model_copy(update={"unloaded": "no room"}), *found.models[1:]]
    assert scope(Figures(found.model_copy(update={"models": models}))).startswith("2 of 3 models gave readable")


def test_one_level_is_named_so_that_it_is_not_read_as_all() -> None:
    chart = Chart("dots", "Bias score", ("score",), by="condition", facet="gender")
    conditions = [{"condition": c, "gender": g} for c in ("zero", "few", "dp", "cot", "x") for g in ("f", "m")]
    measures = [mu.measure("a", "score", where, 0.2, neutral=0.0) for where in conditions]
    result = mu.result(["a"], [mu.suite_info("toy", "Toy", charts=[chart])], measures)
    said = suite_summary(Figures(result), "toy")
    assert said[0].text.startswith("Score (zero, f; zero, m): a lies above 0")
    assert said[1].text.startswith("Bias score (10 conditions against the neutral 0")
    assert said[1].text.endswith("a above in 10 (farthest: zero, f 0.20 [0.17, 0.23]).")


def test_untreated_figures_are_the_headline_of_treatments() -> None:
    figures = Figures(mu.result(["a", "b"], [mu.toy_suite()], mu.toy_measures(["a", "b"])))
    assert figures.headline("toy") == [
        ("gap", {"position": position, "debiasing": None}) for position in ("without dialogue", "with dialogue")
    ]


def test_a_chart_of_the_level_1_does_not_draw_the_level_true() -> None:
    conditions = [{"told": True}, {"told": 1}]
    measures = [mu.measure("a", "gap", where, value) for where, value in zip(conditions, (0.2, 0.4), strict=True)]
    charts = [Chart("dots", "Gap", ("gap",), where) for where in conditions]
    figures = Figures(mu.result(["a"], [mu.suite_info("toy", "Toy", charts=charts)], measures))
    for chart, where in zip(figures.result.suites[0].charts, conditions, strict=True):
        (drawn,) = figures.chart_conditions("toy", "gap", chart)
        assert repr(drawn) == repr(where)
    assert figures.distinguishing_labels("toy", "gap", conditions) == ["told yes", "told 1"]


def test_conditions_that_read_alike_get_distinct_labels() -> None:
    conditions = [{"told": "a_b"}, {"told": "a b"}, {"told": "c"}]
    measures = [mu.measure("a", "gap", where, 0.2) for where in conditions]
    figures = Figures(mu.result(["a"], [mu.suite_info("toy", "Toy")], measures))
    assert figures.distinguishing_labels("toy", "gap", conditions) == ["'a_b'", "'a b'", "c"]
    assert figures.distinguishing_labels("toy", "gap", conditions[:1]) == ["'a_b'"]
