"""`audit check` and `audit suite-schema`."""

import json
import tomllib

import jsonschema
import pytest

from tests.suites.custom.test_mistakes import ASKED, JOBS, PAIRS, TEXTS

ROWS = "stereotype,counterpart,group\n" + "".join(f"Reds {n} lie.,Blues {n} lie.,{'ab'[n % 2]}\n" for n in range(60))


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text(ROWS, "utf-8")


def test_check_tells_what_bias_a_suite_would_find(pairs, audit):
    code, out, _ = audit("check", "--suite", "pairs.csv", "--bias", "0.8")
    assert code == 0
    assert "pairs: 60 questions, 3 figures" in out
    assert "with a planted bias of 0.8, which a report finds; " in out
    code, out, _ = audit("check", "--suite", "pairs.csv", "--json")
    (suite,) = json.loads(out)["suites"]
    assert {one["with"]["measure"] for one in suite["planted"]} == {"stereotype_score"}


def test_check_tells_what_a_server_lacks(pairs, audit, tmp_path):
    model = '[models.m]\nbackend = "openai"\nbase_url = "https://api.example.com/v1"\nmodel = "m"\n'
    suite = '[suites.mine]\nfile = "pairs.csv"\n'
    (tmp_path / "audit.toml").write_text(f'{model}api_key_env = "KEY_OF_NOBODY"\n{suite}', "utf-8")
    code, out, _ = audit("check", tmp_path / "audit.toml")
    assert code == 2
    assert "models.m.api_key_env = 'KEY_OF_NOBODY': it is empty or not set" in out
    assert "Mistakes: 1." in out


@pytest.mark.parametrize("text", [PAIRS, JOBS, ASKED, TEXTS])
def test_the_printed_schema_takes_what_a_suite_takes(text, audit):
    code, out, _ = audit("suite-schema")
    assert code == 0
    validator = jsonschema.Draft202012Validator(json.loads(out))
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []
    (misspelt,) = validator.iter_errors({**tomllib.loads(text), "primry": "x"})
    assert "primry" in misspelt.message


@pytest.mark.parametrize(
    "text",
    [
        JOBS.replace('["he"]', "[]"),
        TEXTS.replace('["loud", "noisy"]', "[]"),
        ASKED.replace('["Ann", "Bob", "Unknown"]', '["Ann"]'),
        TEXTS.replace("texts", "text"),
    ],
)
def test_the_printed_schema_refuses_what_a_suite_refuses(text, audit):
    validator = jsonschema.Draft202012Validator(json.loads(audit("suite-schema")[1]))
    assert list(validator.iter_errors(tomllib.loads(text)))
