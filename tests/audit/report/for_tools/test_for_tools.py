"""A run in other tools' formats: the numbers are the run's, and what has no value is not invented."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from audit import Audit, StoredResult
from audit.report.exports.for_tools import Tool
from audit.report.exports.for_tools.of_model import answer_text
from backends import FakeBackend, PlantedBias
from backends.stand_ins.fake import Faults
from suites import GenderPair, OccuGender
from suites.base import Suite

WORDS = OccuGender(("implicit",)).expressions["implicit"]


def audited(folder: Path, suites: list[Suite], **more: Any) -> StoredResult:
    planted = PlantedBias(lambda _: {"female": 0.6, "male": 0.3, "diverse": 0.1}, WORDS)
    models = {"org/planted": FakeBackend("planted", score=planted, **more), "even, and odd": FakeBackend("even")}
    return Audit(models, suites, db=folder / "a.db", out=folder / "out", limit=100, small_sample=True).run_sync()


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StoredResult:
    return audited(tmp_path_factory.mktemp("for_tools"), [OccuGender(("implicit",))])


def read(paths: list[Path], name: str) -> Iterator[Any]:
    for path in paths:
        if path.name.startswith(name):
            yield json.loads(path.read_text("utf-8"))


def headline(result: StoredResult, model: str) -> Any:
    return next(m for m in result.measures if m.model == model and m.measure == "p_female" and not m.is_subgroup)


def test_inspects_log_holds_the_runs_items_and_figures(result: StoredResult, tmp_path: Path) -> None:
    written = result.write_for("inspect", tmp_path)
    # Inspect lists no other names: a time first, an id last.
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d.*_OccuGender_[^_]*", path.name) for path in written)
    logs = list(read(written, ""))
    assert [log["eval"]["model"] for log in logs] == ["org/planted", "even, and odd"]
    log = logs[0]
    frame = result.items_df("OccuGender")
    of_model = frame[frame.model == "org/planted"].set_index("item")
    assert len(log["samples"]) == 100
    for sample in log["samples"]:
        assert sample["scores"]["p_female"]["value"] == of_model.p_female[sample["id"]]
        assert sample["input"][0]["content"]
        assert sample["output"]["choices"] == [], "continuations were scored: the model wrote nothing"
        assert sample["metadata"]["likeliest of those scored"]
    figure = headline(result, "org/planted")
    metrics = next(s["metrics"] for s in log["results"]["scores"] if s["name"] == "p_female")
    (found,) = [m for m in metrics.values() if m["metadata"]["id"] == figure.id]
    assert (found["value"], found["metadata"]["low"]) == (figure.value, figure.low)


@pytest.mark.parametrize(
    ("scores", "said"),
    [({" he": -1.0, " she": -2.0}, " he"), ({" he": -1.0, " she": -1.0, " it": -2.0}, "he / she"), ({" he": None}, "")],
)
def test_equally_likely_answers_are_all_named(scores: dict[str, float | None], said: str) -> None:
    answers = [{"continuation": text, "logprob": logprob} for text, logprob in scores.items()]
    assert answer_text(answers) == said


def test_lm_evals_samples_hold_every_continuation(result: StoredResult, tmp_path: Path) -> None:
    paths = result.write_for("lm-eval", tmp_path, suite="OccuGender")
    (path,) = [p for p in paths if p.name.startswith("samples_OccuGender") and p.parent.name == "org-planted"]
    samples = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(samples) == 100
    assert len(samples[0]["arguments"]) == len(samples[0]["resps"]) == sum(map(len, WORDS.values()))
    assert all(logprob < 0 for [[logprob, _]] in samples[0]["resps"])
    figure = headline(result, "org/planted")
    results = next(r for r in read(paths, "results_") if r["model_name"] == "org/planted")
    values = [v for name, v in results["results"]["OccuGender"].items() if name.startswith("p_female[")]
    assert figure.value in values
    assert [figure.low, figure.high] in results["bias_audit"]["intervals"].values()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> StoredResult:
    """Of each of its items two questions are asked, and one model's texts lead to more than the other's."""
    folder = tmp_path_factory.mktemp("texts")
    models = {
        "refuses": FakeBackend("refuses", generate=lambda _, __: "I cannot help with that."),
        "writes": FakeBackend("writes", generate=lambda _, __: "He was lazy at home."),
    }
    audit = Audit(models, [GenderPair()], db=folder / "a.db", out=folder / "out", limit=60, small_sample=True)
    return audit.run_sync()


def test_an_item_of_two_questions_has_both(texts: StoredResult, tmp_path: Path) -> None:
    asked = "Please generate"
    lines = texts.write_items(tmp_path / "items.jsonl").read_text("utf-8").splitlines()
    picks = [
        r for r in map(json.loads, lines) if r["factors"].get("kind") == "selection" and "biased" in r["quantities"]
    ]
    assert len(picks) >= 60
    assert all(one["prompt"].startswith(asked) for pick in picks for one in pick["asked"])
    texts_of = [one["answers"][0] for pick in picks for one in pick["asked"] if "text" in one["answers"][0]]
    assert {answer["text"] for answer in texts_of} == {"He was lazy at home."}
    for log in read(texts.write_for("inspect", tmp_path / "inspect"), ""):
        found = [s for s in log["samples"] if s["input"][0]["content"].startswith(asked)]
        assert len(found) >= 60
        said = {s["output"]["choices"][0]["message"]["content"] for s in found}
        assert said in ({"He was lazy at home."}, {"I cannot help with that."})


def test_numbers_align_models_of_which_one_was_asked_more(texts: StoredResult, tmp_path: Path) -> None:
    of_model = {}
    for path in texts.write_for("lm-eval", tmp_path):
        if path.suffix == ".jsonl":
            samples = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            of_model[path.parent.name] = {sample["doc"]["id"]: sample["doc_id"] for sample in samples}
    refuses, writes = of_model["refuses"], of_model["writes"]
    assert refuses.keys() != writes.keys()
    shared = refuses.keys() & writes.keys()
    assert len(shared) >= 60
    assert all(refuses[item] == writes[item] for item in shared)
    assert len(set(writes.values())) == len(writes)


def test_every_eval_ever_has_each_figure_with_its_interval(result: StoredResult, tmp_path: Path) -> None:
    paths = result.write_for("every-eval-ever", tmp_path)
    assert tmp_path / "data" / "OccuGender" / "org" / "planted" == paths[0].parent
    record = json.loads(paths[0].read_text("utf-8"))
    figure = headline(result, "org/planted")
    (found,) = [r for r in record["evaluation_results"] if r["evaluation_result_id"] == figure.id]
    interval = found["score_details"]["uncertainty"]["confidence_interval"]
    assert (found["score_details"]["score"], interval["lower"], interval["upper"]) == (
        figure.value,
        figure.low,
        figure.high,
    )
    assert paths == result.write_for("every-eval-ever", tmp_path)


def test_no_tool_gets_a_number_for_a_missing_answer(tmp_path: Path) -> None:
    failing = audited(tmp_path, [OccuGender(("implicit",))], faults=Faults(1.0, ("context_length",), permanent=True))
    assert not failing.complete
    written = {tool: failing.write_for(tool, tmp_path / tool) for tool in get_args(Tool)}
    assert not any("planted" in path.parts for path in written["every-eval-ever"])
    log = next(log for log in read(written["inspect"], "") if log["eval"]["model"] == "org/planted")
    assert all(sample["error"]["message"] and not sample["scores"] for sample in log["samples"])
    assert log["results"]["scores"] == []
    (samples,) = [p for p in written["lm-eval"] if p.name.startswith("samples_") and p.parent.name == "org-planted"]
    assert samples.read_text("utf-8") == ""
