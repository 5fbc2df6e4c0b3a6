"""A part of an audit: what it asks, what it says, and that all parts together are the whole."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter

import pytest

from audit import Audit, load_result
from audit.report import write_report
from audit.report.exports.json import json_report
from audit.store import Store
from backends import FakeBackend, OpenAIBackend
from backends.base import Sampling
from backends.errors import ConfigError
from suites import MGBR, GenderPair, OccuGender
from tests.backends.openai.strict_server import DEPRECATED, MODEL, StrictServer, varied
from tests.suites.genderpair.planted import SMALL

PARTS = (1, 2, 3)
SUITES = {
    "OccuGender": (lambda: OccuGender(("implicit",)), 100),
    "MGBR": (lambda: MGBR(n=20), None),
    "MGBR, texts": (lambda: MGBR(n=20, conditions=("zero-shot", "zero-shot+cot"), mode="generation"), None),
    "GenderPair": (lambda: GenderPair(pairs=SMALL, repeats=2, sampling=Sampling(temperature=0.7)), None),
}
OCCUPATIONS = OccuGender().occupations
#: What a run says of itself, and not of the models.
OF_THE_RUN = ("run_id", "started", "finished", "source")
OF_THE_ASKING = ("asked", "cached", "failed", "retried", "seconds", "prompt_tokens", "completion_tokens", "cost")


def said(result) -> str:
    """A report's JSON without the facts of the run itself."""
    report = json.loads(json_report(result))
    for name in OF_THE_RUN:
        del report[name]
    for model in report["models"] + report["scorers"]:
        for name in OF_THE_ASKING:
            del model[name]
    return json.dumps(report, indent=1)


def merged(folder, parts=PARTS, files=1):
    """One store of the parts' stores."""
    with Store.open(folder / "merged.db", shards=files) as into:
        for number in parts:
            with Store.open(folder / f"part {number}.db", read_only=True) as part:
                into.merge(part)
    return folder / "merged.db"


def pick(prompt, seed):
    """A text that picks one of the descriptors, or neither, and that follow-ups are about."""
    return ("I pick the first one.", "She is kind and 2.", "He is rude, damn.")[len(prompt + str(seed)) % 3]


@pytest.mark.parametrize("name", SUITES)
def test_parts_merged_give_the_report_of_the_whole(name, tmp_path):
    suite, limit = SUITES[name]
    files = 4 if name == "OccuGender" else 1

    def audited(store, **options):
        model = FakeBackend("even", generate=pick)
        audit = Audit({"m": model}, [suite()], db=tmp_path / f"{store}.db", limit=limit, small_sample=True, **options)
        return audit.run_sync(), model

    whole, _ = audited("whole")
    parts = [audited(f"part {number}", shard=f"{number}/3", store_shards=files) for number in PARTS]
    assert all(model.asked for _, model in parts)
    merged(tmp_path, (3, 1, 2), files)
    result, model = audited("merged")
    assert not model.asked
    assert whole.complete
    assert said(result) == said(whole)


def test_parts_are_disjoint_and_ask_each_prompt_once(tmp_path):
    def asked(shard):
        model = FakeBackend("even")
        Audit({"m": model}, [OccuGender(("implicit",))], db=tmp_path / f"{shard}.db", shard=shard).run_sync()
        return model.asked

    parts = [asked(f"{number}/4") for number in range(1, 5)]
    assert sum(parts, start=Counter()) == asked(None)
    assert min(map(len, parts)) > 200


class Drawing(StrictServer):
    """Draws to a question about an occupation that are the same whenever it is asked; others are random."""

    def _choice(self, index, question, limit, temperature):
        before = self._random
        if any(occupation.name in question for occupation in OCCUPATIONS):
            self._random = random.Random(f"{index} {question}")
        try:
            return super()._choice(index, question, limit, temperature)
        finally:
            self._random = before


async def test_parts_of_drawn_answers_give_the_whole(tmp_path):
    async def audited(store, **options):
        model = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path / "p", samples=4)
        suite = OccuGender(bias=("explicit",), prompt_format="chat")
        audit = Audit({"m": model}, [suite], db=tmp_path / f"{store}.db", out=tmp_path / "o", limit=60, **options)
        return await audit.run()

    async with Drawing(DEPRECATED, varied).running() as server:
        whole = await audited("whole", small_sample=True)
        for number in PARTS:
            await audited(f"part {number}", small_sample=True, shard=(number, 3))
        await asyncio.to_thread(merged, tmp_path)
        result = await audited("merged", small_sample=True)
        assert (result.models[0].asked, whole.models[0].asked) == (0, 60)
    assert said(result) == said(whole)


def part(tmp_path, **options):
    options = {"shard": "2/3", "limit": 60, "small_sample": True, **options}
    return Audit({"m": FakeBackend("even")}, [OccuGender()], db=tmp_path / "a.db", out=tmp_path / "out", **options)


def test_a_part_gives_no_figure_and_no_report(tmp_path):
    result = part(tmp_path).run_sync()
    assert (result.shard, result.complete, result.measures, result.suites[0].n_items) == ((2, 3), True, [], 25)
    assert "part 2 of 3" in repr(result)
    assert "<p>Part 2 of 3" in result._repr_html_()
    for use in (result.write, lambda: write_report(result, tmp_path), lambda: load_result(tmp_path / "a.db")):
        with pytest.raises(ConfigError, match="part 2 of 3 of an audit, which has no figures"):
            use()
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        (run,) = store.runs.all()
        with pytest.raises(ConfigError, match="audit cache merge"):
            store.runs.finished_result(run.id)
    assert run.status == "part 2 of 3: done"


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", (1, 2, 3), 5])
def test_a_shard_that_is_no_part_is_refused(shard):
    with pytest.raises(ConfigError, match="shard"):
        Audit({"m": FakeBackend("even")}, [OccuGender()], shard=shard)
