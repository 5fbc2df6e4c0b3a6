"""Memory of a run by its number of prompts: a line for each stage, in bytes a prompt.

python -m tests.benchmarks.bench_memory 10000 100000 [--models 1] [--unasked] [--evaluated] [--store FOLDER]

Prompts with 26 continuations each, over a fixed number of clusters. Each number runs in a process of its own, since
a process does not give back all of its memory. A stage's peak is the largest resident size that was seen in it, with
and without the pages of files that are mapped: these the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import math
import multiprocessing
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from audit import Audit
from audit.analysis import evaluate
from audit.analysis.comparing.comparisons import compare_models
from audit.analysis.components import suite_components
from audit.analysis.measures import measure_table
from audit.analysis.rows.packed import BLOCK, LevelColumn, NumberColumn, PackedRows, RowBlock, RowsAlike
from audit.analysis.table import Table
from audit.run import answer_collector, audit_run
from audit.spool import Spool
from audit.store import Store
from backends import FakeBackend
from backends.base import Answer, ContinuationScore, Request, ScoreRequest, ScoreResponse, TokenLogprob
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

_WORDS = tuple(
    f" {word}{mark}" for word in ("woman", "man", "person") for mark in ("", ".", ",", "!", "?", ";", ":", "-")
)
WORDS = (*_WORDS, " female", " male")
_OF = {"female": (*range(8), 24), "male": (*range(8, 16), 25), "other": tuple(range(16, 24))}
_OCCUPATIONS, _TEMPLATES = 200, 25


class ManyPrompts(Suite):
    """``number`` prompts over 200 occupations and 25 templates."""

    name = "many_prompts"
    strata = ("group",)
    needs = frozenset({"score"})

    def __init__(self, number: int) -> None:
        self.number = number

    def items(self) -> Iterator[Item]:
        for i in range(self.number):
            template, occupation = i // _OCCUPATIONS % _TEMPLATES, i % _OCCUPATIONS
            text = f"Q{template}: Picture person {i} who works as {occupation}. What is their gender?\nA:"
            factors = {"occupation": f"occupation {occupation}", "template": template, "group": occupation % 2}
            yield Item(f"{template}/{occupation}/{i}", ScoreRequest(text, WORDS), factors)

    def signature(self) -> dict[str, Any]:
        return {"number": self.number}

    def read(self, item: Item, response: Any) -> Row:
        masses = [math.exp(score.logprob) for score in response.scores]
        total = math.fsum(masses)
        shares = {f"p_{name}": math.fsum(masses[i] for i in own) / total for name, own in _OF.items()}
        values = {**shares, "gap": shares["p_male"] - shares["p_female"], "coverage": min(total, 1.0)}
        return Row(item.id, item.factors, {name: IdentifiedInterval.exact(value) for name, value in values.items()})

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        over: dict[str, Any] = {"clusters": ("occupation", "template"), "probability_mass": "coverage"}
        groups: dict[str, Any] = {"stratum": "group", "weights": {0: 0.5, 1: 0.5}}
        for name in _OF:
            yield MeasureSpec(f"p_{name}", f"p_{name}", kind="probability", primary=True, **over, **groups)
            for group in (0, 1):
                yield MeasureSpec(f"p_{name}", f"p_{name}", {"group": group}, kind="probability", **over)
            for number in range(_OCCUPATIONS):
                where = {"occupation": f"occupation {number}"}
                yield MeasureSpec(f"p_{name}", f"p_{name}", where, kind="probability", is_subgroup=True, **over)
        yield MeasureSpec("gap", "gap", kind="difference", neutral=0.0, **over, **groups)


def _probability(prompt: str, word: str) -> float:
    digest = hashlib.blake2b(f"{prompt}{word}".encode(), digest_size=4).digest()
    return (0.2 + int.from_bytes(digest, "big") / 2**32) / 32


class _Forgetting(FakeBackend):
    """A fake that does not count what it is asked: its own memory is not what is measured."""

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        answers = await super().run(batch)
        self.asked.clear()
        return answers


async def _unasked(collector: Any, *_: Any) -> dict[str, Any]:
    """In place of asking: each question gets one of 997 made-up answers at once."""
    planted = [
        ScoreResponse(
            tuple(
                ContinuationScore.exact([TokenLogprob(word, 0, len(word), math.log(_probability(str(i), word)))])
                for word in WORDS
            )
        )
        for i in range(997)
    ]
    for of_suite in collector._questions.values():
        for question in of_suite.questions(range(1, 2)):
            of_suite.on_answer(question, planted[question.place[0] % 997])
    return {}


class _Watch(threading.Thread):
    """The largest resident size by stage."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stage = "start"
        self.peaks: dict[str, int] = {}
        self.own: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self._process = psutil.Process()

    def run(self) -> None:
        before = time.monotonic()
        while True:
            now, stage = time.monotonic(), self.stage
            memory = self._process.memory_info()
            self.peaks[stage] = max(self.peaks.get(stage, 0), memory.rss)
            self.own[stage] = max(self.own.get(stage, 0), memory.rss - memory.shared)
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - before
            before = now
            time.sleep(0.01)

    def before(self, module: Any, name: str, stage: str) -> None:
        """Begin a stage where a function is called."""
        real = getattr(module, name)

        def begun(*args: Any, **options: Any) -> Any:
            self.stage = stage
            return real(*args, **options)

        setattr(module, name, begun)


def _measure(number: int, models: int, folder: Path, options: argparse.Namespace, told: Any) -> None:
    watch = _Watch()
    if options.unasked:
        answer_collector.AnswerCollector.ask = _unasked  # type: ignore[method-assign]
        watch.before(answer_collector.SuiteQuestions, "questions", "ask")
    watch.before(answer_collector, "run_jobs", "ask")
    watch.before(audit_run, "evaluate_suite", "evaluate")
    watch.before(evaluate, "measure_table", "measure")
    watch.before(evaluate, "compare_models", "compare")
    watch.before(audit_run, "_stored_rows", "write rows")
    watch.before(audit_run, "suite_components", "components")
    watch.start()
    if options.allocations:
        tracemalloc.start()
        real = audit_run._Run.evaluate

        def evaluated(run: Any, *args: Any) -> Any:
            for line in tracemalloc.take_snapshot().statistics("lineno")[:15]:
                print(f"    {line.size / number:8.0f} bytes a prompt  {line.traceback}", flush=True)
            return real(run, *args)

        audit_run._Run.evaluate = evaluated  # type: ignore[method-assign]
    backends = {
        f"m{i}": _Forgetting(
            f"many-{i}", score=lambda prompt, word, i=i: _probability(f"{i}{prompt}", word), batch_size=64
        )  # type: ignore[misc]
        for i in range(models)
    }
    audit = Audit(models=backends, suites=[ManyPrompts(number)], db=folder / "many.db", out=folder / "out")
    result = asyncio.run(audit.run())
    watch.stage = "end"
    time.sleep(0.05)
    assert result.complete
    told.put((watch.peaks, watch.own, watch.seconds, _digest(folder / "many.db", result.run_id)))


def _evaluated_rows(number: int, model: int) -> PackedRows:
    """Rows as `ManyPrompts.read` makes them, of made-up shares."""
    spool, slots = Spool(), []
    for start in range(0, number, BLOCK):
        at = np.arange(start, min(start + BLOCK, number))
        draw = np.random.default_rng([model, start])
        shares = draw.dirichlet((3.0, 2.0, 1.0), len(at))
        template, occupation = at // _OCCUPATIONS % _TEMPLATES, at % _OCCUPATIONS
        columns = {**{f"p_{name}": shares[:, i] for i, name in enumerate(_OF)}, "gap": shares[:, 1] - shares[:, 0]}
        columns |= {"coverage": draw.uniform(0.5, 1.0, len(at))}
        names = [f"occupation {i}" for i in occupation.tolist()]
        factors = {"occupation": names, "template": template.tolist(), "group": (occupation % 2).tolist()}
        alike = RowsAlike(
            (tuple(factors), tuple(columns)),
            np.arange(len(at)),
            [LevelColumn.of(levels) for levels in factors.values()],
            [NumberColumn(own, own, own, {}) for own in map(np.ascontiguousarray, columns.values())],
        )
        ids = [f"{t}/{o}/{i}" for t, o, i in zip(template.tolist(), occupation.tolist(), at.tolist(), strict=True)]
        slots.append((spool.add(RowBlock(ids, [alike], {}, {}, {}).packed()), len(at)))
    return PackedRows(spool, slots)


def _evaluate(number: int, models: int, told: Any) -> None:
    """Evaluate rows that were never asked for: what a run does once it has all answers."""
    watch = _Watch()
    watch.start()
    specs = list(ManyPrompts(number).measures(()))
    found = hashlib.sha256()
    watch.stage = "rows"
    rows = {f"m{i}": _evaluated_rows(number, i) for i in range(models)}
    watch.stage = "measure"
    for name, own in rows.items():
        table = Table.of(own)
        for one in measure_table(table, specs, model=name, suite="s", signature={}):
            found.update(one.model_dump_json().encode())
        del table
    watch.stage = "compare"
    for compared in compare_models(rows, specs, suite="s"):
        found.update(compared.model_dump_json().encode())
    watch.stage = "components"
    for part in suite_components("s", rows, specs):
        found.update(part.model_dump_json().encode())
    told.put((watch.peaks, watch.own, watch.seconds, found.hexdigest()[:16]))


def _digest(path: Path, run_id: str) -> str:
    """A hash of all figures and stored rows, to compare versions of the code."""
    with Store.open(path) as store:
        result = store.runs.result(run_id)
        assert result is not None
        found = hashlib.sha256()
        kept = {"measures", "comparisons", "rankings", "data_quality", "components"}
        found.update(result.model_dump_json(include=kept).encode())
        for model in result.models:
            for row in store.runs.read_rows(run_id, model.name, "many_prompts"):
                found.update(repr(row).encode())
    return found.hexdigest()[:16]


def main() -> None:
    """Command line."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # each line at once, in a pipe too
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("numbers", nargs="+", type=int, metavar="PROMPTS")
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--store", type=Path, help="keep the stores here: a second run asks nothing")
    parser.add_argument("--allocations", action="store_true", help="what holds the memory once all is asked (slow)")
    parser.add_argument("--unasked", action="store_true", help="made-up answers, without scheduler and store")
    parser.add_argument("--evaluated", action="store_true", help="made-up rows, and only what is computed of them")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for number in options.numbers:
        with contextlib.ExitStack() as stack:
            folder = options.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder = folder / f"{number}x{options.models}"
            folder.mkdir(parents=True, exist_ok=True)
            told = context.Queue()
            process = (
                context.Process(target=_evaluate, args=(number, options.models, told))
                if options.evaluated
                else context.Process(target=_measure, args=(number, options.models, folder, options, told))
            )
            process.start()
            peaks, own, seconds, digest = told.get()
            process.join()
        first = own["start"]
        print(f"{number:,} prompts, {options.models} model(s): figures and rows {digest}")
        for stage, peak in peaks.items():
            print(f"    {stage:12} {peak / 2**20:7.0f} MB, without mapped files {own[stage] / 2**20:7.0f} MB, "
                  f"{(own[stage] - first) / number:7.0f} bytes a prompt, {seconds.get(stage, 0.0):7.1f} s")  # fmt: skip
        sys.stdout.flush()


if __name__ == "__main__":
    main()
