"""A forward pass of a transformers model: the logits after chosen tokens, and their log-probabilities."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from backends.errors import BackendError
from backends.local.trie import Floats, Ints, Trie
from backends.transformers.context import vocabulary_size
from backends.transformers.placement import input_device

#: Logits converted to float32 together, in bytes: few enough for a CPU's cache; a GPU wants few calls.
PIECE_BYTES = {"cpu": 4 << 20, "mps": 64 << 20, "cuda": 512 << 20}


class LogitReader:
    """Reads logits and log-probabilities off one loaded model.

    Parameters
    ----------
    model : transformers causal language model, in eval mode
    beginning_with : callable
        Returns the token ids of a set, given its name.

    Attributes
    ----------
    vocabulary : int
        Number of tokens.
    positions : Positions
        How the model is told where its tokens stand.
    tokens_computed : int
        Tokens the model has read so far; counted by the callers of `logits`, which know what is padding.

    Raises
    ------
    BackendError
        ``unsupported``, for a model without a known output head.
    """

    def __init__(self, model: Any, beginning_with: Callable[[Any], npt.NDArray[np.int64]]) -> None:
        self.model, self._beginning_with = model, beginning_with
        self.device = input_device(model)
        self.config = model.config.get_text_config()
        self.vocabulary = vocabulary_size(model)
        self.positions = Positions(model)
        self.tokens_computed = 0
        self._members: dict[Any, torch.Tensor] = {}
        self._head = model.get_output_embeddings()
        if self._head is None:
            raise BackendError(
                "unsupported",
                f"{type(model).__name__} does not say what computes its logits",
                hint="use a server for it",
            )

    def to_device(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """The array on the model's device. On CUDA this waits for no pass that is still computed."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def logits(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        places: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (rows, V) after the given places of the flattened batch (B, T), computed for these alone."""

        def select(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            hidden = arguments[0]  # (B, T, C); the last layer may be elsewhere than the input
            hidden = hidden.reshape(-1, hidden.shape[-1]).index_select(0, places.to(hidden.device))[None]
            return (hidden, *arguments[1:])

        given = {} if mask is None else {"attention_mask": mask}
        handle = self._head.register_forward_pre_hook(select)
        try:
            with torch.inference_mode(), self.positions.of_pass(positions) as options:
                logits: torch.Tensor = self.model(ids, use_cache=False, **options, **given).logits[0]
                return logits
        finally:
            handle.remove()

    def answers(self, trie: Trie, asks: Ints, row_of_ask: Ints, logits: torch.Tensor) -> Callable[[], Floats]:
        """What gives log-softmax (nats) at the targets of these asks, in float32 whatever the model's dtype.

        On CUDA a call of it waits for these numbers alone, not for passes that were queued later.
        """
        targets = trie.ask_targets[asks]
        with torch.inference_mode():
            piece = max(1, PIECE_BYTES[logits.device.type] // (4 * logits.shape[-1]))
            total = torch.cat([part.float().logsumexp(-1) for part in logits.split(piece)])
            rows, ids = (self.to_device(x).to(logits.device) for x in (row_of_ask, np.maximum(targets, 0)))
            values = logits[rows, ids].float()
            for target in np.unique(targets[targets < 0]).tolist():
                at = self.to_device(np.flatnonzero(targets == target)).to(logits.device)
                values[at] = self._of_set(trie.sets[-1 - target], logits, rows[at], piece)
            found = values - total[rows]
        if found.device.type != "cuda":
            numbers: Floats = found.cpu().double().numpy()  # converted on the CPU: MPS has no float64
            return lambda: numbers
        kept = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
        kept.copy_(found, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(found.device))

        def read() -> Floats:
            done.synchronize()
            numbers: Floats = kept.double().numpy()
            return numbers

        return read

    def _of_set(self, name: Any, logits: torch.Tensor, rows: torch.Tensor, piece: int) -> torch.Tensor:
        """The logarithm of the summed exponentials of a set's logits, for each of these rows."""
        members = self._members.get(name)
        if members is None:
            ids = self._beginning_with(name)
            # A tokenizer may have more tokens than the model, which never predicts the rest.
            members = self._members[name] = torch.from_numpy(ids[ids < logits.shape[-1]]).to(logits.device)
        parts = [logits[part][:, members].float().logsumexp(-1) for part in rows.split(piece)]
        return torch.cat(parts)

    @contextlib.contextmanager
    def attention(self, name: str) -> Iterator[None]:
        """Use another attention implementation within this block; other uses of the model keep its own."""
        before: str = self.model.config._attn_implementation
        self.model.set_attn_implementation(name)
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)


class Positions:
    """How one model is told where its tokens stand.

    Most take ``position_ids``. Some count within an embedding of places, which is reached by a hook for one pass. That
    a model's numbers are right so is shown by its trial.

    Attributes
    ----------
    told : "argument", "embedding" or None
        By ``position_ids``, or in its embeddings of places; None: it cannot be told.
    """

    def __init__(self, model: Any) -> None:
        self.told: Literal["argument", "embedding"] | None = None
        self._modules = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) and _takes_places(m)]
        if _takes_places(model):
            self.told = "argument"
        elif self._modules:
            self.told = "embedding"

    @contextlib.contextmanager
    def of_pass(self, positions: torch.Tensor | None) -> Iterator[dict[str, Any]]:
        """The arguments of a forward pass over tokens at ``positions`` (1, T); None: as the model counts them."""
        if positions is None or self.told == "argument":
            yield {} if positions is None else {"position_ids": positions}
            return
        with contextlib.ExitStack() as hooks:
            for module in self._modules:
                handle = module.register_forward_pre_hook(_embeds_at(positions), with_kwargs=True)
                hooks.callback(handle.remove)
            yield {}


def _takes_places(module: Any) -> bool:
    return "position_ids" in inspect.signature(module.forward).parameters


def _embeds_at(positions: torch.Tensor) -> Any:
    def hook(module: Any, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        given = options.get("position_ids")
        by_row = isinstance(given, torch.Tensor) and given.dim() > 1  # most count once for all rows
        return arguments, options | {"position_ids": positions if by_row else positions[0]}

    return hook
