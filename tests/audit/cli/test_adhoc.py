"""`audit run --suite FILE --model NAME`: an audit without a config."""

import json

import pytest

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
