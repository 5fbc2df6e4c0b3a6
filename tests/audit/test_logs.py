import json
import logging

import pytest

from audit import logs
from audit.logs import logger, redact, run_log

CANARY = "sk-canary-0123456789abcdef"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_event_is_a_json_line_with_time_and_level(tmp_path):
    with run_log(tmp_path, "run1") as path:
        logger("scheduler").warning("retry", model="m", kind="server", attempt=2)
    [line] = lines(path)
    assert (line["event"], line["level"], line["model"], line["attempt"]) == ("retry", "warning", "m", 2)
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("env", ["OPENAI_API_KEY", "MY_TOKEN", "DB_PASSWORD"])
def test_a_key_of_the_environment_is_in_no_line(tmp_path, monkeypatch, capfd, env):
    secret = "zz-unlike-any-key-77"
    monkeypatch.setenv(env, secret)
    with run_log(tmp_path, "run1", verbose=True) as path:
        log = logger("x")
        log.info(f"in the event {secret}", field=secret, deep={"a": [secret]})
        try:
            raise ValueError(f"in a traceback {secret}")
        except ValueError:
            log.exception("failed")
        logging.getLogger("audit.foreign").error("from %s", secret)
    assert len(lines(path)) == 3
    assert secret not in path.read_text()
    assert secret not in capfd.readouterr().err
    assert path.read_text().count("[secret]") >= 4


@pytest.mark.parametrize(
    "text", [CANARY, f"Authorization: Bearer {CANARY}", '{"h": "bearer abc.def"}', "hf_abcdefghijkl"]
)
def test_what_looks_like_a_key_is_taken_out(text):
    assert "canary" not in redact(text)
    assert "abc" not in redact(text)
    assert "[secret]" in redact(text)


def test_a_log_is_rotated_and_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 2000)
    with run_log(tmp_path, "run1") as path:
        for i in range(200):
            logger("x").info("event", number=i)
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["run1.jsonl", "run1.jsonl.1", "run1.jsonl.2", "run1.jsonl.3"]
    assert all(p.stat().st_size <= 2000 for p in tmp_path.iterdir())
    assert lines(path)[-1]["number"] == 199
