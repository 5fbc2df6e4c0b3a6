"""A store of several files: answers and leases lie in the shard that the beginning of their keys belongs to.

Takes what a store of one file takes, and gives the same. A shard's file may have an owner, one process that writes it,
on the machine whose disk holds it.
"""

from __future__ import annotations

from audit.store.shards.answers import ShardedAnswers
from audit.store.shards.databases import Databases
from audit.store.shards.files import arrange, shard_files
from audit.store.shards.leases import ShardedLeases
from audit.store.shards.owner import ShardOwner
from audit.store.shards.owner_writer import OwnerLostError, OwnerWriter

__all__ = [
    "Databases",
    "OwnerLostError",
    "OwnerWriter",
    "ShardOwner",
    "ShardedAnswers",
    "ShardedLeases",
    "arrange",
    "shard_files",
]
