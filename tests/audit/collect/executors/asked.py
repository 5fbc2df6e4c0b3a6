"""A planted model that writes down what it is asked, in whatever process it runs."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from backends.base import Answer, Description, GenerateResponse, OnResponse, Request
from backends.errors import StoppedError
from backends.local.backend import LocalBackend, discard_response
from backends.stand_ins.fake import FakeBackend


def writing_model(path: Path, seconds: float = 0.0, **options: object) -> FakeBackend:
    """A local model of planted answers: each question becomes a line of ``path``, and takes so many seconds."""

    def score(prompt: str, continuation: str) -> float:
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\t{prompt}\t{continuation}\n")
        time.sleep(seconds)
        return _planted(prompt, continuation)

    return FakeBackend("writing", **{"score": score, "device": "cpu", "batch_size": 8, "max_in_flight": 1, **options})


def _planted(prompt: str, continuation: str) -> float:
    return (1 + sum((prompt + continuation).encode())) % 97 / 100 + 0.01


def planted_score(prompt: str, continuations: Sequence[str] = (" a", " b")) -> list[float]:
    """The log-probabilities that `writing_model` gives the continuations of a prompt."""
    return [math.log(_planted(prompt, continuation)) for continuation in continuations]


def questions(path: Path) -> Counter[tuple[str, str]]:
    """How often each (prompt, continuation) was asked."""
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter((line.split("\t")[1], line.split("\t")[2]) for line in lines)


def processes(path: Path) -> list[int]:
    """The processes that were asked, the latest last."""
    return list(dict.fromkeys(int(line.split("\t")[0]) for line in path.read_text().splitlines()))


class SlowTexts(LocalBackend):
    """A local model that writes one text after the other in its thread; each prompt becomes a line of ``path``."""

    device, batch_size = "cpu", 200

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__()
        self.path, self.seconds = path, seconds

    def check(self) -> None:
        return

    def describe_blocking(self) -> Description:
        return Description({"name": "slow texts"}, frozenset({"generate"}))

    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        answers: list[Answer] = []
        for request in batch:
            if self.is_stopped():
                answers.append(StoppedError())
                continue
            with open(self.path, "a") as file:
                file.write(f"{os.getpid()}\t{request}\n")
            time.sleep(self.seconds)
            answers.append(GenerateResponse("a text", "stop", 1, 1))
        return answers
