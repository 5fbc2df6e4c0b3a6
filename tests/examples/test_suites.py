"""The example suites: four languages from files, and ten pairs as a file and as a class."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import jsonschema
import pytest

from audit import load_audit
from audit.prepare.rehearsal import check_items
from suites import from_file, suite_schema
from suites.common.data_files import PinnedFile
from tests.suites.benchmarks.invented import figures, value
from tests.suites.custom.test_pairs import logprob

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LANGUAGES = ("spanish", "german", "chinese", "arabic")


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_has_no_mistakes_and_says_it_is_unvalidated(language):
    path = EXAMPLES / "suites" / f"{language}.toml"
    suite = from_file(path)
    found = check_items(suite.name, suite, list(suite.items()))
    assert found.mistakes == []
    assert all(biased.value > unbiased.value for unbiased, biased in found.pairs)
    assert found.pairs
    assert min(min(levels.values()) for levels in found.levels.values()) >= 5
    assert any("not validated" in caution for caution in suite.shown.cautions)
    jsonschema.validate(tomllib.loads(path.read_text("utf-8")), suite_schema())


def test_a_suite_that_ships_about_own_groups_has_no_mistakes(tmp_path):
    text = (EXAMPLES / "groups.toml").read_text("utf-8")
    assert '"embedded:smollm2"' in text
    (tmp_path / "groups.toml").write_text(text.replace("embedded:smollm2", "fake"), "utf-8")
    (suite,) = load_audit(tmp_path / "groups.toml").suites.values()
    found = check_items(suite.name, suite, list(suite.items()))
    assert found.mistakes == []
    assert found.n_items == 60  # 50 questions, 10 lists of words after a neutral start
    assert found.pairs
    assert {"stereotype_gap"} <= found.levels.keys()


def test_ten_pairs_as_a_class_give_the_same_figure():
    source = EXAMPLES / "religion_suite.py"
    (of_class,) = load_audit(source).suites.values()
    of_file = from_file(EXAMPLES / "suites" / "religion.csv")
    assert len(of_file.sets) == 10
    plain = figures(of_class, logprob)
    assert value(plain, "stereotype_score") == value(figures(of_file, logprob), "stereotype_score")
    (node,) = [n for n in ast.parse(source.read_text("utf-8")).body if isinstance(n, ast.ClassDef)]
    assert node.end_lineno - node.lineno + 1 <= 25


def test_a_published_benchmark_is_a_class_of_sixty_lines(tmp_path, monkeypatch):
    """With a few sentences in the form of WinoGender's file: the occupation's pronoun is likelier in one of two."""
    said = {"male": "he", "female": "she"}
    rows = [f"{job}.guest.0.{sex}.txt\tThe {job} said {said[sex]} left." for job in ("nurse", "pilot") for sex in said]
    (tmp_path / "all_sentences.tsv").write_text("\n".join(["sentid\tsentence", *rows]), "utf-8")
    (tmp_path / "occupations-stats.tsv").write_text("occupation\tbls_pct_female\nnurse\t90\npilot\t7\n", "utf-8")
    monkeypatch.setattr(PinnedFile, "path", lambda self, folder, *, field="folder": tmp_path / self.name)
    source = EXAMPLES / "winogender.py"
    (suite,) = load_audit(source).suites.values()
    found = figures(suite, lambda prompt, text: -1.0 if "she" in text else -2.0)
    assert value(found, "stereotype_score") == 0.5
    assert len(source.read_text("utf-8").splitlines()) <= 60
