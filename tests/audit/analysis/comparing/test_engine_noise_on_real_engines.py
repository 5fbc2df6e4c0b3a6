"""The same weights on three engines: transformers in float32 and bfloat16, and llama.cpp."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import numpy as np
import pytest

from audit import Audit
from audit.report.phrases.problems import problems_of
from audit.results import AuditResult, EngineDrift
from audit.run import run_audit
from audit.store import Store
from backends import HFBackend, LlamaCppBackend
from backends.base import ScoreResponse
from backends.embedded import gemma3_path, smollm2_path
from suites import OccuGender
from tests.audit.store.entries import answers_by_key

PROMPTS = 24
ENGINES = ("float32", "bfloat16", "llama.cpp")
OTHER = "Gemma"

#: Longer than the default: a busy machine loads four models.
pytestmark = [pytest.mark.models, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditResult, Path]:
    """One audit of all engines and of a model with other weights."""
    folder = tmp_path_factory.mktemp("drift")
    audit = Audit(
        {
            "float32": HFBackend(smollm2_path(), dtype="float32", device="cpu", threads=2),
            "bfloat16": HFBackend(smollm2_path(), dtype="bfloat16", device="cpu", threads=2),
            "llama.cpp": LlamaCppBackend(smollm2_path(), threads=2),
            OTHER: LlamaCppBackend(gemma3_path(), threads=2),
        },
        [OccuGender(("implicit",))],
        limit=PROMPTS,
        same_weights=[ENGINES],
        db=folder / "audit.db",
        out=folder / "out",
    )
    result = asyncio.run(run_audit(audit))
    assert list(problems_of(result)) == []
    return result, audit.db


def drift(result: AuditResult) -> dict[tuple[str, str], EngineDrift]:
    return {(found.a, found.b): found for found in result.drift}


def test_every_pair_of_engines_is_compared_and_no_other(night: tuple[AuditResult, Path]) -> None:
    result, _ = night
    assert list(drift(result)) == list(itertools.combinations(ENGINES, 2))


def test_the_figures_are_those_of_the_stored_answers(night: tuple[AuditResult, Path]) -> None:
    """Log-probabilities and P̃ read back from the store, differenced without the engine's own code."""
    result, db = night
    logprobs: dict[str, dict[str, list[float]]] = {}
    female: dict[str, dict[str, float]] = {}
    with Store.open(db, read_only=True) as store:
        for model in ENGINES:
            stored = list(store.runs.read_rows(result.run_id, model, "OccuGender"))
            answers = answers_by_key(store, [key for one in stored for key in one.keys])
            logprobs[model], female[model] = {}, {}
            for one in stored:
                if "p_female" not in one.row.values:  # over templates: no answer of its own
                    continue
                scores = [answers[key] for key in one.keys]
                assert all(isinstance(answer, ScoreResponse) for answer in scores)
                logprobs[model][one.row.item_id] = [s.logprob for answer in scores for s in answer.scores]  # type: ignore[union-attr,misc]
                female[model][one.row.item_id] = one.row.values["p_female"].value  # type: ignore[assignment]
    for (a, b), found in drift(result).items():
        ours, theirs = (np.array([logprobs[m][item] for item in logprobs[a]]) for m in (a, b))
        assert ours.shape == theirs.shape == (PROMPTS, 6)
        gap = theirs - ours
        assert (found.n_prompts, found.n_logprobs, found.n_unpaired) == (PROMPTS, PROMPTS * 6, 0)
        assert found.logprob_mean == pytest.approx(gap.mean(), abs=1e-12)
        assert found.logprob_mean_abs == pytest.approx(np.abs(gap).mean())
        assert found.logprob_max_abs == pytest.approx(np.abs(gap).max())
        p, q = np.exp(ours), np.exp(theirs)
        # expressions stand in the order male, female, diverse, two of each
        shares = q[:, 2:4].sum(axis=1) / q.sum(axis=1) - p[:, 2:4].sum(axis=1) / p.sum(axis=1)
        assert shares == pytest.approx([female[b][i] - female[a][i] for i in logprobs[a]], abs=1e-9)
        assert found.quantities["p_female"]["max_abs"] == pytest.approx(np.abs(shares).max())


def test_engines_of_one_model_differ_by_rounding_alone(night: tuple[AuditResult, Path]) -> None:
    found = drift(night[0])
    for pair, one in found.items():
        assert one.logprob_mean_abs is not None
        assert 1e-3 < one.logprob_mean_abs < 0.3, pair
