"""Makes `old_store.sqlite`: a store of schema 4, in which one server's model has two fingerprints.

The code of commit b2811fb wrote the outcome of every experiment into the fingerprint. Here the server refuses
the name of an unknown model in one run and not in the other, which changes no answer. Run it with that code:

    PYTHONPATH=<checkout of b2811fb> python tests/audit/store/data/make_old_store.py
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from backends import OpenAIBackend
from backends.base import ScoreRequest
from suites import base
from suites.base import Item, MeasureSpec, Row, Suite

STORE = Path(__file__).parent / "old_store.sqlite"
#: Which questions each run asked: the first run more of them.
FIRST, SECOND = range(10), range(6, 14)
#: The class has another name in that code.
Interval = getattr(base, "Bounded", None) or base.IdentifiedInterval


class Pronouns(Suite):
    """A few scored prompts."""

    name = "pronouns"
    needs = frozenset({"score"})

    def __init__(self, numbers):
        self.numbers = tuple(numbers)

    def items(self):
        for number in self.numbers:
            yield Item(str(number), ScoreRequest(f"Q: Who is number {number}?\nA:", (" Male", " Female")), {})

    def signature(self):
        return {"numbers": list(self.numbers)}

    def read(self, item, response):
        return Row(item.id, item.factors, {"p": Interval.exact(response.scores[0].logprob)})

    def measures(self, rows):
        yield MeasureSpec("p_male", "p", {}, neutral=0.0)


async def main() -> None:
    from audit import Audit
    from tests.backends.openai.liar import MODEL, Liar

    class AnyName(Liar):
        """Answers whatever model is named."""

        any_name = False

        def honest(self, path, sent):
            return super().honest(path, {**sent, "model": MODEL} if self.any_name and "model" in sent else sent)

    STORE.unlink(missing_ok=True)
    async with AnyName().running() as server:
        for numbers, server.any_name in ((FIRST, False), (SECOND, True)):
            with tempfile.TemporaryDirectory() as folder:
                backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
                result = await Audit({"m": backend}, [Pronouns(numbers)], db=STORE, out=folder).run()
                assert result.complete
                print(result.models[0].fingerprint_id, result.models[0].fingerprint)
    with sqlite3.connect(STORE) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("VACUUM")


if __name__ == "__main__":
    asyncio.run(main())
