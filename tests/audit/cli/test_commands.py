"""The command line as a user meets it: what each command prints, and its exit code."""

import json
import re
import sqlite3

from audit.store import Store
from tests.audit.store.entries import entry, put, sql


def test_every_command_reads_the_store_of_a_run(audit, config, tmp_path):
    db = tmp_path / "a.db"
    code, out, _ = audit("run", config())
    assert code == 0
    assert str(tmp_path / "out" / "report.html") in out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    documented = "id model suite measure where value low high n_items n_clusters missing censored coverage signature"
    assert all(set(documented.split()) <= set(m) for m in report["measures"])

    code, out, _ = audit("ls", "runs", "--db", db, "--json")
    assert code == 0
    assert [r["status"] for r in json.loads(out)] == ["done"]

    code, out, _ = audit("ls", "models", "--db", db, "--json")
    assert {m["name"] for m in json.loads(out)} == {"first", "second"}

    code, out, _ = audit("compare", "first", "second", "--db", db, "--json")
    forward = json.loads(out)
    code, out, _ = audit("compare", "second", "first", "--db", db, "--json")
    backward = json.loads(out)
    assert len(forward) > 3
    assert forward == backward, "the pair as the run has it"

    figure = next(m for m in report["measures"] if m["measure"] == "p_female" and not m["detail"])
    code, out, _ = audit("show", figure["id"], "--db", db, "--json", "--limit", 3)
    shown = json.loads(out)
    assert len(shown["items"]) == 3
    assert all(a["answered"] and a["checksum"] == "right" for i in shown["items"] for a in i["answers"])

    key = shown["items"][0]["answers"][0]["key"]
    code, out, _ = audit("cache", "explain", key, "--db", db)
    assert json.loads(out)["prompt"] == shown["items"][0]["answers"][0]["prompt"]
    assert audit("cache", "verify", "--db", db)[0] == 0
    assert json.loads(audit("cache", "stats", "--db", db, "--json")[1])["answers"] == 2 * 100

    ranked = json.loads(audit("correlate", "--db", db, "--json")[1])
    assert ranked["models"] == ["first", "second"]
    assert {figure["measure"] for figure in ranked["figures"]} == {
        m["measure"] for m in report["measures"] if m["spec"].get("primary")
    }
    assert "no primary figures from two suites" in audit("correlate", "--db", db)[1]
    for command in ("correlate", "history"):
        code, _, err = audit(command, "--db", db, "--title", "misspelt")
        assert (code, "no run has it" in err, report["title"] in err) == (2, True, True)

    assert str(tmp_path / "out") in audit("report", "--db", db, "--format", "csv")[1]
    code, out, _ = audit("report", "--db", db, "--out", tmp_path / "again")
    assert code == 0
    assert (tmp_path / "again" / "report.html").exists()
    code, out, _ = audit("report", "--db", db, "--out", tmp_path / "tables", "--format", "latex", "--format", "csv")
    assert code == 0
    written = {path.relative_to(tmp_path / "tables").as_posix() for path in (tmp_path / "tables").rglob("*.*")}
    assert "tables/OccuGender-implicit_bias.tex" in written
    assert "tables/OccuGender-implicit_bias.csv" in written
    assert not {name for name in written if name.endswith((".html", ".json", ".md"))}


def test_merge_says_what_each_store_brought(audit, tmp_path):
    whole = tmp_path / "whole.db"
    for name, numbers in (("a", (1, 2)), ("b", (2, 3))):
        with Store.open(tmp_path / f"{name}.db") as store:
            put(store, *map(entry, numbers))
    sql(tmp_path / "b.db", "UPDATE answers SET value = zeroblob(9) WHERE id = 2")
    code, out, err = audit("cache", "merge", whole, tmp_path / "a.db", tmp_path / "b.db")
    assert code == 1
    assert "a.db: 2 answers, 2 new, 0 known, 0 damaged" in out
    assert "b.db: 1 answers, 0 new, 1 known, 1 damaged" in out
    assert err.splitlines() == [f"damaged: {entry(3)[0].key} (not merged, will be asked again)"]
    assert audit("cache", "merge", whole, tmp_path / "a.db")[0] == 0
    with Store.open(tmp_path / "c.db") as store:
        put(store, (entry(5)[0], entry(55)[1]), entry(1))
    with Store.open(tmp_path / "d.db") as store:
        put(store, entry(5), entry(1), entry(6))
    code, out, err = audit("cache", "merge", tmp_path / "c.db", tmp_path / "d.db")
    assert (code, "d.db: 3 answers, 1 new, 2 known, 0 damaged" in out) == (0, True)
    assert err.startswith("known here with another answer, which counts: 1")
    assert audit("cache", "merge", tmp_path / "new.db", tmp_path / "none.db")[0] == 2
    assert not (tmp_path / "new.db").exists()
    assert audit("cache", "merge", whole, whole)[0] == 2
    code, _, err = audit("cache", "merge", tmp_path / "mistyped" / "new.db", tmp_path / "a.db")
    assert (code, "its folder does not exist" in err, (tmp_path / "mistyped").exists()) == (2, True, False)


def test_verify_quarantines_and_the_next_run_asks_again(audit, ran, tmp_path):
    db = tmp_path / "a.db"
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE answers SET checksum = 'wrong' WHERE id <= 3")
        connection.execute("UPDATE prompts SET body = '\"other\"' WHERE id = (SELECT min(id) FROM prompts)")
    code, out, err = audit("cache", "verify", "--db", db)
    assert code == 1
    quarantined = err.count("will be asked again")
    assert quarantined >= 3
    assert f"{quarantined} damaged and quarantined" in out
    assert json.loads(audit("cache", "stats", "--db", db, "--json")[1])["quarantine"] == quarantined
    assert audit("run", ran)[0] == 0
    assert audit("cache", "verify", "--db", db)[0] == 0


def test_a_baseline_is_saved_promoted_and_gated_against(audit, ran, tmp_path):
    db = tmp_path / "a.db"
    assert audit("baseline", "save", "nightly", "--db", db)[0] == 0
    assert audit("baseline", "save", "nightly", "--db", db)[0] == 2
    code, out, _ = audit("gate", "--baseline", "nightly", "--db", db, "--junit", tmp_path / "j.xml", "--json")
    assert code == 0
    assert json.loads(out)["figures"]
    assert "which is this run" in audit("gate", "--baseline", "nightly", "--db", db)[1]
    assert "<testsuite" in (tmp_path / "j.xml").read_text()
    assert audit("gate", "--baseline", tmp_path / "out" / "report.json", "--db", db)[0] == 0
    assert audit("gate", "--baseline", "nowhere", "--db", db)[0] == 2
    code, out, _ = audit("gate", "--db", db, "--json")
    assert code == 0
    assert {check["verdict"] for check in json.loads(out)["limits"]} == {"met"}
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["limits"] == [
        {name: check[name] for name in report["limits"][0]} for check in json.loads(out)["limits"]
    ]
    assert json.loads(out)["figures"] == []
    audit("run", ran)
    assert audit("baseline", "promote", "nightly", "--db", db)[0] == 0
    (saved,) = json.loads(audit("baseline", "list", "--db", db, "--json")[1])
    assert saved["earlier"] == 1


NIGHT = """
import hashlib
from audit import Audit
from backends.stand_ins.fake import FakeBackend, PlantedBias
from suites import OccuGender

suite = OccuGender(("implicit",))
female = {{o.name for o in suite.occupations if o.dominated_by == "female"}}
names = sorted((o.name for o in suite.occupations), key=len, reverse=True)

def groups(prompt):
    noise = int.from_bytes(hashlib.sha256(("{version}" + prompt).encode()).digest()[:8], "big") / 2**63 - 1
    gap = 0.25 + {shift} + 0.03 * noise
    own, other = (0.9 + gap) / 2, (0.9 - gap) / 2
    is_female = next(name for name in names if name in prompt) in female
    return {{"male": other if is_female else own, "female": own if is_female else other, "diverse": 0.1}}

words = {{"male": ("He", "he"), "female": ("She", "she"), "diverse": ("They", "they")}}
audit = Audit(
    {{"m": FakeBackend("{version}", score=PlantedBias(groups, words), batch_size=1000)}},
    [suite], db={db!r}, out={out!r}, margins={{"default": 0.02}},
)
"""


def test_nights_in_a_loop_alarm_only_at_the_shift(audit, tmp_path):
    """Every night a new version, some asked only until it is decided, one a repetition; then a real shift."""
    db, config = tmp_path / "a.db", tmp_path / "night.py"

    def night(version, shift=0.0, *options):
        config.write_text(NIGHT.format(version=version, shift=shift, db=str(db), out=str(tmp_path / "out")))
        assert audit("run", config, *options)[0] == 0
        code, out, _ = audit("gate", "--baseline", "released", "--db", db, "--json")
        gap = next(f for f in json.loads(out)["figures"] if f["measure"] == "stereotype_gap")
        return code, gap["look"], gap["verdict"], gap["n_items"]

    config.write_text(NIGHT.format(version="released", shift=0, db=str(db), out=str(tmp_path / "out")))
    assert audit("run", config)[0] == 0
    assert audit("baseline", "save", "released", "--db", db)[0] == 0
    until = ("--until", "decided", "--baseline", "released")
    assert night("v1") == (0, 1, "unchanged", 1000)
    assert night("v1") == (0, 1, "unchanged", 1000)
    code, look, verdict, items = night("v2", 0.0, *until)
    assert (code, look, verdict) == (0, 2, "unchanged")
    assert items <= 400
    code, look, verdict, items = night("v3", 0.05, *until)
    assert (code, look, verdict) == (3, 3, "regressed")
    assert items <= 400
    code, out, _ = audit("history", "--db", db, "--measure", "stereotype_gap", "--json")
    (check,) = json.loads(out)["checks"]
    assert check["verdict"] == "regressed"
    assert "significantly worse in 1" in audit("history", "--db", db, "--measure", "stereotype_gap")[1]
    assert "1 regressed" in audit("gate", "--baseline", "released", "--db", db)[1]
    assert "Asked in random order until decided" in (tmp_path / "out" / "report.html").read_text()


def test_a_dry_run_counts_and_asks_nothing(audit, ran, tmp_path):
    first, _ = json.loads(audit("run", ran, "--dry-run", "--json")[1])["models"]
    assert (first["requests"], first["cached"], first["seconds"]) == (0, 100, 0.0)
    (tmp_path / "a.db").unlink()
    code, out, _ = audit("run", ran, "--dry-run", "--json")
    assert code == 0
    first, _ = json.loads(out)["models"]
    assert (first["items"], first["requests"], first["cached"]) == (100, 100, 0)


def test_a_dry_run_leaves_no_store_behind(audit, config, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = config()
    path.write_text(path.read_text().replace(repr(str(tmp_path / "a.db")), "'~/a.db'"))
    assert audit("run", path, "--dry-run")[0] == 0
    assert not list(tmp_path.glob("a.db*"))


def test_models_and_suites_are_narrowed(audit, config, tmp_path):
    code, out, _ = audit("run", config(), "--models", "second", "--limit", 50, "--json")
    assert code == 0
    result = json.loads(out)
    assert [m["name"] for m in result["models"]] == ["second"]
    assert result["suites"][0]["n_items"] == 50


def test_a_run_without_all_answers_exits_1_and_says_so(audit, config):
    code, _, err = audit("run", config(', faults=Faults(0.3, ("context_length",), permanent=True)'))
    assert code == 1
    assert "no answer" in err


def test_help_teaches(audit):
    code, out, _ = audit("--help")
    assert code == 0
    assert "audit run --suite OccuGender --model fake" in out
    assert "resumes" in audit("run", "--help")[1]
    assert audit("--version")[1].startswith("bias-audit ")


def test_init_writes_examples_that_run(audit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = audit("init", "mine")
    assert (code, out.startswith("Examples are in mine.")) == (0, True)
    assert not [*tmp_path.rglob("__pycache__"), *tmp_path.rglob("*.png")]
    assert audit("run", "mine/fake.py", "--limit", "200", "--small-sample")[0] == 0
    code, _, err = audit("init", "mine")
    assert (code, "FOLDER = 'mine': exists already" in err) == (2, True)


def test_a_part_writes_no_report_and_parts_join(audit, config, tmp_path):
    path = config()
    for number in (1, 2):
        code, out, _ = audit("run", path, "--shard", f"{number}/2", "--db", tmp_path / f"{number}.db")
        assert (code, f"Part {number} of 2" in out, "audit cache merge" in out) == (0, True, True)
        assert f"audit run {path} --db WHOLE.db" in out
    assert not (tmp_path / "out" / "report.json").exists()
    code, _, err = audit("report", "--db", tmp_path / "1.db")
    assert (code, "part 1 of 2 of an audit, which has no figures" in err) == (2, True)
    assert audit("cache", "merge", tmp_path / "all.db", tmp_path / "1.db", tmp_path / "2.db")[0] == 0
    assert audit("run", path, "--db", tmp_path / "all.db")[0] == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [(model["asked"], model["cached"]) for model in report["models"]] == [(0, 100), (0, 100)]


def test_show_prints_prompt_and_token_log_probabilities(audit, ran, tmp_path):
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    code, out, _ = audit("show", report["measures"][0]["id"], "--db", tmp_path / "a.db", "--limit", "1")
    assert code == 0
    assert "  prompt: 'Q: " in out
    assert "  key a2-" in out
    assert re.search(r"    ' \w+': log P -\d+\.\d+ nats \(exact, boundary \w+, \w+\); tokens ' \w+' -\d", out)
