"""A model whose fingerprint lost fields that change no answer keeps its answers."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from audit import Audit
from audit.store import Entry, Store, StoreError, answer_keys, keyed_request
from audit.store.keys import fingerprint_id
from backends import OpenAIBackend
from tests.audit.store.data.make_old_store import FIRST, SECOND, STORE, Pronouns
from tests.audit.store.entries import answer_to, answers_by_key, put, question, sql
from tests.backends.openai.lying_server import MODEL, Liar

NOW = {"model": "m", "route": "echo"}
OLDER = [{**NOW, "unused": "ok"}, {**NOW, "unused": "failed"}, {**NOW, "unused": None}]
RETIRED = frozenset({"unused"})


def answered(store, numbers, fingerprint):
    """Store answers to some questions under a fingerprint, as an earlier version did; returns its id."""
    name = store.fingerprints.resolve(fingerprint)
    for i in numbers:
        put(store, Entry(keyed_request(question(i), name), answer_to(question(i))))
    return name


def missing(store, numbers, name):
    """Which questions would be asked."""
    return [
        i
        for i in numbers
        if not set(answer_keys(question(i), name)) <= set(answers_by_key(store, answer_keys(question(i), name)))
    ]


def test_a_fingerprint_alone_is_its_own_id(store):
    assert store.fingerprints.resolve(NOW, RETIRED) == fingerprint_id(NOW)
    assert sql(store.path, "SELECT * FROM fingerprint_aliases") == []


def test_answers_of_an_older_fingerprint_are_used(store):
    older = answered(store, range(5), OLDER[0])
    assert older != fingerprint_id(NOW)
    for _ in range(2):
        assert store.fingerprints.resolve(NOW, RETIRED) == older
    assert missing(store, range(5), older) == []
    assert store.fingerprints.resolve(NOW) == older  # known from then on


@pytest.mark.parametrize(
    "other", [{**OLDER[0], "route": "top_k"}, {**OLDER[0], "more": 1}, {"model": "m", "unused": 1}]
)
def test_a_model_that_differs_otherwise_is_another_one(store, other):
    answered(store, range(5), other)
    assert store.fingerprints.resolve(NOW, RETIRED) == fingerprint_id(NOW)


def test_true_and_1_are_different_models(store):
    answered(store, range(5), {"bos": True, "unused": 1})
    assert store.fingerprints.resolve({"bos": 1}, RETIRED) == fingerprint_id({"bos": 1})


def test_several_older_fingerprints_lose_no_answer(store):
    few = answered(store, range(3), OLDER[0])
    most = answered(store, range(2, 9), OLDER[1])
    own = answered(store, range(8, 10), NOW)
    before = sql(store.path, "SELECT * FROM packed_scores")
    assert store.fingerprints.resolve(NOW, RETIRED) == most
    assert missing(store, range(10), most) == []
    assert missing(store, range(3), few) == missing(store, range(8, 10), own) == []  # rows of earlier runs name them
    assert set(before) <= set(sql(store.path, "SELECT * FROM packed_scores"))
    assert store.answers.verify().sound
    assert store.stats()["answers"] == 2 * (3 + 7 + 2 + 3)  # 0, 1 and 9 were copied, with two continuations each


def test_an_older_fingerprint_that_comes_later_is_added(store):
    first = answered(store, range(5), OLDER[0])
    assert store.fingerprints.resolve(NOW, RETIRED) == first
    answered(store, range(4, 20), OLDER[1])  # by an earlier version, in between
    assert store.fingerprints.resolve(NOW, RETIRED) == first
    assert missing(store, range(20), first) == []


def test_answers_written_later_under_an_older_id_are_used(store):
    few = answered(store, range(3), OLDER[0])
    most = answered(store, range(2, 9), OLDER[1])
    assert store.fingerprints.resolve(NOW, RETIRED) == most
    answered_by_an_earlier_version = [Entry(keyed_request(question(i), few), answer_to(question(i))) for i in (20, 21)]
    for entry in answered_by_an_earlier_version:
        put(store, entry)
    assert store.fingerprints.resolve(NOW, RETIRED) == most
    assert missing(store, [*range(9), 20, 21], most) == []


def test_a_copy_that_was_interrupted_is_completed(store, monkeypatch):
    answered(store, range(3), OLDER[0])
    most = answered(store, range(2, 9), OLDER[1])
    real, calls = store._database.submit, []

    def failing(work, **options):
        calls.append(work)
        if len(calls) == 3:  # after the fingerprint and one portion
            raise StoreError(store.path, "full", "no space")
        return real(work, **options)

    monkeypatch.setattr(store._database, "submit", failing)
    with pytest.raises(StoreError):
        store.fingerprints.resolve(NOW, RETIRED)
    monkeypatch.undo()
    assert store.fingerprints.resolve(NOW, RETIRED) == most
    assert missing(store, range(9), most) == []


def test_a_damaged_answer_is_not_copied(store):
    few = answered(store, range(2), OLDER[0])
    most = answered(store, range(2, 9), OLDER[1])
    group = keyed_request(question(1), few).group
    sql(store.path, "UPDATE packed_scores SET body = ? WHERE grp = ?", b"[]", group)
    assert store.fingerprints.resolve(NOW, RETIRED) == most
    assert missing(store, range(9), most) == [1]


async def test_a_store_of_an_earlier_version_is_not_asked_again(tmp_path):
    """See `make_old_store`: two runs of one model, whose fingerprints differ in an experiment without effect."""
    path = shutil.copy(STORE, tmp_path / "audit.db")
    (first, second, url) = _of_old_store(path)
    with pytest.raises(AssertionError):  # as it would be without retired fields
        await _ask(shutil.copy(STORE, tmp_path / "other.db"), tmp_path, url, retired=frozenset())
    result = await _ask(path, tmp_path, url)
    assert (result.complete, result.models[0].cached, result.models[0].asked) == (True, 14, 0)
    assert result.models[0].fingerprint_id == first
    with Store.open(path, read_only=True) as store:
        assert store.answers.verify().sound
        runs = [run.id for run in store.runs.all()]
        assert len(runs) == 3
        for run in runs:  # what is behind the figures of earlier runs can still be shown
            behind = [
                store.answers.inspect(key) for row in store.runs.read_rows(run, "m", "pronouns") for key in row.keys
            ]
            assert all(found["answered"] for found in behind)
            assert {found["fingerprint_id"] for found in behind} <= {first, second}


def test_a_store_of_an_earlier_version_can_be_read_only(tmp_path):
    path = shutil.copy(STORE, tmp_path / "audit.db")
    with Store.open(path, read_only=True) as store:
        assert store.runs.finished_result(store.runs.find("last")).complete
        assert store.answers.verify().answers == 2 * (len(FIRST) + len(SECOND))
    assert sql(path, "PRAGMA user_version") == [(4,)]


def _of_old_store(path):
    """The ids of the two runs' fingerprints, in order, and the server's address."""
    results = [json.loads(text) for (text,) in sql(path, "SELECT result FROM runs ORDER BY started, rowid")]
    first, second = (result["models"][0] for result in results)
    return first["fingerprint_id"], second["fingerprint_id"], first["fingerprint"]["base_url"]


async def _ask(path, folder, url, retired=None):
    """Run today's audit of the questions of both runs; the same server answers probes, and no question."""

    class Moved(OpenAIBackend):
        """Described as being where the old store's server was."""

        async def describe(self):
            found = await super().describe()
            fingerprint = {**found.fingerprint, "base_url": url}
            fields = found.retired if retired is None else retired
            return dataclasses.replace(found, fingerprint=fingerprint, retired=fields)

    async with Liar().running() as server:
        backend = Moved(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder / "probes")
        result = await Audit({"m": backend}, [Pronouns(range(14))], db=path, out=folder / "out").run()
        assert not [body for body in server.bodies if "Q: Who is number" in str(body.get("prompt"))]
    return result
