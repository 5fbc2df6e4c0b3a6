"""`audit probe`: of a server, and of a config's servers with their own options."""

import contextlib
import json
import re

import numpy as np
import pytest

from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.server import MODEL, WordServer

SUITE = '[suites.mine]\nfile = "pairs.csv"\n'


@pytest.fixture
def server(tmp_path, monkeypatch):
    with served(WordServer("chat", 0), tmp_path, monkeypatch) as one:
        yield one


@contextlib.contextmanager
def served(one, tmp_path, monkeypatch):
    """A server in a thread of its own: commands have their own event loop."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "pairs.csv").write_text("stereotype,counterpart,group\n" + "A.,B.,c\nD.,E.,f\n", "utf-8")
    with one.in_thread():
        yield one


def table(name, url, options=""):
    return f'[models.{name}]\nbackend = "openai"\nbase_url = "{url}"\nmodel = "{MODEL}"\napi_key_env = ""\n{options}\n'


def test_a_config_is_probed_with_its_own_options(server, audit, tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text(
        table("one", server.base_url, 'headers = {X-Route = "blue"}') + '[models.other]\nbackend = "fake"\n' + SUITE,
        "utf-8",
    )
    code, out, err = audit("probe", path)
    assert code == 0, err
    assert "models.one: word-model at http://" in out
    assert "models.other" not in out
    assert all("X-Route: blue" in head for head in server.headers)
    code, out, _ = audit("probe", path, "--json")
    assert (code, list(json.loads(out))) == (0, ["one"])


def test_one_server_that_is_down_hides_no_other(server, audit, tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text(table("down", "http://127.0.0.1:9/v1") + table("up", server.base_url) + SUITE, "utf-8")
    code, out, _ = audit("probe", path)
    assert code == 1
    assert "models.down: connection: ConnectError" in out
    assert "models.up: word-model at http://" in out


def test_a_server_that_contradicts_itself_fails_a_look(audit, tmp_path, monkeypatch):
    lie = LIES["cache by the first 12 characters"](np.random.default_rng([0, 4]))
    with served(WordServer("lists", 0, lie), tmp_path, monkeypatch) as server:
        code, out, err = audit("probe", server.base_url, "--model", MODEL, "--api-key-env", "")
    assert code == 1, err
    assert "differ at their end got one list: a cache answers" in out
    assert "request 1 of at most 20" in err


def test_all_experiments_are_made_on_request_and_each_is_told(audit, tmp_path, monkeypatch):
    lie = LIES["logarithms to base 2"](np.random.default_rng([0, 4]))
    with served(WordServer("lists", 0, lie), tmp_path, monkeypatch) as server:
        asked = ("probe", server.base_url, "--model", MODEL, "--api-key-env", "")
        assert audit(*asked)[0] == 0
        code, out, err = audit(*asked, "--thorough")
    assert code == 1
    assert "FAIL draws of texts" in out
    assert "FAIL draws of texts" in err
    assert "ok   near twins of texts" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("audit.toml", "--model", "m"), "a config is given"),
        (("audit.toml",), "none of them is a server"),
        (("http://127.0.0.1:9/v1",), "http://127.0.0.1:9/v1#MODEL"),
        (("fake",), "not a server"),
    ],
)
def test_what_cannot_be_probed_is_refused(arguments, said, audit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text("stereotype,counterpart,group\nA.,B.,c\n", "utf-8")
    (tmp_path / "audit.toml").write_text('[models.fake]\nbackend = "fake"\n' + SUITE, "utf-8")
    code, _, err = audit("probe", *arguments)
    assert code == 2
    assert said in err


def test_a_run_that_reached_its_cost_limit_says_what_the_rest_takes_and_that_suffices(server, audit, tmp_path):
    def config(limit):
        path = tmp_path / "audit.toml"
        options = f"prices = {{prompt = 2.0, completion = 8.0}}\nmax_cost = {limit}"
        suite = '[suites.occ]\nsuite = "OccuGender"\nprompt_format = "chat_whole"\n'
        path.write_text("limit = 40\nsmall_sample = true\n" + table("m", server.base_url, options) + suite, "utf-8")
        return path

    code, _, err = audit("run", config(0.009))
    assert code == 1
    (told,) = re.findall(r"m: the rest costs at most about (\S+): set max_cost to that", err)
    code, _, err = audit("run", config(told))
    assert (code, "Problem" in err) == (0, False), err
