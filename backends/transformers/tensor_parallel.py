"""One model divided over several processes, each layer in parts: transformers' tensor parallelism.

This process is rank 0. It starts the other ranks, sends each the batches that it computes itself, and all take the same
steps: the parts of a layer's sums meet in torch.distributed (NCCL on CUDA, gloo on the CPU). A rank that fails ends the
whole group, since the others would wait for it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from backends.errors import BackendError, ConfigError, one_line

T = TypeVar("T")

#: For the slowest rank, which may read its weights from a slow disk. NCCL notices no sooner that a rank has ended.
WAIT = timedelta(minutes=30)

#: A projection of attention → how it is divided where its heads are not: its outputs are gathered, and split again.
_GATHERED = {
    "q_proj": ("colwise", "colwise_gather_output"),
    "k_proj": ("colwise", "colwise_gather_output"),
    "v_proj": ("colwise", "colwise_gather_output"),
    "o_proj": ("rowwise", "rowwise_split_input"),
}


class Ranks:
    """The other processes of a divided model.

    Parameters
    ----------
    size : int
        Processes in all.
    options : Mapping
        The options of `HFBackend`, for each rank.

    Raises
    ------
    BackendError
        ``unsupported`` if this process holds a divided model already; ``internal`` if a rank does not start.
    """

    def __init__(self, size: int, options: Mapping[str, Any]) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            raise BackendError(
                "unsupported",
                "this process holds a divided model already",
                hint="audit divided models one after another, in commands of their own",
            )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._others = [_start(rank) for rank in range(1, size)]
        try:
            for rank, process in enumerate(self._others, 1):
                _send(process, {"rank": rank, "size": size, "port": port, "options": dict(options)})
            self._hear_all()  # all have imported torch: none is late for the meeting
            join_group(0, size, port)
        except BaseException:
            self.close()
            raise

    def run(self, batch: Sequence[Any] | None, work: Callable[[], T]) -> T:
        """Do this rank's ``work`` while the others do theirs: answer a batch, or load the model if it is None."""
        try:
            for process in self._others:
                _send(process, batch)
            done = work()
            self._hear_all()
        except BaseException:
            self.close()
            raise
        return done

    def close(self) -> None:
        """End the other processes, and leave the group."""
        import torch.distributed as dist

        for process in self._others:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()
        self._others = []
        if dist.is_initialized():
            dist.destroy_process_group()

    def _hear_all(self) -> None:
        for rank, process in enumerate(self._others, 1):
            try:
                said = pickle.load(process.stdout)  # type: ignore[arg-type]
            except (EOFError, pickle.UnpicklingError):
                said = "it ended"
            if said is not None:
                raise BackendError("internal", f"process {rank} of the divided model failed: {said}")


def plan(config: Any, prefix: str, size: int) -> dict[str, str]:
    """Rules that differ from the model's own plan: attention is gathered where its heads cannot be divided.

    Parameters
    ----------
    config
        The model's configuration.
    prefix : str
        Where its decoder is in the model.

    Raises
    ------
    ConfigError
        If transformers has no plan for the model, or its attention can be divided in no way.
    """
    own = getattr(config, "base_model_tp_plan", None)
    if not own:
        raise ConfigError(
            "tensor_parallel", size, f"transformers has no plan to divide {config.model_type!r}", "Give device_map"
        )
    heads = {config.num_attention_heads, getattr(config, "num_key_value_heads", None) or config.num_attention_heads}
    if all(count % size == 0 for count in heads):
        return {}
    attention = {rule: style for rule, style in own.items() if rule.endswith(tuple(_GATHERED))}
    styles = {rule.rpartition(".")[2]: style for rule, style in attention.items()}
    if styles != {name: style for name, (style, _) in _GATHERED.items()}:
        counts = " and ".join(map(str, sorted(heads)))
        raise ConfigError(
            "tensor_parallel", size, f"{counts} attention heads cannot be divided", "Give a number that divides them"
        )
    return {f"{prefix}.{rule}": _GATHERED[rule.rpartition(".")[2]][1] for rule in attention}


def _start(rank: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LOCAL_RANK": str(rank), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-m", "backends.transformers.follower"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it would say what this process says
        env=environment,
    )


def _send(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    try:
        pickle.dump(message, process.stdin)
        process.stdin.flush()
    except OSError:
        raise BackendError("internal", "a process of the divided model has ended") from None


def as_first_rank(value: bool, device: str) -> bool:
    """Rank 0's ``value``. All ranks ask for it at the same point of their work, and so go on alike.

    Raises
    ------
    BackendError
        ``internal`` if one of them has ended.
    """
    import torch
    import torch.distributed as dist

    said = torch.tensor([value], dtype=torch.uint8, device=device)
    try:
        dist.broadcast(said, 0)
        return bool(said.item())
    except RuntimeError as error:
        raise BackendError("internal", f"a process of the divided model has ended: {one_line(error)}") from None


def join_group(rank: int, size: int, port: int) -> None:
    """Meet the other processes. Returns once all are there."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=size,
        timeout=WAIT,
    )
