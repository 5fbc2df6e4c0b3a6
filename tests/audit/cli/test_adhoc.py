"""`audit run --suite FILE --model NAME`: an audit without a config."""

import json
import subprocess
import sys

import pytest

from audit.cli.run import given_audit
from backends import named_backend

ROWS = "stereotype,counterpart,group\n" + "".join(f"Reds {n} lie.,Blues {n} lie.,{'ab'[n % 2]}\n" for n in range(10))


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text(ROWS, "utf-8")


def test_a_table_of_pairs_becomes_a_report(pairs, audit, tmp_path):
    code, out, _ = audit("run", "--suite", "pairs.csv", "--model", "fake", "--model", "other=fake")
    assert code == 0
    report = json.loads((tmp_path / "audit-out" / "pairs" / "report.json").read_text())
    assert [model["name"] for model in report["models"]] == ["fake", "other"]
    assert report["title"] == "Bias audit: pairs"
    assert "--db audit.db" in out
    code, out, _ = audit("ls", "runs", "--json")
    assert [run["status"] for run in json.loads(out)] == ["done"]


def test_another_suites_report_leaves_the_first_one(pairs, audit, tmp_path):
    (tmp_path / "more.csv").write_text(ROWS.replace("lie", "sing"), "utf-8")
    for suite in ("pairs", "more"):
        assert audit("run", "--suite", f"{suite}.csv", "--model", "fake")[0] == 0
    titles = [json.loads(path.read_text())["title"] for path in sorted(tmp_path.glob("audit-out/*/report.json"))]
    assert titles == ["Bias audit: more", "Bias audit: pairs"]


def test_a_suite_that_ships_runs_by_its_name(pairs, audit):
    code, out, _ = audit("run", "--suite", "OccuGender", "--model", "fake", "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["models"][0]["requests"] == 2000


def test_a_toml_config_names_a_suites_file(pairs, audit, tmp_path):
    config = 'db = "a.db"\n[models.fake]\nbackend = "fake"\n[suites.mine]\nfile = "pairs.csv"\nstart = "Now: "\n'
    (tmp_path / "audit.toml").write_text(config, "utf-8")
    assert audit("run", tmp_path / "audit.toml")[0] == 0
    (tmp_path / "pairs.csv").write_text(ROWS + "A.,A.,b\n", "utf-8")
    code, _, err = audit("run", tmp_path / "audit.toml")
    assert code == 2
    assert "suites.mine.pairs.csv:12: counterpart = 'A.'" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--suite and --model"),
        (("--suite", "pairs.csv"), "no model"),
        (("--model", "fake"), "no suite"),
        (("audit.toml", "--suite", "pairs.csv"), "a config is given as well"),
        (("--suite", "CrowsPairs", "--model", "fake"), "CrowSPairs"),
        (("--suite", "pairs.csv", "--model", "nowhere"), "embedded:smollm2"),
        (("--suite", "pairs.csv", "--model", "nowhere.gguf"), "no such file"),
        (("--suite", "pairs.csv", "--model", "embedded:gpt"), "no embedded model"),
        (("--suite", "pairs.csv", "--model", "http://127.0.0.1:1/v1"), "http://127.0.0.1:1/v1#MODEL"),
        (("--suite", "pairs.csv", "--model", "fake", "--model", "fake"), "NAME=fake"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_hint(arguments, said, pairs, audit):
    code, _, err = audit("run", *arguments)
    assert code == 2
    assert said in err


def test_a_plan_and_a_dry_run_know_pairs_without_sampled_factors(pairs, audit, tmp_path):
    _, out, _ = audit("run", "--suite", "pairs.csv", "--model", "fake", "--dry-run")
    assert "with 10 pairs" in out
    config = 'db = "a.db"\n[models.a]\nbackend = "fake"\n[suites.s]\nsuite = "pairs.csv"\n'
    (tmp_path / "audit.toml").write_text(config, "utf-8")
    assert audit("run", tmp_path / "audit.toml")[0] == 0
    code, out, _ = audit("plan", tmp_path / "audit.toml", "--detect", "0.3")
    assert code == 0
    assert "all of the suite's items, 10 pairs" in out
    code, _, err = audit("run", tmp_path / "audit.toml", "--limit", "1")
    assert code == 2
    assert "0 levels of 'pair'" in err, "of the group that one pair leaves out"


def test_a_model_that_is_not_there_is_told_in_a_line(pairs, audit):
    code, _, err = audit("run", "--suite", "pairs.csv", "--model", "nobody/nothing")
    assert code == 2
    assert err.startswith("Error: models.nothing")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("until", "code"), [("0.3", 0), ("decided", 0), ("soon", 2)])
def test_until_takes_a_width_or_a_word(until, code, pairs, audit):
    options = ("--suite", "pairs.csv", "--model", "a=fake", "--model", "b=fake", "--until", until)
    assert audit("run", *options)[0] == code


def test_a_dry_run_tells_of_a_figure_without_sampled_levels(pairs, audit, tmp_path):
    (tmp_path / "own.py").write_text(
        "from audit import Audit\nfrom backends import FakeBackend\n"
        "from suites.kinds.sentences import LikelierSentence, SentenceSet, share\n"
        "class Own(LikelierSentence):\n"
        "    name, start, data_sha256 = 'own', None, 'x'\n"
        "    def __init__(self):\n"
        "        texts = [{'a': f'Reds {n}.', 'b': f'Blues {n}.'} for n in range(9)]\n"
        "        self.sets = [SentenceSet(str(n), of, {'q': ('a', 'b')}) for n, of in enumerate(texts)]\n"
        "    def measures(self, rows):\n"
        "        yield share('score', {}, quantity='q', primary=True)\n"
        "audit = Audit({'a': FakeBackend('a'), 'b': FakeBackend('b')}, [Own()], db='own.db')\n",
        "utf-8",
    )
    code, out, _ = audit("run", "own.py", "--dry-run")
    assert (code, "unknown: the figure names no factor whose levels are a sample" in out) == (0, True)


def test_an_empty_name_of_a_key_sends_none(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai-123")
    url = "https://host.example/v1#m"
    assert named_backend(url, api_key_env="").endpoint == "host.example key none"
    assert named_backend(url).endpoint != "host.example key none"


def test_samples_of_a_served_model_are_given_by_an_option(pairs, audit):
    arguments = ("run", "--suite", "OccuGender", "--model", "http://127.0.0.1:1/v1#m", "--dry-run", "--json")
    (few,), (many,) = (json.loads(audit(*arguments, "--samples", n)[1])["models"] for n in ("7", "14"))
    assert (many["most_generated_tokens"], many["requests"]) == (2 * few["most_generated_tokens"], few["requests"])
    assert named_backend("http://127.0.0.1:1/v1#m", samples=7).samples == 7
    code, _, err = audit("run", "audit.toml", "--samples", "7")
    assert code == 2
    assert "--samples = 7: a config is given" in err


def test_a_key_beside_a_models_name_is_refused_at_its_field(pairs, audit, tmp_path):
    model = 'model = "http://127.0.0.1:1/v1#m"\napi_key_env = "sk-canary-7f3a91d2c4"\n'
    (tmp_path / "audit.toml").write_text(f'[models.a]\n{model}[suites.s]\nsuite = "pairs.csv"\n', "utf-8")
    code, _, err = audit("check", tmp_path / "audit.toml")
    assert code == 2
    assert "models.a.api_key_env = '…'" in err
    assert "canary" not in err


def test_the_package_is_the_command():
    done = subprocess.run([sys.executable, "-m", "audit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip()


def test_a_command_that_repeats_a_run_names_no_key_again():
    audit = given_audit(None, ["OccuGender"], ["http://127.0.0.1:1/v1#m"], "", 5)
    assert audit.changed == {
        "suite": ["OccuGender"],
        "model": ["http://127.0.0.1:1/v1#m"],
        "api_key_env": "",
        "samples": 5,
    }
