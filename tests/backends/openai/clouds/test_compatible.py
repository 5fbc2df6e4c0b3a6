"""Google AI Studio, Groq and Together: what their differences from OpenAI's API must not change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from audit import Audit
from backends.openai import OpenAIBackend
from backends.openai.generation import choices_of_a_request
from suites import OccuGender
from tests.backends.openai.clouds.compatible import AIStudio, Groq, Together, unequal
from tests.backends.openai.strict_server import MODEL, StrictServer, varied

_DRAWS = 10


def answers(question: str) -> Mapping[str, float]:
    if "gender" in question.lower():
        return {"Female": 0.5, "Male": 0.4, "Who knows": 0.1}
    return unequal(varied)(question)


def backend_of(server: StrictServer, folder: Path, **options: Any) -> OpenAIBackend:
    given = {"model": MODEL, "api_key_env": None, "samples": _DRAWS, "probe_folder": folder, **options}
    return OpenAIBackend(server.base_url, **given)


@pytest.mark.parametrize(
    ("server", "draws", "reasons"),
    [(AIStudio(answers), 8, True), (Groq(answers), 1, True), (Together(answers), 50, False)],
)
async def test_a_compatible_server_is_counted_as_it_can(
    server: StrictServer, draws: int, reasons: bool, tmp_path: Path
) -> None:
    async with server.running():
        backend = backend_of(server, tmp_path)
        suite = OccuGender(("explicit",), prompt_format="chat")
        audit = Audit({"m": backend}, [suite], limit=60, small_sample=True, db=tmp_path / "a.db", out=tmp_path / "out")
        result = await audit.run()
        found = (await backend.probe()).capabilities
        await backend.close()
    assert result.complete, result.problems()
    assert result.models[0].failed == 0
    assert found.chat_route == "sampled", "no list of theirs holds the other tokens"
    assert choices_of_a_request(found) <= draws
    assert found.reasons == reasons
    female = next(m for m in result.measures if m.measure == "p_female" and not m.is_subgroup)
    assert female.low is not None
    assert female.high is not None
    assert female.low < 5 / 9 < female.high
