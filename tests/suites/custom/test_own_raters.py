"""OwnRaters with a question of one's own: their quantities, their test on labelled texts, and what is left open."""

from __future__ import annotations

import math
import re

import pytest
from scipy import stats

from audit import Audit
from audit.report.figures import Figures
from audit.report.page.report_page import report_page
from audit.report.tables import named_tables
from backends import FakeBackend
from backends.errors import ConfigError
from suites import from_file

RUBRIC = {"question": "Text: {text}\nIs it rude?", "answers": {"rude": "yes", "kind": "no"}}
PROMPTS = "prompt,group\n" + "".join(f"{group} {n} are,{group}\n" for n in range(8) for group in ("Reds", "Blues"))
HEAD = """kind = "texts"
data = "p.csv"
[scorers.manners]
model = "fake"
rubric = {question = "Text: {text}\\nIs it rude?", answers = {rude = "yes", kind = "no"}}
"""
LABELLED = "labelled = 'l.csv'\n"
N = 7


def labelled_csv(groups=("Reds", "Blues")):
    rows = [
        (f"{group} {n} {word}.", label, group)
        for group in groups
        for n in range(N)
        for word, label in (("stink", "rude"), ("sing", "kind"))
    ]
    return "text,label,group\n" + "".join(f"{text},{label},{group}\n" for text, label, group in rows)


def suite_of(tmp_path, head=HEAD, labelled=None):
    (tmp_path / "p.csv").write_text(PROMPTS, "utf-8")
    (tmp_path / "l.csv").write_text(labelled_csv() if labelled is None else labelled, "utf-8")
    (tmp_path / "t.toml").write_text(head, "utf-8")
    return from_file(tmp_path / "t.toml")


def yes_of(text):
    """What the rater says: stinking is rude; Reds get a little more, which varies with the number."""
    number = int(re.search(r"\d", text)[0])
    return (0.8 if "stink" in text else 0.2) + (0.02 + 0.01 * math.sin(number) if "Reds" in text else 0.0)


def scoring(answer=yes_of):
    def score(prompt, said):
        yes = answer(re.findall(r"Text: (.*)\n", prompt)[-1])
        return yes if said == " yes" else 1 - yes

    return FakeBackend("scoring", score=score)


def write(prompt, seed):
    """Reds stink in six texts of eight, Blues in two."""
    number = int(re.search(r"\d", prompt)[0])
    return f"{prompt} {'stink' if number < (6 if 'Reds' in prompt else 2) else 'sing'}."


def result(suite, tmp_path, rater=None, **options):
    suite.text_scorers["manners"].backend.backend = rater or scoring()
    models = {"m": FakeBackend("writer", generate=write)}
    return Audit(models=models, suites=[suite], db=tmp_path / "a.db", **options).run_sync()


def figure(found, measure, **where):
    (one,) = [m for m in found.measures if m.measure == measure and dict(m.where) == where]
    return one


def of_group(group):
    return {"kind": "manners", "group": group}


def test_a_tested_raters_figures_equal_a_hand_computation(tmp_path):
    found = result(suite_of(tmp_path, HEAD + LABELLED), tmp_path)
    moved = [0.02 + 0.01 * math.sin(n) for n in range(N)]
    expected = {"Reds": sum(0.8 if n < 6 else 0.2 for n in range(8)) / 8, "Blues": (2 * 0.8 + 6 * 0.2) / 8}
    expected["Reds"] += sum(0.02 + 0.01 * math.sin(n) for n in range(8)) / 8
    for group, value in expected.items():
        assert figure(found, "rude", **of_group(group)).value == pytest.approx(value)
    gap = figure(found, "rude_gap", kind="gap", scorer="manners")
    assert gap.value == pytest.approx(expected["Reds"] - expected["Blues"])
    swap = max(map(abs, stats.ttest_1samp(moved, 0).confidence_interval(0.95)))
    unseen = math.tanh(0.25) * (1 - 0.025 ** (1 / N))  # of kinds of texts that are not among the labelled
    assert gap.bound_high - gap.value == pytest.approx(swap + unseen)
    assert gap.value - gap.bound_low == pytest.approx(swap + unseen)
    assert figure(found, "rater_agreement", kind="labelled manners", rater="manners").value == 1


def test_an_untested_raters_figures_are_shown_and_decide_nothing(tmp_path):
    suite = suite_of(tmp_path)
    assert {item.scorer for item in suite.items()} == {None}
    found = result(suite, tmp_path, limits={"rude": {"at_most": 0.99}, "rude_gap": {"at_most": 0.99}})
    reds, gap = figure(found, "rude", **of_group("Reds")), figure(found, "rude_gap", kind="gap", scorer="manners")
    assert (reds.bound_low, reds.bound_high, gap.bound_low, gap.bound_high) == (0, 1, -1, 1)
    assert reds.value is not None
    assert gap.value == pytest.approx(0.32, abs=0.02)
    assert {check.verdict for check in found.limits} == {"insufficient evidence"}
    page = report_page(found)
    assert "The rater of scorer manners was not tested" in page
    assert "manners: not tested" in page
    assert [name for name, _, _ in named_tables(Figures(found))] == ["t/raters", "t/figures"]


def test_a_rater_that_fails_its_test_is_not_believed(tmp_path):
    suite = suite_of(tmp_path, HEAD + LABELLED)
    found = result(suite, tmp_path, scoring(lambda text: 0.7 if "Reds" in text else 0.3))
    assert figure(found, "rude", **of_group("Reds")).value is None
    assert found.data_quality[0].failures == {"rater not trusted": 16}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"no"}}', '"yes"}}', r"t\.toml:5: scorers\.manners\.rubric\.answers.*different answers"),
        (LABELLED, "labelled = 'm.csv'\n", r"t\.toml:6: scorers\.manners\.labelled = 'm\.csv'.*no such file"),
        (LABELLED, "quantities = {a = 'rud'}\n", r"t\.toml:6: scorers\.manners\.quantities\.a = 'rud'.*rude, kind"),
        (LABELLED, "[contrasts.manners]\nof = 'Reds'\n", r"t\.toml:6: contrasts\.manners.*another measure"),
        (LABELLED, "[readings]\nrude = ['lout']\n", r"t\.toml:3: scorers\.manners\.quantities\.rude.*also a reading"),
    ],
)
def test_a_raters_mistakes_are_told_at_their_place(tmp_path, old, new, said):
    assert old in HEAD + LABELLED
    with pytest.raises(ConfigError, match=said):
        suite_of(tmp_path, (HEAD + LABELLED).replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Reds 0 stink.,rude", "Reds 0 stink.,rood", r"l\.csv:2: label = 'rood'.*Use one of: rude, kind"),
        ("Reds 1 stink", "Reds 0 stink", r"l\.csv:4: text.*the same as in l\.csv:2"),
        ("Reds 0 stink.,rude,Reds\n", "", r"l\.csv: label = 'rude'.*6 texts about Reds, 7 texts about Blues"),
    ],
)
def test_mistakes_in_labelled_texts_are_told_by_line(tmp_path, old, new, said):
    assert old in labelled_csv()
    with pytest.raises(ConfigError, match=said):
        suite_of(tmp_path, HEAD + LABELLED, labelled_csv().replace(old, new))
