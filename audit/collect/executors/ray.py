"""Models compute in actors of a Ray cluster; this process alone asks, retries and stores. Extra: ``ray``.

A model becomes several actors. Each loads the model once and answers batches one after the other; a second batch waits
at the actor, so that none is idle while an answer travels. The batch of a lost actor is asked of another one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from audit.collect.executors import Executor
from audit.collect.executors.ray_actors import ModelActors
from backends.base import Answer, Backend, OnResponse, Request
from backends.errors import ConfigError, MissingExtra
from backends.options import OnError, checked_options

_Amount = Annotated[
    Annotated[float, Field(ge=0)] | None, OnError("not an amount", "Give a number, 0 or more, or leave it out")
]
_Count = Annotated[
    Annotated[int, Field(ge=1)] | None, OnError("not a number of actors", "Give 1 or more, or leave it out")
]


class RayExecutor(Executor):
    """Runs local models in actors of a Ray cluster. Servers are asked from this process.

    Parameters
    ----------
    address : str, optional
        The cluster's address; ``auto`` is the one that this machine belongs to. Default: one of this machine alone.
    actors : int, optional
        Actors of each model; as many as the cluster has room for, if there are fewer or none is given.
    cpus, gpus : float, optional
        What an actor reserves. Default: one GPU and one CPU for a model on CUDA, else all CPUs of the smallest node.

    Raises
    ------
    ConfigError
        When it is first used: if Ray is not installed, the cluster cannot be reached, or has no room for an actor.
    """

    @checked_options
    def __init__(
        self, *, address: str | None = None, actors: _Count = None, cpus: _Amount = None, gpus: _Amount = None
    ) -> None:
        self.address, self.actors, self.cpus, self.gpus = address, actors, cpus, gpus
        self._models = dict[Backend, ModelActors]()
        self._has_started = False  # a cluster that ends with the run

    def changed(self, **options: Any) -> RayExecutor:
        """The same, but for these options."""
        own = {"address": self.address, "actors": self.actors, "cpus": self.cpus, "gpus": self.gpus}
        return RayExecutor(**{**own, **options})

    # What Ray starts ends with the thread that started it. Those of `to_thread` live as long as the event loop, and in
    # them Ray leaves the handlers of signals alone.

    async def slots(self, backend: Backend) -> int:
        """Two for each actor."""
        if backend not in self._models:
            actors = await asyncio.to_thread(self._resources, backend.device or "cpu")
            self._models[backend] = ModelActors(backend, *actors)
        return self._models[backend].slots

    async def submit(self, backend: Backend, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """As in `audit.collect.executors.Executor`."""
        return await self._models[backend].submit(batch)

    def stop(self, backend: Backend) -> None:
        """As in `audit.collect.executors.Executor`."""
        if model := self._models.get(backend):  # else its turn is over
            model.stop()

    def notes(self, backend: Backend) -> Mapping[str, str]:
        """As in `audit.collect.executors.Executor`."""
        return self._models[backend].notes

    async def release(self, backend: Backend) -> None:
        """End a model's actors."""
        if model := self._models.pop(backend, None):
            await model.close()

    async def close(self) -> None:
        """End all actors, and a cluster that was started here."""
        for backend in list(self._models):
            await self.release(backend)
        if self._has_started:
            import ray

            await asyncio.to_thread(ray.shutdown)
        self._has_started = False

    def _connect(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtra("executor", "ray", "ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # an audit reports to nobody
        import ray

        if ray.is_initialized():
            return
        address = self.address
        if address in (None, "auto"):  # as Ray does; without "local" it joins any cluster that runs here
            address = os.environ.get("RAY_ADDRESS", address or "local")
        own = {"_node_ip_address": "127.0.0.1"} if address == "local" else {}
        try:
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            hint = "Start a cluster with `ray start --head` and give its HOST:PORT, or leave the address out"
            raise ConfigError("address", address, f"no Ray cluster: {error}".rstrip("."), hint) from None
        self._has_started = True

    def _resources(self, device: str) -> tuple[int, float, float]:
        """The number of actors, and the CPUs and GPUs of each."""
        self._connect()
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        is_on_gpu = device.startswith("cuda")
        gpus = self.gpus if self.gpus is not None else float(is_on_gpu)
        smallest = min((node["CPU"] for node in nodes if node.get("CPU")), default=0.0)
        cpus = self.cpus if self.cpus is not None else 1.0 if is_on_gpu else smallest
        reserved = {"cpus": cpus, "gpus": gpus}
        wanted = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount > 0}
        if not wanted:
            raise ConfigError("executor", reserved, "actors that reserve nothing", "Give cpus or gpus")
        room = sum(int(min(node.get(name, 0.0) / amount for name, amount in wanted.items())) for node in nodes)
        if room == 0:
            problem = f"no node has room for an actor of {cpus:g} CPUs and {gpus:g} GPUs"
            raise ConfigError("executor", reserved, problem, "Give smaller cpus and gpus, or add nodes")
        return min(self.actors or room, room), cpus, gpus
