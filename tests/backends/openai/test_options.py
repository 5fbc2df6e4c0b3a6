"""Options: they are checked, reach the server, and enter the fingerprint where they may change an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit import load_audit
from backends.base import GenerateRequest, GenerateResponse, Message
from backends.errors import ConfigError
from backends.openai import OpenAIBackend
from tests.backends.openai.raw_server import Reply, backend_of
from tests.backends.openai.strict_server import DEPRECATED, StrictServer, refusal, varied

ASKED = GenerateRequest((Message("user", "Who?"),))


async def fingerprint(server: StrictServer, folder: Path, **options: Any) -> dict[str, Any]:
    backend = backend_of(server, folder, **options)
    found = dict((await backend.describe()).fingerprint)
    await backend.close()
    return found


class Azure(StrictServer):
    """Azure's older endpoint: a deployment's path, ``api-version`` in the query, the key in ``api-key``.

    Microsoft's reference of the data plane: without the version, 404 "Resource not found"; a wrong key, 401.
    """

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        path, _, query = path.partition("?")
        if query != "api-version=2024-10-21":
            return refusal(404, "Resource not found")
        if "api-key: key-of-azure" not in self.headers[-1]:
            return refusal(401, "Access denied due to invalid subscription key or wrong API endpoint.")
        return super().reply(path.replace("/openai/deployments/gpt", "/v1"), sent)


async def test_azures_version_and_key_header_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_KEY", "key-of-azure")
    async with Azure(DEPRECATED, varied).running() as server:
        url = server.base_url.removesuffix("/v1") + "/openai/deployments/gpt"
        known = {"base_url": url, "api_key_env": "AZURE_KEY", "key_header": "api-key"}
        backend = backend_of(server, tmp_path, **known, query={"api-version": "2024-10-21"})
        description = await backend.describe()
        answer, *_ = await backend.run([ASKED])
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer
    assert description.fingerprint["query"] == "api-version=2024-10-21"


async def test_what_may_change_an_answer_is_in_the_fingerprint(tmp_path: Path) -> None:
    async with StrictServer(DEPRECATED, varied).running() as server:
        plain = await fingerprint(server, tmp_path / "plain")
        pinned = {"provider": {"order": ["one"], "allow_fallbacks": False}}
        for other in ({"extra_body": pinned}, {"headers": {"X-Route": "b"}}, {"reasoning_effort": "low"}):
            assert await fingerprint(server, tmp_path / str(list(other)), **other) != plain, other
        assert server.bodies[-1]["reasoning_effort"] == "low"


PRICES = {"prompt": 1.0, "completion": 2.0}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"base_url": "ftp://host/v1"}, "base_url"),
        ({"model": ""}, "model"),
        ({"timeout": 0}, "timeout"),
        ({"api_key_env": ["ONE", "TWO"]}, "api_key_env"),
        ({"base_url": "https://host.example/v1", "api_key_env": "TEST_NO_SUCH_KEY"}, "api_key_env"),
        ({"proxy": "http://me:secret@proxy:3128"}, "proxy"),
        ({"token": "no_such:function"}, "token"),
        ({"headers": {"X-A": "\n"}}, "headers.X-A"),
        ({"prices": {"prompt": 1.0}}, "prices.completion"),
        ({"prices": {**PRICES, "output": 3.0}}, "prices.output"),
        ({"prices": {**PRICES, "completion": float("nan")}}, "prices.completion"),
        ({"max_cost": 1.0}, "max_cost"),
        ({"max_cost": -1.0, "prices": PRICES}, "max_cost"),
        ({"max_costs": 1.0}, "max_costs"),
        ({"headers": {"Authorization": "Bearer secret"}}, "headers.Authorization"),
        ({"query": {"key": "secret"}}, "query.key"),
        ({"extra_body": {"temperature": 1}}, "extra_body.temperature"),
        ({"extra_body": {"x": object()}}, "extra_body.x"),
    ],
)
def test_a_bad_option_is_reported_by_name_and_without_secrets(options: dict[str, Any], field: str) -> None:
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": None, **options}
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(**given).check()
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:ses/same@host:80a/v1",
        "user:sesame@host/v1",
        "https://host:80a/v1?api_key=sesame",
        "https://host/v1?user=me@example.org&api_key=sesame",
        "https://host/v1#sesame",
    ],
)
def test_a_refused_url_is_shown_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(url, model="m", api_key_env=None).check()
    assert caught.value.field == "base_url"
    assert not any(part in str(caught.value) for part in ("ses", "same", "user"))


SUITE = '[suites.occugender]\nsuite = "OccuGender"\n'


def write(folder: Path, options: str) -> Path:
    file = folder / "audit.toml"
    file.write_text(f'[models.hosted]\nbackend = "openai"\n{options}\n{SUITE}')
    return file


def test_prices_and_all_other_options_are_given_by_a_toml_file(tmp_path: Path) -> None:
    options = (
        'base_url = "http://127.0.0.1:1/v1"\nmodel = "m"\ntimeout = 7\nmax_in_flight = 3\nsamples = 5\n'
        'max_cost = 2\nprobe_folder = "probes"\n'
        "prices = { prompt = 0.15, completion = 0.6, cached = 0.075 }"
    )
    backend = load_audit(write(tmp_path, options)).models["hosted"]
    backend.check()
    assert isinstance(backend, OpenAIBackend)
    assert (backend.options.timeout, backend.max_in_flight, backend.samples) == (7, 3, 5)
    assert backend.options.max_cost == 2
    # A million tokens each: 0.15 and 0.6.
    assert backend.highest_cost(1_000_000, 1_000_000) == pytest.approx(0.75)
    assert backend.spent() == 0


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ("prices = {input = 1.0, output = 2.0}", "prompt"),
        ('url = "http://127.0.0.1:1/v1"', "base_url"),
        ('api_version = "2024-10-21"', "query"),
    ],
)
def test_other_tools_names_of_options_lead_to_these(options: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean '{meant}'"):
        load_audit(write(tmp_path, f'base_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n{options}'))


def test_the_recipes_config_of_a_hosted_model_is_read(tmp_path: Path) -> None:
    recipes = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text("utf-8")
    file = tmp_path / "hosted.toml"
    file.write_text(recipes.split("```toml\n")[1].split("```")[0], "utf-8")
    audit = load_audit(file)
    (model,) = audit.models.values()
    assert isinstance(model, OpenAIBackend)
    assert model.samples == 20
