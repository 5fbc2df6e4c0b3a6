"""The pytest plugin: a test passes, fails or is refused by the rules of the gate."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")
RECIPE = (ROOT / "examples" / "schedules" / "pytest.yml").read_text("utf-8")
TESTS = '''
import math
import pytest
from backends import FakeBackend

def planted(share):
    """A model that finds the red sentence likelier in this share of the pairs."""
    def score(prompt, text):
        number = int(text.split()[1].strip("."))
        red_is_likelier = number < 100 * share
        return 0.2 if text.startswith("Reds") == red_is_likelier else 0.1
    return FakeBackend(f"planted {share}", score=score)

def test_fair(audit):
    audit.run(planted(0.5), "pairs.csv").assert_at_most("stereotype_score", 0.7)

def test_above(audit):
    audit.run(planted(0.9), "pairs.csv").assert_at_most("stereotype_score", 0.7)

def test_open(audit):
    result = audit.run(planted(0.68), "pairs.csv")
    result.assert_at_most("stereotype_score", 0.7, open_fails="missing")
    result.assert_at_most("stereotype_score", 0.7)

def test_of_one_group(audit):
    def score(prompt, text):
        return 0.2 if text.startswith("Reds") == (int(text[-2]) % 2 == 0) else 0.1

    even = FakeBackend("even", score=score)
    audit.run(even, "pairs.csv").assert_at_most("stereotype_score", 0.2, group="b")

def test_above_after_other_models(audit):
    for _ in range(4):
        audit.run(planted(0.5), "pairs.csv").assert_at_most("stereotype_score", 0.7)
    audit.run(planted(0.84), "pairs.csv").assert_at_most("stereotype_score", 0.7, open_fails="none")

def test_of_a_misspelt_group(audit):
    audit.run(planted(0.5), "pairs.csv").assert_at_most("stereotype_score", 0.7, group="B")

def test_percent(audit):
    audit.run(planted(0.9), "pairs.csv").assert_at_most("stereotype_score", 70, open_fails="none")

def test_of_a_file_that_is_not_there(audit):
    audit.run(planted(0.9), "pears.csv")

@pytest.mark.parametrize("bound", [True, "0.7", math.nan, math.inf, None])
def test_no_number(audit, bound):
    audit.run(planted(0.9), "pairs.csv").assert_at_least("stereotype_score", bound)

def test_swapped(audit):
    audit.run("pairs.csv", planted(0.5))

def test_misspelt(audit):
    audit.run(planted(0.5), "pairs.csv").assert_at_most("sterotype_score", 0.7)

def test_of_a_single_filler(audit):
    audit.run("fake", "jobs.toml").assert_at_most("p_women", 0.99, job="cook")

def test_coverage_of_pairs(audit):
    audit.run(planted(0.5), "pairs.csv").assert_at_least("coverage", 0.0001)
'''


FAIR = """
from backends import FakeBackend

def score(prompt, text):
    return 0.2 if text.startswith("Reds") == (int(text[-2]) % 2 == 0) else 0.1

FAIR = FakeBackend("fair", score=score)

"""


def run_tests(folder, *options, cached=False):
    """The printed output of pytest on the tests of a folder, and their outcomes by name."""
    command = ["-q", "-p", "audit.pytest_plugin", "-rA", *options, *([] if cached else ["-p", "no:cacheprovider"])]
    # Named once: an installed plugin is loaded by its entry point too.
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    start = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", start, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1000,
    )
    lines = [line.split(" - ")[0].split() for line in done.stdout.splitlines() if "::" in line]
    return done.stdout, {name.split("::")[1]: outcome for outcome, name in lines}


def write_pairs(file, count, line="Reds {n}.,Blues {n}.\n", columns="stereotype,counterpart"):
    file.write_text(f"{columns}\n" + "".join(line.format(n=n, group="ab"[n % 2]) for n in range(count)), "utf-8")


def test_the_tests_of_the_readme_and_the_recipe_run_as_they_stand(tmp_path):
    """With a model that finds every second stereotype likelier, on as many pairs as the README says, and on fewer."""
    (readme,) = re.findall(r"```python\n(def test_bias.*?)```", README, re.DOTALL)
    recipe = "\n".join(re.findall(r"^#     (.*)$", RECIPE, re.MULTILINE))
    assert '"org/model"' in readme
    assert 'audit.run("model.gguf", "pairs.csv")' in recipe
    (steps,) = (job["steps"] for job in yaml.safe_load(RECIPE)["jobs"].values())
    (options,) = (shlex.split(step["run"])[3:] for step in steps if step.get("name") == "Bias")
    assert options == ["tests/test_bias.py", "--junit-xml", "bias.xml"]
    sources = {
        "enough": readme.replace('"org/model"', "FAIR"),
        "few": readme.replace('"org/model"', "FAIR").replace("pairs.csv", "few.csv"),
        "bias": recipe.replace('"model.gguf"', "FAIR").replace("0.6", "0.9"),
    }
    for name, source in sources.items():
        (tmp_path / f"test_{name}.py").write_text(FAIR + source.replace("test_bias(", f"test_{name}("), "utf-8")
    write_pairs(tmp_path / "pairs.csv", 100)
    write_pairs(tmp_path / "few.csv", 30)
    told, outcomes = run_tests(tmp_path, *options[1:])
    assert outcomes == {"test_enough": "PASSED", "test_few": "FAILED", "test_bias": "PASSED"}, told
    assert told.count("What is undecided fails too") == 1
    assert 'failures="1"' in (tmp_path / "bias.xml").read_text()


def test_audits_as_tests_follow_the_gates_rules(tmp_path):
    write_pairs(tmp_path / "pairs.csv", 100, "Reds {n}.,Blues {n}.,{group}\n", "stereotype,counterpart,group")
    templates = 'templates = ["The [JOB] said", "A [JOB] is"]\nslot = "job"\nfillers = ["cook", "smith"]\n'
    jobs = f'kind = "templates"\n{templates}groups = {{men = ["he"], women = ["she"]}}\n'
    (tmp_path / "jobs.toml").write_text(jobs, "utf-8")
    (tmp_path / "test_bias.py").write_text(TESTS, "utf-8")
    told, outcomes = run_tests(tmp_path)
    assert outcomes == {
        "test_fair": "PASSED",
        "test_above": "FAILED",
        "test_open": "FAILED",
        "test_of_one_group": "PASSED",
        "test_above_after_other_models": "FAILED",
        "test_of_a_misspelt_group": "FAILED",
        "test_percent": "FAILED",
        "test_of_a_file_that_is_not_there": "FAILED",
        **{f"test_no_number[{bound}]": "FAILED" for bound in ("True", "0.7", "nan", "inf", "None")},
        "test_swapped": "FAILED",
        "test_misspelt": "FAILED",
        "test_of_a_single_filler": "FAILED",
        "test_coverage_of_pairs": "FAILED",
    }, told
    assert "p_women = {'job': 'cook'}: a figure of a single level, such as one occupation, decides nothing" in told
    assert "stereotype_score of model on pairs breaks the limit at most 0.7" in told
    assert "stereotype_score of model on pairs neither clearly meets nor breaks" in told
    assert "limits.sterotype_score = (None, 0.7): no figure has this name" in told
    assert "stereotype_score = {'group': 'B'}: no figure has these levels. Did you mean group='b'?" in told
    assert "limits.stereotype_score = (None, 70): the figure lies between 0 and 1. Give a value that it can" in told
    assert "bound = True: not a finite number" in told
    assert "model = 'pairs.csv': a suite's file. Give the model first, then the suite." in told
    assert 'audit.run(planted(0.9), "pears.csv")' in told  # the test's own line
    assert "pears.csv" in told
    assert "pytest_plugin.py" not in told  # no source of the plugin


COUNTED = """
from pathlib import Path
from backends import FakeBackend

def score(prompt, text):
    with Path("asked").open("a") as file:
        file.write("x")
    return 0.2

class Counted(FakeBackend):
    pass

def test_bias(audit):
    audit.run(Counted("counted", score=score), "pairs.csv").assert_at_most("stereotype_score", 0.7)
"""


def test_a_second_run_asks_only_a_fake_that_changed(tmp_path):
    write_pairs(tmp_path / "pairs.csv", 100)
    (tmp_path / "test_counted.py").write_text(COUNTED, "utf-8")
    asked, outcomes = [], []
    for likelier in ("Blues", "Reds"):
        score = f'lambda prompt, text: 0.2 if text.startswith("{likelier}") else 0.1'
        asserted = f'audit.run(FakeBackend(score={score}), "pairs.csv").assert_at_most("stereotype_score", 0.5)'
        test = f"from backends import FakeBackend\n\ndef test_changed(audit):\n    {asserted}\n"
        (tmp_path / "test_changed.py").write_text(test, "utf-8")
        outcomes.append(run_tests(tmp_path, cached=True)[1]["test_changed"])
        asked.append(len((tmp_path / "asked").read_text()))
    assert asked[0] == asked[1] > 0
    assert outcomes == ["PASSED", "FAILED"]
