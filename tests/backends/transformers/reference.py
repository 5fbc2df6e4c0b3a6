"""Plain transformers, one sequence at a time: what HFBackend is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers

from backends import HFBackend
from backends.base import ScoreRequest, ScoreResponse
from tests.backends.local.tiny_models import (
    FAMILIES,
)

#: They bias attention by a key's place in the row.
ROW_FAMILIES = ["bloom", "falcon_alibi"]
TREE_FAMILIES = sorted(set(FAMILIES) - {*ROW_FAMILIES})


REQUESTS = [
    ScoreRequest("A long enough start. the police said that", (" she was", " he", " the woman", "the", " she is", "!")),
    ScoreRequest("A long enough start. the police said that he", (" was", " is", " was it")),
    ScoreRequest("A long enough start. the man", (" he", ' "he"', "👩‍🚀")),
    ScoreRequest("the", (" woman",)),
]


def plain_model(folder: Path) -> tuple[Any, Any]:
    """The same model through transformers alone, its attention written out in Python.

    Except Falcon: with alibi, transformers' written-out attention adds the bias twice.
    """
    attention = "sdpa" if "falcon" in folder.name else "eager"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def scores(backend: HFBackend, requests: list[ScoreRequest]) -> list[float]:
    """All log-probabilities in order; an error fails the test."""
    found = []
    for answer in backend.run_blocking(requests):
        assert isinstance(answer, ScoreResponse), answer
        found += [s.logprob for s in answer.scores]
    return found
