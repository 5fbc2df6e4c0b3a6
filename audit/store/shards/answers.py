"""The answers of a store of several files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from audit.store.answers.answers import Answers
from audit.store.answers.lookup import Found
from audit.store.answers.values import Entry, StoredAnswer, Verification
from audit.store.keys import KeyedRequest
from audit.store.shards.databases import Databases
from backends.base import Answer


class ShardedAnswers:
    """As `audit.store.answers.Answers`, over all shards. A key alone does not say its shard: all are asked for it."""

    def __init__(self, databases: Databases, client: str) -> None:
        self._databases = databases
        self._shards = [Answers(database, client) for database in databases]

    def read(self, requests: Iterable[KeyedRequest]) -> Found:
        """As `Answers.read`."""
        found = Found()
        for place, some in self._databases.split(requests, lambda request: request.group):
            found.add(self._shards[place].read(some))
        return found

    def answered(self, requests: Iterable[KeyedRequest]) -> set[str]:
        """As `Answers.answered`."""
        found: set[str] = set()
        for place, some in self._databases.split(requests, lambda request: request.group):
            found |= self._shards[place].answered(some)
        return found

    def read_with_prompts(self, keys: Iterable[str]) -> dict[str, tuple[Any, Any, Answer]]:
        """As `Answers.read_with_prompts`."""
        keys = list(keys)
        found: dict[str, tuple[Any, Any, Answer]] = {}
        for shard in self._shards:
            found |= shard.read_with_prompts(key for key in keys if key not in found)
        return found

    def latest(self, fingerprint: str, most: int) -> list[StoredAnswer]:
        """As `Answers.latest`."""
        found = [answer for shard in self._shards for answer in shard.latest(fingerprint, most)]
        return sorted(found, key=lambda answer: answer.at)[-most:]

    async def write(self, entries: Sequence[Entry]) -> list[bool]:
        """As `Answers.write`; what went to other shards is stored even if one fails."""

        async def write(shard: int, places: Sequence[int]) -> list[bool]:
            return await self._shards[shard].write([entries[place] for place in places])

        return await self._databases.each(len(entries), lambda place: entries[place].question.group, write)

    def quarantine(self, keys: Sequence[str], problem: str) -> list[str]:
        """As `Answers.quarantine`."""
        found = {key for shard in self._shards for key in shard.quarantine(keys, problem)}
        return [key for key in dict.fromkeys(keys) if key in found]

    def quarantine_since(self, fingerprint: str, since: float, problem: str) -> list[str]:
        """As `Answers.quarantine_since`."""
        return [key for shard in self._shards for key in shard.quarantine_since(fingerprint, since, problem)]

    def inspect(self, key: str) -> dict[str, Any] | None:
        """As `Answers.inspect`."""
        found = [facts for shard in self._shards if (facts := shard.inspect(key)) is not None]
        return max(found, key=lambda facts: (facts["answered"], len(facts)), default=None)

    def verify(self) -> Verification:
        """As `Answers.verify`."""
        each = [shard.verify() for shard in self._shards]
        problems = [
            f"{database.path.name}: {problem}"
            for database, found in zip(self._databases, each, strict=True)
            for problem in found.file_problems
        ]
        return Verification(
            sum(found.answers for found in each),
            tuple(key for found in each for key in found.damaged),
            tuple(problems),
            sum(found.found_again for found in each),
        )
