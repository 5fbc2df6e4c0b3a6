"""Models of the hub: without a network, from the cache, and at a hub that refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from backends import ConfigError, HFBackend
from backends.base import ScoreRequest
from tests.backends.local.tiny_models import save_tiny_model
from tests.backends.transformers.loopback_hub import COMMIT, LoopbackHub, loopback_hub, point_at, save_in_cache
from tests.backends.transformers.reference import plain_model
from tests.servers import free_port

REQUEST = ScoreRequest("the police said that", (" she",))
REFUSALS = {
    "gated": (403, {"X-Error-Code": "GatedRepo"}, "gated repo"),
    "not there": (404, {"X-Error-Code": "RepoNotFound"}, "Repository Not Found"),
    "a wrong token": (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "401"),
    "another revision": (404, {"X-Error-Code": "RevisionNotFound"}, "Revision Not Found"),
    "broken": (500, {}, "500"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("whole"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    """A hub on loopback with an empty cache at ``tmp_path / "cache"``."""
    with loopback_hub() as running:
        point_at(monkeypatch, running.url, tmp_path / "cache")
        yield running


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(backend: HFBackend) -> str:
    with pytest.raises(ConfigError) as caught:
        backend.describe_blocking()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def closed(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    point_at(monkeypatch, f"http://127.0.0.1:{free_port()}", cache)


def test_a_hub_id_without_a_network_says_what_to_do(tmp_path: Path) -> None:
    """The program as users start it: one line, no retries of huggingface_hub's."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": ""}
    code = "from backends import HFBackend; HFBackend('org/name').describe_blocking()"
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "Retrying" not in ended.stderr
    told = ended.stderr.strip().splitlines()[-1]
    for word in ("Connection refused", "hf download", "HF_HUB_OFFLINE=1", "HF_ENDPOINT"):
        assert word in told


@pytest.mark.parametrize("how", REFUSALS)
def test_a_hub_that_refuses_is_told_by_its_reason(how: str, hub: LoopbackHub) -> None:
    hub.status, hub.headers, says = REFUSALS[how]
    assert says in refused(HFBackend("org/name", revision="v2" if how == "another revision" else None))


@pytest.mark.parametrize("how", [how for how in REFUSALS if how != "another revision"])
def test_what_the_cache_has_is_used_whatever_the_hub_says(
    how: str, hub: LoopbackHub, whole: Path, tmp_path: Path
) -> None:
    save_in_cache(whole, tmp_path / "cache", "org/name")
    hub.status, hub.headers, _ = REFUSALS[how]
    description = HFBackend("org/name", threads=1).describe_blocking()
    assert description.fingerprint["revision"] == COMMIT
    (statement,) = description.statements
    assert COMMIT[:12] in statement


def test_a_cached_model_has_one_fingerprint_on_and_offline(
    hub: LoopbackHub, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files = files_of(whole)
    online = HFBackend("org/name", threads=1)
    described, answers = online.describe_blocking(), online.run_blocking([REQUEST])
    closed(monkeypatch, tmp_path / "cache")
    for is_set in (False, True):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_set)
        backend = HFBackend("org/name", threads=1)
        description = backend.describe_blocking()
        assert description.fingerprint == described.fingerprint
        assert backend.run_blocking([REQUEST]) == answers
        assert len(description.statements) == (0 if is_set else 1)


def test_the_commit_that_was_described_is_loaded(hub: LoopbackHub, whole: Path, tmp_path: Path) -> None:
    """A model that changes at the hub between the two is not stored under the former's fingerprint."""
    hub.files = files_of(whole)
    backend = HFBackend("org/name", threads=1)
    assert backend.describe_blocking().fingerprint["revision"] == COMMIT
    hub.asked.clear()
    hub.commit = COMMIT[::-1]
    backend.load()
    assert hub.asked
    assert all(f"/resolve/{COMMIT}/" in asked for asked in hub.asked if "/resolve/" in asked)


def test_an_adapter_of_the_hub_is_taken_from_the_cache(
    hub: LoopbackHub, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peft

    model, _ = plain_model(whole)
    torch.manual_seed(1)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    local = HFBackend(whole, adapter=tmp_path / "adapter", threads=1).run_blocking([REQUEST])
    hub.files = files_of(tmp_path / "adapter")
    online = HFBackend(whole, adapter="org/adapter", threads=1)
    fingerprint = online.describe_blocking().fingerprint
    assert fingerprint["adapter"] == f"org/adapter@{COMMIT}"
    assert online.run_blocking([REQUEST]) == local
    closed(monkeypatch, tmp_path / "cache")
    for is_set in (False, True):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_set)
        backend = HFBackend(whole, adapter="org/adapter", threads=1)
        assert backend.describe_blocking().fingerprint == fingerprint
        assert backend.run_blocking([REQUEST]) == local
