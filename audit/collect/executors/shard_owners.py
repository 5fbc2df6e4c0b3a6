"""Owners of a store's shards, as actors of a Ray cluster on this process's node, whose disk holds the files.

An owner is found by a name that says its file, or else started: so all drivers on one node share it. One that is lost
is started again by whoever misses it first, and reopens its file. Needs the extra ``ray``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audit.logs import logger
from audit.store.clients import is_gone
from audit.store.shards import Done, OwnerLostError, OwnerWriter, ShardId, ShardOwner, Work, shard_id
from backends.errors import one_line

log = logger("ray")

_NAMESPACE = "bias-audit"
#: Seconds after which it is asked whether an owner that does not answer lives; a locked file is waited for 60.
_ASK_AFTER = 90.0
#: How many times as long one that lives, or comes up, is waited for. Then it is ended and replaced.
_MOST_WAITS = 5
_CALLS = 16  # at a time, of which those that wait go into one transaction


def owner_writer(path: Path) -> OwnerWriter:
    """A writer for a shard's file. It is to be closed before this process leaves the cluster."""
    shard = shard_id(path)
    assert shard is not None
    return OwnerWriter(path, lambda: _Owner(path, shard))


def owner_name(path: Path, shard: ShardId, node: str) -> str:
    """The name of the owner of a file on a node.

    A backup has the shards of its original, so that these alone would lead to the original's owner. The file itself is
    meant rather than its path, which may be reached by several.
    """
    file = path.stat()
    return f"{shard.store}:{shard.number}:{node}:{file.st_dev}:{file.st_ino}"


class _Owner:
    """A shard's owner, found or started."""

    def __init__(self, path: Path, shard: ShardId) -> None:
        import ray
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "max_concurrency": _CALLS, "max_restarts": 0, "scheduling_strategy": here}
        named = {"name": owner_name(path, shard, node), "namespace": _NAMESPACE, "get_if_exists": True}
        try:
            self._actor: Any = ray.remote(ShardOwner).options(**options, **named).remote(str(path), *shard)
        except (RayError, ValueError) as error:  # ValueError: the one that was found has just ended
            raise OwnerLostError(str(error)) from None
        self._process: str | None = None  # one that starts may take long: to load what it needs, or for want of CPUs
        self._process = self._call(self._actor.process)

    def perform(self, client: str, number: int, works: Sequence[Work]) -> list[Done]:
        """As `audit.store.shards.ShardOwner.perform`."""
        done: list[Done] = self._call(self._actor.perform, client, number, works)
        return done

    def forget(self, client: str) -> None:
        """As `audit.store.shards.ShardOwner.forget`."""
        self._call(self._actor.forget, client)

    def _call(self, method: Any, *given: object) -> Any:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._answer(method.remote(*given))
        except RayTaskError as error:
            raise error.cause from None  # what the owner raised
        except RayError as error:
            with contextlib.suppress(Exception):  # it may live where it cannot be reached, and then writes no more
                ray.kill(self._actor)
            raise OwnerLostError((str(error).strip() or one_line(error)).splitlines()[-1]) from None

    def _answer(self, call: Any) -> Any:
        """Wait for a call. An owner that is only slow is waited for: its successor would be no faster."""
        import ray
        from ray.exceptions import GetTimeoutError

        for waits in range(1, _MOST_WAITS):
            try:
                return ray.get(call, timeout=_ASK_AFTER)
            except GetTimeoutError:
                if self._process is not None and is_gone(self._process):
                    raise
                log.warning("owner slow", seconds=waits * _ASK_AFTER)
        return ray.get(call, timeout=_ASK_AFTER)
