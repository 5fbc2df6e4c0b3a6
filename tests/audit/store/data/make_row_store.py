"""Makes `row_store.sqlite`: a store of schema 7, which kept an answer a row, also where a prompt has many.

Run it with the code of commit b495394:

    PYTHONPATH=<checkout of b495394> python <this file>
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from backends import FakeBackend
from backends.base import (
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Message,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

STORE = Path(__file__).parent / "row_store.sqlite"
FINGERPRINT = {"model": "kept"}
WORDS = tuple(
    f" {word}"
    for word in ["she", "he", "they", "woman", "man", "girl", "boy", "lady", "lord", "aunt", "uncle", "niece", "nephew"]
)
TEXTS = tuple(f" text {number}" for number in range(13))


class Words(Suite):
    """Some prompts with 26 continuations each."""

    name = "words"
    needs = frozenset({"score"})

    def items(self):
        for number in range(6):
            yield Item(str(number), ScoreRequest(f"Q: Who is number {number}?\nA:", WORDS + TEXTS), {})

    def signature(self):
        return {}

    def read(self, item, response):
        return Row(item.id, item.factors, {"p": IdentifiedInterval.exact(response.scores[0].logprob)})

    def measures(self, rows):
        yield MeasureSpec("p_she", "p", {}, neutral=0.0)


def answered():
    """Requests of each kind with their answers: exact, bounded, sampled and straddled scores, texts and labels."""
    odd = (
        ContinuationScore(
            None, None, -2.5, "bounded", "clean", (TokenLogprob(" a", 0, 2, -2.5, None, False),), "top_k"
        ),
        ContinuationScore(-1 / 3, -0.5, -0.25, "sampled", "merged", (), "draws", 20),
        ContinuationScore.exact(
            [TokenLogprob("\ud800 b", -1, 2, -1e-300, 3), TokenLogprob("\U0001f600", 2, 3, -0.1, 2**40)],
            boundary="straddled",
            route="tree",
        ),
    )
    chat = (Message("system", "Short."), Message("user", "Who?\x00"), Message("assistant", "It is"))
    return [
        (ScoreRequest(chat, (" a", "\U0001f600", "\ud800 b\U0001f600")), ScoreResponse(odd, 7)),
        (ScoreRequest("", ("One sentence.", "Another one."), first_given=True), ScoreResponse(odd[1:], 3)),
        (ScoreRequest("alone", (" word",)), ScoreResponse(odd[:1], 1)),
        (GenerateRequest("say it", seed=2**70), GenerateResponse("said \ud800", "stop", 4, 2, "thought", 1)),
        (ClassifyRequest("a text"), ClassifyResponse({"kind": 0.1, "rude": 0.9})),
    ]


FAILED = ScoreRequest("no answer", WORDS[:3])
QUARANTINED = ScoreRequest("not this one", WORDS[:2])


async def main() -> None:
    from audit import Audit
    from audit.store import AnswerPair, Entry, Store, keyed_request

    STORE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        result = await Audit({"even": FakeBackend("even")}, [Words()], db=STORE, out=folder).run()
        assert result.complete
    with Store.open(STORE) as store:
        name = store.fingerprints.resolve(FINGERPRINT)
        for request, answer in answered():
            await store.answers.write([Entry(keyed_request(request, name), answer)])
        await store.answers.write([Entry(keyed_request(FAILED, name), BackendError("server", "broken"))])
        doubtful = keyed_request(QUARANTINED, name)
        scores = ScoreResponse(answered()[0][1].scores[:2], 7)
        await store.answers.write([Entry(doubtful, scores)])
        store.answers.quarantine(doubtful.keys, "not sure")
        pair = AnswerPair(name, doubtful.keys, scores, None)
        await store.second_answers.write(pair)
    with sqlite3.connect(STORE) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("VACUUM")


if __name__ == "__main__":
    asyncio.run(main())
