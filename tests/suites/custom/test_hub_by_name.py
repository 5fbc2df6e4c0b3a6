"""Data sets of a Hub by name, by the real package over a real socket: what is read, and each error in one line.

The package reads the Hub's address when it is imported, so the files are read in another process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites.custom.loopback_hub import Files, commit, loopback_hub

pytest.importorskip("datasets")

READ = """
import json, os, sys, time
import datasets
time.sleep = lambda seconds: None  # between the tries at a Hub that does not answer: half a minute in all
datasets.config.USE_PARQUET_EXPORT = False  # another host of the Hub, which it can do without
from backends.errors import ConfigError
from suites import from_file
for line in sys.stdin:
    path, os.environ["HF_TOKEN"] = json.loads(line)
    try:
        found = [one.sentences["stereotyping"] for one in from_file(path).sets]
    except ConfigError as error:
        found = str(error)
    print(json.dumps(found), flush=True)
"""


def table(word: str, n: int) -> Files:
    rows = "".join(f"{word} {k}.,Blues {k}.\n" for k in range(n))
    return {"test.csv": f"stereotype,counterpart\n{rows}".encode()}


PAIRS = {"main": {**table("Reds", 3), "README.md": b"---\nlicence: mit\n---\n"}, "v1": table("Greens", 4)}
PINNED = commit("own/pairs", PAIRS["v1"])
REVISIONS = {
    "own/pairs": PAIRS,
    "own/secret": {"main": table("Secrets", 2)},
    "own/gated": {"main": table("Gated", 2)},
    "own/images": {"main": {"one.bin": b"\0"}},
}
READABLE = [
    ("", ["Reds 0.", "Reds 1.", "Reds 2."]),
    (', revision = "v1"', [f"Greens {k}." for k in range(4)]),
    (f', revision = "{PINNED}"', [f"Greens {k}." for k in range(4)]),
]
REFUSED = [
    ("own/pairs", ', revision = "v9"', "data.revision = 'v9': no such branch, tag or commit. Fix it"),
    ("own/pairs", ', config = "x"', "data.config = 'x': no such configuration. Give one of ['default']"),
    ("own/gone", "", "data.dataset = 'own/gone': no such data set on the Hub, or a private one. Fix owner/name; for"),
    ("own/gated", "", "data.dataset = 'own/gated': gated: its owner decides who may read it. Ask for access on its"),
    ("own/images", "", "data.dataset = 'own/images': holds no file of rows. Name a data set with .csv"),
]


class Reader:
    """Reads one suite's file after another in a process of its own, which knows the Hub's address."""

    def __init__(self, folder: Path, url: str) -> None:
        own = {"HF_ENDPOINT": url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "home")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self._process = subprocess.Popen([sys.executable, "-c", READ], env={**os.environ, **own}, **pipes)
        self._path = folder / "m.toml"

    def __call__(self, dataset: str, more: str = "", *, split: str = "test", token: str = "") -> object:
        text = f'kind = "pairs"\ndata = {{dataset = "{dataset}", split = "{split}"{more}}}\n'
        self._path.write_text(text, "utf-8")
        self._process.stdin.write(json.dumps([str(self._path), token]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)


@pytest.fixture
def hub():
    with loopback_hub(REVISIONS, private=frozenset({"own/secret"}), gated=frozenset({"own/gated"})) as hub:
        yield hub


@pytest.fixture
def reader(hub, tmp_path):
    read = Reader(tmp_path, hub.url)
    yield read
    read.close()


def test_data_sets_are_read_by_name_and_errors_told(hub, reader):
    for more, expected in READABLE:
        assert reader("own/pairs", more) == expected
    for dataset, more, expected in REFUSED:
        told = reader(dataset, more)
        assert isinstance(told, str)
        assert told.startswith(f"m.toml:2: {expected.split(': ')[0]}: ")
        assert "\n" not in told
    told = reader("own/pairs", split="dev")
    assert str(told).startswith("m.toml:2: data.split = 'dev': cannot be loaded")
    private = "m.toml:2: data.dataset = 'own/secret': cannot be loaded"
    assert str(reader("own/secret")).startswith(private)
    assert reader("own/secret", token="key") == ["Secrets 0.", "Secrets 1."]
    assert any(one.startswith("GET /datasets/own/pairs/resolve/") for one in hub.asked)

    hub.shutdown()
    hub.server_close()
    # What was read before is in the cache: its newest version is not passed off as another revision.
    assert reader("own/pairs", f', revision = "{PINNED}"') == [f"Greens {k}." for k in range(4)]
    other = f"m.toml:2: data.revision = '{'0' * 40}': the Hub does not answer, and the copy in the cache may be of"
    assert str(reader("own/pairs", f', revision = "{"0" * 40}"')).startswith(other)
    gone = "m.toml:2: data.dataset = 'own/gone': cannot be loaded"
    assert str(reader("own/gone")).startswith(gone)
