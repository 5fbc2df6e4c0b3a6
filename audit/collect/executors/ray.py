"""Models compute in actors of a Ray cluster; this process alone asks and retries. Needs the extra ``ray``.

A model becomes a pool of actors. Each loads the model once and answers batches one after the other; a second batch
waits at the actor, so that none is idle while an answer travels. The batch of a lost actor is asked of another one, and
a new actor takes the lost one's place. Answers reach the store once, with the call that a batch waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from audit.collect.executors.base import Pool, Resources
from audit.collect.executors.local import LocalPool
from audit.collect.executors.model_actor import ModelActor
from audit.collect.executors.shard_owners import owner_writer
from audit.logs import logger
from audit.store import Store
from backends.base import Answer, Backend, OnResponse, Request
from backends.errors import BackendError, ConfigError, MissingExtra, StoppedError, one_line
from backends.options import OnError, checked_options

log = logger("ray")

#: Batches that are at one actor at a time: one computes, one waits.
IN_FLIGHT = 2
#: How often a batch is asked if its actors are lost, and how often an actor is started that does not come up.
ATTEMPTS = 4
#: Seconds within which a cluster's address takes a connection.
_ANSWERS_WITHIN = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_Amount = Annotated[
    Annotated[float, Field(ge=0)] | None, OnError("not an amount", "Give a number, 0 or more, or leave it out")
]


class RayExecutor:
    """Runs local models in actors of a Ray cluster. Servers are asked from this process.

    Parameters
    ----------
    address : str, optional
        The cluster's address; ``auto`` is the one that this machine belongs to. Default: one of this machine alone.
    actors : int, optional
        Actors of each model; as many as the cluster has room for, if there are fewer or none is given.
    cpus, gpus : float, optional
        What an actor reserves. Default: one GPU and one CPU for a model on CUDA, else all CPUs of the smallest node.
    """

    @checked_options
    def __init__(
        self,
        *,
        address: str | None = None,
        actors: Annotated[
            Annotated[int, Field(ge=1)] | None, OnError("not a number of actors", "Give 1 or more, or leave it out")
        ] = None,
        cpus: _Amount = None,
        gpus: _Amount = None,
    ) -> None:
        self.address, self.actors, self.cpus, self.gpus = address, actors, cpus, gpus
        self._started = False
        self._owned: Store | None = None

    def changed(self, **options: Any) -> RayExecutor:
        """The same, but for these options."""
        return RayExecutor(
            **{"address": self.address, "actors": self.actors, "cpus": self.cpus, "gpus": self.gpus, **options}
        )

    async def pool(self, backend: Backend) -> Pool:
        """As in `audit.collect.executors.base.Executor`. Connects to the cluster.

        Raises
        ------
        ConfigError
            If Ray is not installed, the cluster cannot be reached, or no node has room for an actor.
        """
        if backend.device is None:
            return LocalPool(backend)
        # In a thread Ray leaves the handlers of signals alone. This one lives as long as the loop: what Ray starts here
        # ends with it.
        await asyncio.to_thread(self._connect)
        actors, cpus, gpus = await asyncio.to_thread(self._resources, backend.device)
        return RayPool(backend, actors, cpus, gpus, asked_for=self.actors or actors)

    def resources(self, backend: Backend) -> Resources | None:
        """As in `audit.collect.executors.base.PlansResources`."""
        return None if backend.device is None else Resources(self.actors, self._gpus(backend.device))

    async def own(self, store: Store) -> None:
        """Give each of the store's shards an owner in the cluster, on this node. A store of one file is written here.

        Raises
        ------
        ConfigError
            If Ray is not installed, or the cluster cannot be reached.
        """
        if store.n_shards > 1:
            await asyncio.to_thread(self._connect)
            self._owned = store
            await asyncio.to_thread(store.let_own, owner_writer)

    async def close(self) -> None:
        """Leave the cluster. One that was started here ends."""
        if self._owned is not None:
            await asyncio.to_thread(self._owned.own_itself)
            self._owned = None
        if self._started:
            import ray

            await asyncio.to_thread(ray.shutdown)
            self._started = False

    def _connect(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtra("executor", "ray", "ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # an audit reports to nobody
        address, own = self.address, {}
        if address is None and "RAY_ADDRESS" not in os.environ:  # without "local" Ray joins any that runs here
            address, own = "local", {"_node_ip_address": "127.0.0.1"}
        else:  # Ray's 20 attempts at a cluster that does not answer take 14 minutes, in which Ctrl-C waits too
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")
        import ray

        if ray.is_initialized():
            return
        if address in (None, "auto"):  # as Ray does
            address = os.environ.get("RAY_ADDRESS", "auto")
        try:
            _check_listens(address)
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            hint = "Start a cluster with `ray start --head` and give its HOST:PORT, or leave the address out"
            raise ConfigError("address", address, f"no Ray cluster: {error}".rstrip("."), hint) from None
        self._started = True

    def _resources(self, device: str) -> tuple[int, float, float]:
        """The number of actors, and the CPUs and GPUs of each."""
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        on_gpu = device.startswith("cuda")
        gpus = self._gpus(device)
        cpus = self.cpus if self.cpus is not None else 1.0 if on_gpu else _cpus_of_smallest(nodes)
        reserved = {"cpus": cpus, "gpus": gpus}
        wanted = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount > 0}
        if not wanted:
            raise ConfigError("executor", reserved, "actors that reserve nothing", "Give cpus or gpus")
        room = sum(int(min(node.get(name, 0.0) / amount for name, amount in wanted.items())) for node in nodes)
        if room == 0:
            problem = f"no node has room for an actor of {cpus:g} CPUs and {gpus:g} GPUs"
            raise ConfigError("executor", reserved, problem, "Give smaller cpus and gpus, or add nodes")
        actors = min(self.actors or room, room)
        log.info("actors", actors=actors, asked_for=self.actors, room=room, cpus=cpus, gpus=gpus)
        return actors, cpus, gpus

    def _gpus(self, device: str) -> float:
        return self.gpus if self.gpus is not None else float(device.startswith("cuda"))


def _check_listens(address: str) -> None:
    """Raise a ConnectionError if nothing listens where a cluster is said to be."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not port.isdigit():
        return  # auto, local, or what Ray refuses by itself
    hosts = [host.strip("[]")]
    if hosts[0] in _LOOPBACK:  # which Ray takes for this node's own address
        import ray

        hosts.append(ray.util.get_node_ip_address())
    problems = []
    for host in hosts:
        try:
            socket.create_connection((host, int(port)), _ANSWERS_WITHIN).close()
        except (OSError, OverflowError) as error:
            problems.append(str(error))
        else:
            return
    raise ConnectionError(f"nothing listens there ({problems[0]})")


def _cpus_of_smallest(nodes: Sequence[Mapping[str, float]]) -> float:
    """A head node may be there for other things and offer none."""
    return min((node["CPU"] for node in nodes if node.get("CPU")), default=0.0)


def _unusable(problem: str, *, is_lost: bool = False) -> BackendError:
    """Why no actor can be used. If those were lost, the same command may do on a cluster that lives."""
    message = f"no actor of the model can be used: {problem}"
    return BackendError("connection" if is_lost else "internal", message, retryable=is_lost)


class RayPool:
    """One model in several actors. See `audit.collect.executors.base.Pool`."""

    def __init__(self, backend: Backend, actors: int, cpus: float, gpus: float, *, asked_for: int) -> None:
        self.max_in_flight = IN_FLIGHT * actors
        self._backend, self._n_actors, self._asked_for = backend, actors, asked_for
        self._options = {"num_cpus": cpus, "num_gpus": gpus, "max_concurrency": IN_FLIGHT + 1, "max_restarts": 0}
        self._opening = asyncio.Lock()
        self._fingerprint: Mapping[str, Any] | None = None
        self._actors: set[Any] = set()  # those that live
        self._starting: set[asyncio.Task[None]] = set()
        self._free: asyncio.Queue[Any] = asyncio.Queue()  # each living actor once for each batch that it may take
        self._refusal: BackendError | None = None  # why no actor can be used
        self._is_stopped = False
        self._notes: dict[str, str] = {}

    async def run(self, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """As in `audit.collect.executors.base.Pool`."""
        from ray.exceptions import RayError, RayTaskError

        await self._open()
        for _ in range(ATTEMPTS):
            actor = await self._take()
            if self._is_stopped:  # while it waited, or since its actor was lost
                return [StoppedError() for _ in batch]
            if actor is None:
                assert self._refusal is not None
                return [self._refusal] * len(batch)
            try:
                answers, notes = await actor.run.remote(list(batch))
            except RayTaskError as error:
                self._free.put_nowait(actor)
                raise error.cause from None  # what the backend raised
            except RayError as error:
                self._replace(actor, error)
                continue
            except asyncio.CancelledError:
                self._free.put_nowait(actor)
                raise
            self._free.put_nowait(actor)
            self._notes |= notes
            return list(answers)
        hint = "look into the cluster's logs; with less memory in use it may stay"
        return [BackendError("internal", f"{ATTEMPTS} actors were lost with this batch", hint=hint)] * len(batch)

    def notes_of_run(self) -> Mapping[str, str]:
        """As in `audit.collect.executors.base.Pool`."""
        return self._notes

    def stop_computing(self) -> None:
        """As in `audit.collect.executors.base.Pool`."""
        self._is_stopped = True
        self._free.put_nowait(None)  # for a batch that waits for an actor
        for actor in self._actors:
            actor.stop_computing.remote()

    def actors(self) -> tuple[int, int]:
        """As in `audit.collect.executors.base.Pool`."""
        return len(self._actors), self._asked_for

    async def close(self) -> None:
        """End all actors, and with them their models."""
        import ray

        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        actors, self._actors = self._actors, set()
        for actor in actors:
            await asyncio.to_thread(ray.kill, actor)
        self._starting, self._free = set(), asyncio.Queue()
        self._fingerprint = self._refusal = None

    async def _open(self) -> None:
        """Start the actors at the first batch."""
        async with self._opening:
            if self._fingerprint is None:
                description = await self._backend.describe()
                await self._backend.close()  # it travels to the actors, without what describing it loaded
                self._fingerprint = dict(description.fingerprint)
                for _ in range(self._n_actors):
                    self._start()

    def _start(self) -> None:
        task = asyncio.create_task(self._start_actor())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start_actor(self) -> None:
        """Add an actor once it answers, unless it is another model."""
        try:
            problem = await self._bring_up()
        except Exception as error:  # the backend cannot travel; uncaught, its batches would wait for ever
            problem = _unusable(one_line(error))
        if problem is None:
            return
        log.warning("actor not used", problem=problem.message)
        task = asyncio.current_task()
        assert task is not None
        self._starting.discard(task)  # before looking: another one may end at the same time
        if not self._actors and not self._starting:  # this was the last that might have been
            self._refusal = problem
            self._free.put_nowait(None)

    async def _bring_up(self) -> BackendError | None:
        """Start an actor, several times if it does not come up. Returns why it cannot be used."""
        from ray.exceptions import RayError

        problem = _unusable("it could not be started")
        for _ in range(ATTEMPTS):
            actor = await asyncio.to_thread(self._create)
            try:
                differs = await actor.differs_from.remote(self._fingerprint)
            except RayError as error:
                # A traceback of the actor's, the error last. Without one the cluster has lost it, or has ended.
                is_its_own = "creation task" in str(error)
                problem = _unusable((str(error).strip() or one_line(error)).splitlines()[-1], is_lost=not is_its_own)
                log.warning("actor did not start", error=problem.message)
                continue
            if differs is not None:
                return _unusable(differs)
            self._actors.add(actor)
            for _ in range(IN_FLIGHT):
                self._free.put_nowait(actor)
            return None
        return problem

    def _create(self) -> Any:
        import ray

        return ray.remote(ModelActor).options(**self._options).remote(self._backend)

    async def _take(self) -> Any:
        """An actor that lives and may take a batch; None if none ever can, or after a stop."""
        while self._refusal is None and not self._is_stopped:
            actor = await self._free.get()
            if actor in self._actors:
                return actor
        self._free.put_nowait(None)  # for the next one that waits
        return None

    def _replace(self, actor: Any, error: Exception) -> None:
        if actor not in self._actors:
            return  # its other batch has noticed
        log.warning("actor lost", error=one_line(error))
        self._actors.discard(actor)
        with contextlib.suppress(Exception):  # it may live where it cannot be reached
            import ray

            ray.kill(actor)
        self._start()
