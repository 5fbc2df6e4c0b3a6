"""Copies among drawn answers: each pattern of them ends a whole audit, and no honest model is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit import Audit
from audit.results import AuditResult
from backends.openai import OpenAIBackend
from backends.openai.scoring.copied_draws import CopiedDraws
from suites import OccuGender
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import DEPRECATED, MODEL, StrictServer, varied

#: (draws of one question so far, a new one, random) → what is returned.
Copying = Callable[[list[Any], Any, np.random.Generator], Any]
SURE = {"Male": 0.99, "Female": 0.01}
MIXED = {"Female": 0.45, "Male": 0.3, "Non-binary": 0.15, "Who knows": 0.1}


def twice(so_far: list[Any], new: Any, random: np.random.Generator) -> Any:
    return so_far[-1] if len(so_far) % 2 else new


def three_times(so_far: list[Any], new: Any, random: np.random.Generator) -> Any:
    return so_far[-1] if len(so_far) % 3 else new


def half_of_them(so_far: list[Any], new: Any, random: np.random.Generator) -> Any:
    return so_far[-1] if so_far and random.random() < 0.5 else new


def within_eight(so_far: list[Any], new: Any, random: np.random.Generator) -> Any:
    """Half are copies of one of the eight before."""
    return so_far[-int(random.integers(1, min(len(so_far), 8) + 1))] if so_far and random.random() < 0.5 else new


def twenty_again(so_far: list[Any], new: Any, random: np.random.Generator) -> Any:
    """The draws of the second twenty are those of the first."""
    return so_far[-20] if len(so_far) % 40 >= 20 else new


COPYING: tuple[Copying, ...] = (twice, three_times, half_of_them, within_eight, twenty_again)


def found_among(answers: Mapping[str, float], copying: Copying | None, questions: int, seed: int, n: int = 40) -> bool:
    random = np.random.default_rng(seed)
    copied = CopiedDraws()
    shares = np.array([*answers.values()]) / sum(answers.values())
    for _ in range(questions):
        drawn: list[Any] = []
        for new in random.choice([*answers], n, p=shares).tolist():
            drawn.append(copying(drawn, new, random) if copying else new)
        copied.add(drawn)
        if copied.found:
            return True
    return False


@pytest.mark.parametrize("copying", COPYING)
@pytest.mark.parametrize("answers", [MIXED, varied("")], ids=["mixed", "varied"])
def test_each_pattern_shows_in_a_hundred_questions(copying: Copying, answers: Mapping[str, float]) -> None:
    assert all(found_among(answers, copying, 100, seed) for seed in range(5))


@pytest.mark.parametrize("copying", [twice, three_times, half_of_them, twenty_again])
def test_copies_show_although_a_model_is_sure(copying: Copying) -> None:
    assert all(found_among(SURE, copying, 300, seed) for seed in range(3))


@pytest.mark.parametrize("answers", [SURE, MIXED, varied("")], ids=["sure", "mixed", "varied"])
def test_honest_draws_are_never_refused(answers: Mapping[str, float]) -> None:
    assert not any(found_among(answers, None, 20, seed, n) for seed in range(10) for n in (4, 20))


@pytest.mark.simulation
@pytest.mark.parametrize("answers", [{"a": 0.99, "b": 0.01}, SURE | {"Other": 0.03}, MIXED, varied("")])
def test_of_2000_honest_runs_none_is_refused(answers: Mapping[str, float]) -> None:
    assert not any(found_among(answers, None, 24, seed, (10, 20, 40)[seed % 3]) for seed in range(500))


def test_a_few_or_equal_draws_show_nothing() -> None:
    copied = CopiedDraws()
    for _ in range(1000):
        copied.add(["a", "a", "b"])
        copied.add(["a"] * 40)
        copied.add(range(40))
    assert not copied.found


class CopyingServer(StrictServer):
    """Returns some answers to a question again, each response under an id of its own."""

    def __init__(self, answers: Callable[[str], Mapping[str, float]], copying: Copying, *, most_choices: int) -> None:
        super().__init__(DEPRECATED, answers)
        self._copying, self._one_by_one = copying, most_choices == 1
        self._kept: dict[str, list[Any]] = {}
        self._draw = np.random.default_rng(7)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        reply = super().reply(path, {**sent, "n": 1} if self._one_by_one else sent)
        if reply.status == 200 and "gender" in str(sent["messages"]):
            so_far = self._kept.setdefault(str(sent["messages"]), [])
            for choice in reply.body["choices"]:
                so_far.append(self._copying(so_far, choice["message"], self._draw))
                choice["message"] = so_far[-1]
        return reply


async def audited(server: StrictServer, folder: Path, samples: int) -> AuditResult:
    backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, samples=samples)
    suite = OccuGender(bias=("explicit",), prompt_format="chat")
    return await Audit(
        models={"m": backend}, suites=[suite], limit=100, db=folder / "audit.db", out=folder / "out"
    ).run()


@pytest.mark.parametrize(
    ("copying", "most_choices"),
    [(copying, n) for copying, n in itertools.product(COPYING, (1, 128)) if n == 1 or copying in (twice, within_eight)],
)
async def test_a_whole_audit_of_copied_draws_is_refused(copying: Copying, most_choices: int, tmp_path: Path) -> None:
    async with CopyingServer(lambda _: MIXED, copying, most_choices=most_choices).running() as server:
        result = await audited(server, tmp_path, samples=40)
    assert not result.complete
    assert "some are copies" in result.problems()[0]
    assert "quarantined" in result.problems()[0]
    assert all(measure.value is None for measure in result.measures)


@pytest.mark.parametrize("answers", [SURE, MIXED], ids=["sure", "mixed"])
async def test_an_honest_audit_by_draws_is_complete(answers: Mapping[str, float], tmp_path: Path) -> None:
    def said(question: str) -> Mapping[str, float]:
        return answers if "gender" in question else varied(question)

    async with StrictServer(DEPRECATED, said).running() as server:
        result = await audited(server, tmp_path, samples=20)
    assert (result.complete, result.problems()) == (True, [])
