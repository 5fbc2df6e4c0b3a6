"""The files that a store's answers lie in, and which of them each answer belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from audit.store.sqlite.database import Database

T = TypeVar("T")


class Databases(Sequence[Database]):
    """The open files of a store's answers: its shards in order, or its one file.

    A shard holds the groups whose hashes begin within its range. So all answers to a prompt lie together, and the
    shards are about equally full.
    """

    def __init__(self, databases: Sequence[Database]) -> None:
        self._all = tuple(databases)

    def __getitem__(self, place: int) -> Database:  # type: ignore[override]
        return self._all[place]

    def __len__(self) -> int:
        return len(self._all)

    def place(self, group: bytes) -> int:
        """The place of the shard that a group belongs to."""
        return int.from_bytes(group[:8]) * len(self._all) >> 64

    def split(self, values: Iterable[T], group: Callable[[T], bytes]) -> Iterator[tuple[int, list[T]]]:
        """The values of each shard that has some, by the groups they belong to, with the place of the shard."""
        by_place: dict[int, list[T]] = {}
        for value in values:
            by_place.setdefault(self.place(group(value)), []).append(value)
        yield from by_place.items()

    async def each(
        self, number: int, group: Callable[[int], bytes], ask: Callable[[int, Sequence[int]], Awaitable[list[T]]]
    ) -> list[T]:
        """What the shards say of so many values, in their order: each is asked for its own, by their places."""
        split = list(self.split(range(number), group))
        said = await asyncio.gather(*(ask(shard, places) for shard, places in split))
        by_place = {
            place: one
            for (_, places), of_shard in zip(split, said, strict=True)
            for place, one in zip(places, of_shard, strict=True)
        }
        return [by_place[place] for place in range(number)]
