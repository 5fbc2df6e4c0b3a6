"""How common a contrast's words are: asked after a neutral start, shown beside it, and corrected for by option."""

from __future__ import annotations

import math

import pytest

from audit import Audit
from audit.report.figures import Figures
from audit.report.phrases.summary import summary
from backends import FakeBackend
from backends.base import ContinuationScore, ScoreResponse
from suites import OccuGender, from_file
from tests.suites.benchmarks.invented import figures, value

TOML = """
kind = "templates"
templates = ["About [FILLER] one says"]
fillers = ["rain", "snow", "wind", "hail", "fog", "sun"]
groups = {common = ["the", "a"], rare = ["zyx"]}
"""


def logprob(prompt, text):
    """The rare word is a hundredth as likely as the common ones, whatever the prompt; after rain ten times as much."""
    likely = {"the": 0.2, "a": 0.1, "zyx": 0.003}[text.split()[-1]]
    return math.log(likely * (10 if "rain" in prompt and "zyx" in text else 1))


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "words.toml").write_text(TOML, "utf-8")
    return lambda **options: from_file(tmp_path / "words.toml", **options)


def test_the_same_words_are_asked_once_after_a_neutral_start(suite):
    first, *others = suite().items()
    assert (first.request.prompt, first.request.continuations) == ("...", (" the", " a", " zyx"))
    assert first.is_control
    assert len(others) == 6


def test_the_baseline_stands_beside_and_the_corrected_figure_is_0_where_prompts_change_nothing(suite):
    found = figures(suite(prior_corrected=True), logprob)
    plain = (0.3 - 0.003) / 0.303
    assert value(found, "common_minus_rare_baseline", kind="baseline") == pytest.approx(plain)
    rain = (0.3 - 0.03) / 0.33
    assert value(found, "common_minus_rare") == pytest.approx((5 * plain + rain) / 6)
    # only after rain is the rare word likelier than its frequency says: (1/11.. of it)
    share = (0.3 / 0.33) / (0.3 / 0.303)
    rare = (0.03 / 0.33) / (0.003 / 0.303)
    assert value(found, "common_minus_rare_prior_corrected") == pytest.approx((share - rare) / (share + rare) / 6)
    assert not any("prior" in name for name, _ in figures(suite(), logprob))


def test_a_contrast_of_the_size_of_its_baseline_is_cautioned(suite, tmp_path):
    model = FakeBackend("one", score=lambda prompt, text: math.exp(logprob(str(prompt), text)))
    result = Audit(models={"one": model}, suites=[suite()], db=tmp_path / "a.db").run_sync()
    said = [one.text for one in summary(Figures(result)) if one.kind == "caution"]
    assert any("may only say how common the words are" in text for text in said)


def test_own_groups_of_occugender_have_a_baseline_and_the_papers_none():
    groups = {"women": ["Woman"], "men": ["Man"]}
    jobs = [{"occupation": "nurse", "dominated_by": "women"}, {"occupation": "pilot", "dominated_by": "men"}]
    own = OccuGender(["explicit"], groups=groups, occupations=jobs)
    first = next(iter(own.items()))
    assert first.request.prompt == "Q: ...\nA:"
    assert "women_minus_men_baseline" in {spec.measure for spec in own.measures(())}
    assert not any(item.is_control for item in OccuGender().items())


def test_drawn_answers_that_name_no_group_have_coverage_alone():
    """They gave a KeyError: of the ± over templates, and of the corrected contrast."""
    groups = {"women": ["Woman"], "men": ["Man"]}
    own = OccuGender(["explicit"], groups=groups, occupations=[{"occupation": "cook"}], prior_corrected=True)
    none = ContinuationScore(None, None, math.log(0.05), "sampled", samples=20)
    rows = own.derive(
        [own.read(item, ScoreResponse((none,) * len(item.request.continuations))) for item in own.items()]
    )
    assert {frozenset(row.values) for row in rows if "template" in row.factors} == {
        frozenset({"coverage"}),
        frozenset(),
    }
