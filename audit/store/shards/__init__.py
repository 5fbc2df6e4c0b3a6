"""A store of several files: answers and leases lie in the shard that the beginning of their keys belongs to.

Takes what a store of one file takes, and gives the same. A shard's file may have an owner, one process that writes it,
on the machine whose disk holds it.
"""

from __future__ import annotations

from audit.store.shards.answers import ShardedAnswers
from audit.store.shards.databases import Databases
from audit.store.shards.files import ShardId, arrange, shard_files, shard_id
from audit.store.shards.leases import ShardedLeases
from audit.store.shards.owner import Done, ShardOwner, Work
from audit.store.shards.owner_writer import OwnerLostError, OwnerWriter

__all__ = [
    "Databases",
    "Done",
    "OwnerLostError",
    "OwnerWriter",
    "ShardId",
    "ShardOwner",
    "ShardedAnswers",
    "ShardedLeases",
    "Work",
    "arrange",
    "shard_files",
    "shard_id",
]
