"""The leases of a store of several files: each lies where the answer will."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from audit.store.keys import KeyedRequest
from audit.store.leases import Leases
from audit.store.shards.databases import Databases


class ShardedLeases:
    """As `audit.store.leases.Leases`, over all shards."""

    def __init__(self, databases: Databases, client: str) -> None:
        self._databases = databases
        self._shards = [Leases(database, client) for database in databases]

    async def take(self, requests: Sequence[KeyedRequest]) -> list[bool]:
        """As `Leases.take`."""

        async def take(shard: int, places: Sequence[int]) -> list[bool]:
            return await self._shards[shard].take([requests[place] for place in places])

        return await self._databases.each(len(requests), lambda place: requests[place].group, take)

    async def release(self, requests: Iterable[KeyedRequest]) -> None:
        """As `Leases.release`."""
        split = self._databases.split(requests, lambda request: request.group)
        await asyncio.gather(*(self._shards[place].release(some) for place, some in split))

    async def release_all(self) -> None:
        """As `Leases.release_all`."""
        await asyncio.gather(*(shard.release_all() for shard in self._shards))

    async def renew(self) -> None:
        """As `Leases.renew`."""
        await asyncio.gather(*(shard.renew() for shard in self._shards))

    def close(self) -> None:
        """As `Leases.close`."""
        for shard in self._shards:
            shard.close()
