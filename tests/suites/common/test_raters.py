"""A language model as a scorer: the labelled texts that it reads first, and when it is not trusted."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path

import pytest
from scipy import stats

from audit import Audit
from audit.report.page.report_page import report_page
from backends import FakeBackend, LLMRater, Rubric
from backends.base import ClassifyResponse
from suites import BOLD
from suites.base import Row
from suites.common import raters
from suites.common.data_files import load
from suites.common.text_scorer import raters_of, text_scorer
from tests.suites.benchmarks.invented import use

TEXTS = load("labelled_texts").content["texts"]
#: Room for kinds of texts that are not among the 14 toxic and the 26 others, which move by at most one log-odds.
UNSEEN = {n: math.tanh(0.25) * (1 - 0.025 ** (1 / n)) for n in (14, 26)}


def model(
    name: str, *, sharp: float = 0.4, against_women: float = 0.0, of_toxic: float = 0.0, harsh: float = 0.0
) -> FakeBackend:
    """One that says yes with 0.5 ± ``sharp``, right on the labelled texts, and more where a woman or Ada is named.

    ``of_toxic`` is added to that on toxic texts.
    """
    right = {}
    identities = load("labelled_texts").content["identities"]
    for text in TEXTS:
        for words in identities.values():
            capitals = {word.capitalize(): said[0].upper() + said[1:] for word, said in words.items()}
            right[text["text"].format(**words, **capitals)] = text["toxicity"] == "toxic"

    def score(prompt: str, said: str) -> float:
        text = re.findall(r"Text: (.*)\n", prompt)[-1]
        yes = 0.5 + (sharp if right.get(text, False) else -sharp) + (harsh if text not in right else 0.0)
        if re.search(r"\b(woman|her|she|Ada)\b", text, re.IGNORECASE):
            yes += against_women + (of_toxic if right.get(text, False) else 0.0)
        yes = min(max(yes, 0.01), 0.99)
        return 0.9 * (yes if said == " yes" else 1 - yes)

    return FakeBackend(name, score=score)


@pytest.fixture
def bold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    use(monkeypatch, tmp_path)

    def result(rater: FakeBackend | LLMRater):
        writer = FakeBackend(
            "writer", generate=lambda prompt, seed: " Ada knows." if "Ada" in prompt else " Bob knows."
        )
        suite = BOLD(toxicity=rater, regard=None)
        return Audit(models={"writer": writer}, suites=[suite], db=tmp_path / f"{rater.name}.db").run_sync()

    return result


def figure(result, measure, **where):
    (found,) = [m for m in result.measures if m.measure == measure and dict(m.where) == where]
    return found


def test_labelled_texts_have_both_labels_and_no_identity():
    assert len(TEXTS) == 40
    assert {text["toxicity"] for text in TEXTS} == {"toxic", "not toxic"}
    assert {text["regard"] for text in TEXTS} == {"negative", "neutral", "positive"}
    assert all(text["regard"] == "negative" for text in TEXTS if text["toxicity"] == "toxic")
    for text in TEXTS:
        assert re.search(r"\{[Pp]erson\}", text["text"])
        assert not re.search(r"\b(she|he|her|his|him|woman|man)\b", text["text"], re.IGNORECASE)
    shown = [
        example["text"] for rubric in load("rubrics").content["rubrics"].values() for example in rubric["examples"]
    ]
    assert not set(shown) & {text["text"] for text in TEXTS}


def test_a_fair_rater_is_trusted_with_its_separation(bold):
    found = bold(model("fair"))
    assert figure(found, "rater_agreement", kind="labelled toxicity", rater="toxicity").value == 1
    assert figure(found, "rater_answer_mass", kind="labelled toxicity", rater="toxicity").value == pytest.approx(0.9)
    separated = figure(found, "rater_separation", kind="separation of toxicity", of="toxicity")
    assert separated.value == pytest.approx(0.8)
    gap = figure(found, "toxicity_gap", kind="gap", scorer="toxicity")
    assert (gap.value, gap.bound_low, gap.bound_high) == pytest.approx((0.0, -UNSEEN[14], UNSEEN[14]))


def test_a_raters_own_gap_widens_the_groups_difference(bold):
    found = bold(model("slanted", against_women=0.05))
    swapped = figure(found, "rater_swap_gap", kind="swap gap of toxicity", of="toxicity", pair="female minus male")
    assert swapped.value == pytest.approx(0.05)
    gap = figure(found, "toxicity_gap", kind="gap", scorer="toxicity")
    # All that is seen is the rater's own gap, and the bounds say so.
    assert gap.value == pytest.approx(0.05)
    assert gap.bound_low == pytest.approx(-UNSEEN[14])
    assert gap.bound_high == pytest.approx(0.1 + UNSEEN[14])


@pytest.mark.parametrize(
    ("name", "options"),
    [("blind", {"sharp": 0.0}), ("turned", {"sharp": -0.3}), ("biased", {"sharp": 0.1, "against_women": 0.3})],
)
def test_a_rater_with_a_gap_beyond_its_separation_is_refused(bold, name, options):
    found = bold(model(name, **options))
    toxicity = figure(found, "toxicity", kind="toxicity", group="actresses")
    assert (toxicity.value, toxicity.missing) == (None, 2)
    (quality,) = found.data_quality
    assert quality.failures[raters.NOT_TRUSTED] > 0
    # What it was refused for is still shown.
    assert figure(found, "rater_separation", kind="separation of toxicity", of="toxicity").value is not None
    assert "How well the scorers read texts" in report_page(found)


def rated(says):
    """A rater, and what it gives each labelled text: ``says(toxic, group, number)``; None is no answer."""
    rater = raters_of({"toxicity": text_scorer("toxicity", model("made up"))})["toxicity"]
    rows, scores = [], {}
    for number, item in enumerate(raters.labelled_items(rater)):
        label, group = item.factors["label"], item.factors["identity"]
        score = says(label == "toxic", group, number)
        scores.setdefault((item.factors["text"], label), {})[group] = score
        if score is None:
            rows.append(Row(item.id, item.factors, {}, "unreadable"))
        else:
            rows.append(raters.read_labelled(item, rater, ClassifyResponse({"toxic": score, "not toxic": 1 - score})))
    return rater, rows, scores


def trust_in(says):
    rater, rows, _ = rated(says)
    return raters.trust(rows, rater)["toxicity"]


def test_the_limits_are_students():
    def says(toxic, group, i):
        return (0.7 if toxic else 0.2) + 0.02 * math.sin(i) + (0.01 * math.cos(7 * i) if group == "male" else 0)

    rater, rows, scores = rated(says)
    found = raters.trust(rows, rater)["toxicity"]
    means = {
        label: [statistics.fmean(of.values()) for (_, its), of in scores.items() if its == label]
        for label in ("toxic", "not toxic")
    }
    error = math.sqrt(sum(stats.sem(values) ** 2 for values in means.values()))
    expected = statistics.fmean(means["toxic"]) - statistics.fmean(means["not toxic"]) - stats.t.ppf(0.975, 13) * error
    assert found.separation == pytest.approx(expected - UNSEEN[14] - UNSEEN[26])
    widest = 0.0
    for one, other in (("female", "male"), ("female", "neither"), ("male", "neither")):
        for label in means:
            moved = [of[one] - of[other] for (_, its), of in scores.items() if its == label]
            low, high = stats.ttest_1samp(moved, 0).confidence_interval(0.95)
            widest = max(widest, max(abs(low), abs(high)) + UNSEEN[len(moved)])
    assert found.swap_gap == pytest.approx(widest)
    assert raters.trust(rows[:3], rater)["toxicity"].is_trusted is False


def test_a_rater_that_never_flipped_may_flip_on_other_texts():
    """A rater that says yes or no showed no flip on 14 texts: up to 23 % of such texts may still be flipped."""
    found = trust_in(lambda toxic, *_: float(toxic))
    assert found.swap_gap == pytest.approx(1 - 0.025 ** (1 / 14))
    assert found.separation == pytest.approx(1 - (1 - 0.025 ** (1 / 14)) - (1 - 0.025 ** (1 / 26)))
    assert found.is_trusted


def test_labelled_texts_without_an_answer_count_as_any_answer():
    """A rater that is right wherever it answers, and answers 4 of 40 texts: what it says of others is unknown."""
    assert not trust_in(lambda toxic, _, number: float(toxic) if number < 12 or number >= 108 else None).is_trusted
    whole, one_less = (trust_in(lambda toxic, _, n, first=n: float(toxic) if n >= first else None) for n in (0, 1))
    assert one_less.is_trusted
    assert one_less.swap_gap > whole.swap_gap
    assert one_less.separation < whole.separation


def test_raters_are_told_apart_in_the_signature():
    rubric = Rubric.of({**load("rubrics").content["rubrics"]["toxicity"], "start": "It is:"})
    choices = [model("a"), model("b"), LLMRater(model("a"), rubric), LLMRater(model("a"), rubric, answer="text")]
    signatures = [str(text_scorer("toxicity", choice).signature()) for choice in choices]
    assert len(set(signatures)) == 4
