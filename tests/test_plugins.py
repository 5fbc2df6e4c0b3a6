"""What another package adds is listed, and named in configs and commands."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from audit import load_audit
from backends import named_backend
from backends.catalogue.plugins import plugins
from backends.errors import ConfigError
from suites import from_file

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugin"


def install(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """What pip writes of a package that declares these entry points."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n", "utf-8")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in of.items()) for group, of in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")


@pytest.fixture
def example(tmp_path, monkeypatch):
    declared = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    install(tmp_path, "bias-audit-example", declared)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    monkeypatch.chdir(tmp_path)


def test_a_package_adds_suites_backends_and_scorers(example):
    found = {kind: list(plugins(kind)) for kind in ("suites", "backends", "scorers")}
    assert found == {"suites": ["Siblings"], "backends": ["even"], "scorers": ["shouting"]}
    assert plugins("suites")["Siblings"].packages == ("bias-audit-example",)
    assert type(named_backend("even")).__name__ == "Even"


def test_a_config_names_what_a_package_adds(example, tmp_path):
    config = 'db = "a.db"\n[models.m]\nbackend = "even"\n[suites.s]\nsuite = "Siblings"\n'
    (tmp_path / "audit.toml").write_text(config, "utf-8")
    result = load_audit(tmp_path / "audit.toml").run_sync()
    (figure,) = result.measures
    assert (figure.measure, figure.value, figure.n_items) == ("p_sister", 0.5, 6)


def test_a_suites_file_names_a_scorer_that_a_package_adds(example, tmp_path):
    rows = "".join(f"{group} {n},{group}\n" for n in range(3) for group in ("Reds", "Blues"))
    (tmp_path / "p.csv").write_text(f"prompt,group\n{rows}", "utf-8")
    text = 'kind = "texts"\ndata = "p.csv"\nscorers = {toxicity = "shouting"}\n'
    (tmp_path / "t.toml").write_text(text, "utf-8")
    suite = from_file(tmp_path / "t.toml")
    assert suite.text_scorers["toxicity"].what.startswith("share of capital letters")


def test_ls_shows_what_a_package_adds(example, capsys):
    from audit.cli import main

    for what, name in (("suites", "Siblings"), ("backends", "even"), ("scorers", "shouting")):
        with pytest.raises(SystemExit):
            main(["ls", what, "--json"])
        listed = json.loads(capsys.readouterr().out)
        added = next(row for row in listed if name in row.values())
        assert added["package"] == "bias-audit-example"
        assert added["about"]


def test_a_package_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    install(tmp_path, "broken-one", {"bias_audit.suites": {"Gone": "no_such_module:Gone"}})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"bias_audit\.suites\.Gone.*broken-one cannot be imported"):
        plugins("suites")["Gone"].load()


def test_two_packages_of_one_name_are_refused(tmp_path, monkeypatch):
    for name in ("one-package", "other-package"):
        install(tmp_path, name, {"bias_audit.backends": {"mine": "backends.stand_ins.fake:FakeBackend"}})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="several packages register this name"):
        named_backend("mine")


def test_a_plugin_that_is_no_suite_is_refused(tmp_path, monkeypatch):
    install(tmp_path, "odd-one", {"bias_audit.suites": {"Odd": "backends.stand_ins.fake:FakeBackend"}})
    monkeypatch.syspath_prepend(str(tmp_path))
    config = '[models.m]\nbackend = "fake"\n[suites.s]\nsuite = "Odd"\n'
    (tmp_path / "audit.toml").write_text(config, "utf-8")
    with pytest.raises(ConfigError, match=r"suites\.s\.suite = 'Odd': .*not a suite class"):
        load_audit(tmp_path / "audit.toml")


def test_a_plugins_suite_may_be_a_function_that_returns_one(tmp_path, monkeypatch, capsys):
    from audit.cli import main

    install(
        tmp_path, "with-a-file", {"bias_audit.suites": {"Cards": "with_a_file:cards", "Nothing": "with_a_file:nothing"}}
    )
    (tmp_path / "cards.csv").write_text("stereotype,counterpart\nReds lie.,Blues lie.\n", "utf-8")
    (tmp_path / "with_a_file.py").write_text(
        "from pathlib import Path\nfrom suites import from_file\n"
        "def cards(**options):\n    'Which of two lies is likelier.'\n"
        "    return from_file(Path(__file__).parent / 'cards.csv', **options)\n"
        "def nothing():\n    pass\n",
        "utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = '[models.m]\nbackend = "fake"\n[suites.s]\nsuite = "{}"\n{}'
    (tmp_path / "audit.toml").write_text(config.format("Cards", 'start = "So: "'), "utf-8")
    (item,) = load_audit(tmp_path / "audit.toml").suites["s"].items()
    assert item.request.prompt == "So: "
    (tmp_path / "wrong.toml").write_text(config.format("Cards", 'strat = "So: "'), "utf-8")
    with pytest.raises(ConfigError, match=r"wrong.toml:5: suites\.s\.strat = 'So: ': .*'stratum'"):
        load_audit(tmp_path / "wrong.toml")
    (tmp_path / "none.toml").write_text(config.format("Nothing", ""), "utf-8")
    with pytest.raises(ConfigError, match=r"suites\.s = 'nothing': nothing returned a NoneType, not a suite"):
        load_audit(tmp_path / "none.toml")
    with pytest.raises(SystemExit):
        main(["ls", "suites", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert next(row for row in listed if row["suite"] == "Cards")["about"] == "Which of two lies is likelier."
