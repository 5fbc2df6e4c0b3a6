"""Probe reports and their record on disk: written, read back, and read from earlier versions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe.record import ProbeRecord
from backends.openai.probe.report import CanaryValue, Check, ProbeReport
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import MODEL, WordServer

#: As version 0.1 wrote it.
OF_VERSION_3: dict[str, Any] = {
    "base_url": "http://h/v1",
    "model": "m",
    "findings": {
        "text_route": "top_k_ids",
        "chat_route": "rendered",
        "completions": True,
        "chat": True,
        "family": "llama.cpp",
        "largest_k": 1000000,
        "largest_chat_k": 1000,
        "identity": "ids",
        "takes_ids": True,
        "bos": True,
        "spread": 0.0004,
        "uncached": True,
        "prefill": "repeated",
        "temperature": 1.0,
        "seed_works": True,
        "answers_numbered": True,
        "answered_model": "m-1",
    },
    "checks": [{"name": "echo", "passed": None, "detail": "refused"}],
    "canary": [[-2.5, -2.5], [None, -8.0]],
    "canary_id": "-10 -",
    "requests": 49,
    "version": 3,
}


async def of_a_server_without_lists(folder: Path) -> tuple[ProbeReport, str]:
    """The probe's report, and the noise that an audit's report names."""
    async with WordServer("drawn", 0).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
        try:
            return await backend.probe(), str((await backend.describe()).notes["spread"])
        finally:
            await backend.close()


async def test_the_route_that_answers_says_why_it_has_no_lists(tmp_path: Path) -> None:
    report, _ = await of_a_server_without_lists(tmp_path)
    assert "the answer has no log-probabilities" in report.without_scores
    assert "base_url" not in report.without_scores  # its texts are answered: the address and the name are right


@pytest.mark.parametrize(
    ("lie", "failed", "advice"),
    [
        ("temperature 0.7 in lists", "draws of texts", "--logprobs-mode raw_logprobs"),
        ("cache by the first 12 characters", "near twins of texts", "switch off the cache"),
    ],
)
async def test_a_refused_server_is_named_with_what_to_do(lie: str, failed: str, advice: str, tmp_path: Path) -> None:
    async with WordServer("lists", 0, LIES[lie](np.random.default_rng(0))).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        ask_directly(backend, server)
        report, absent = await backend.probe(), (await backend.describe()).absent["score"]
        await backend.close()
    for said in (absent, report.render_text()):
        assert server.base_url in said
        assert failed in said
        assert advice in said
        assert f"`audit probe {server.base_url} --model {MODEL}`" in said


async def test_a_noise_that_nothing_measured_is_not_zero(tmp_path: Path) -> None:
    report, spread = await of_a_server_without_lists(tmp_path)
    text = report.render_text()
    assert "noise on repetition   not measured" in text
    assert "list of next tokens   none" in text
    assert spread == "not measured"


def record_of(folder: Path) -> ProbeRecord:
    return ProbeRecord(folder, "http://h/v1", "m", "none", None)


def test_a_report_reads_back_and_shows_its_failures() -> None:
    checks = (Check("echo", False, "16 nats"), Check("seeds", True, "work"), Check("logit_bias", None, ""))
    canary = (CanaryValue(-1.5, -1.5), CanaryValue(None, -4.0))
    found = ServerCapabilities(text_route="top_k", repeat_noise=math.inf)
    report = ProbeReport("http://h/v1", "m", found, checks, canary, "x", 3)
    assert ProbeReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    assert "FAIL echo" in report.render_text()


def test_a_record_of_version_3_is_read_under_todays_names(tmp_path: Path) -> None:
    record_of(tmp_path).write(ProbeReport("http://h/v1", "m", ServerCapabilities(), ()))
    (file,) = tmp_path.iterdir()
    file.write_text(json.dumps(OF_VERSION_3))
    report = record_of(tmp_path).read()
    assert report is not None
    renamed = {"spread": "repeat_noise", "answers_numbered": "unique_response_ids"}
    expected = {renamed.get(name, name): value for name, value in OF_VERSION_3["findings"].items()}
    assert report.capabilities == ServerCapabilities(**expected)
    assert report.checks == (Check("echo", None, "refused"),)
    assert report.canary == (CanaryValue(-2.5, -2.5), CanaryValue(None, -8.0))
    assert (report.canary_id, report.requests) == ("-10 -", 49)
    record_of(tmp_path).write(report)
    assert record_of(tmp_path).read() == report


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({**OF_VERSION_3, "canary": [-1.5, None], "version": 2}),
        json.dumps({**OF_VERSION_3, "version": 6}),
        json.dumps({**OF_VERSION_3, "findings": {**OF_VERSION_3["findings"], "spread": "much"}}),
        json.dumps({"version": 3}),
        "[]",
        "{",
    ],
    ids=["older", "newer", "wrong type", "fields missing", "list", "cut"],
)
def test_a_record_that_cannot_be_read_counts_as_none(content: str, tmp_path: Path) -> None:
    record_of(tmp_path).write(ProbeReport("http://h/v1", "m", ServerCapabilities(), ()))
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    assert record_of(tmp_path).read() is None
