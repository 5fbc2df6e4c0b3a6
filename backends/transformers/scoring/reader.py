"""A forward pass of a transformers model: the logits after chosen tokens, and their log-probabilities."""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backends.errors import BackendError
from backends.local.trie import Trie
from backends.transformers.cached_state import cache_name
from backends.transformers.context import vocabulary_size
from backends.transformers.placement import input_device
from backends.transformers.scoring.last_layer import LastLayer, is_changed
from backends.transformers.scoring.positions import Positions

ROWS_AT_A_TIME = 16  # rows of logits converted to float32 together: few enough for the CPU cache


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
    own_attention : str
        The attention implementation that the model was loaded with.
    positions : Positions
        How the model is told where its tokens stand.
    gives_parts : bool
        Whether its logits are its output head's, unchanged, so that some can be computed after the pass.
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
        self._turn = threading.Lock()  # a pass changes its model while it runs
        self._head = model.get_output_embeddings()
        if self._head is None:
            raise BackendError(
                "unsupported",
                f"{type(model).__name__} does not say what computes its logits",
                hint="use a server for it",
            )
        self.own_attention: str = model.config._attn_implementation
        self._last = LastLayer(model)
        if not self._agrees_cut():
            self._last.leave_whole()
        self.gives_parts = self._agrees_in_parts()

    def of(self, model: Any) -> LogitReader:
        """A reader of another model of the same vocabulary."""
        return LogitReader(model, self._beginning_with)

    def beside(self) -> LogitReader:
        """A reader of the same model for another thread: their passes take turns, and each counts its own tokens."""
        other = copy.copy(self)
        other.tokens_computed = 0
        return other

    def _agrees_cut(self) -> bool:
        """Whether the asked tokens' logits are the same, but for rounding, where the last layer is cut short."""
        ids = torch.arange(3, 15, device=self.device)[None] % self.vocabulary
        places = torch.tensor([9, 4, 11], device=self.device)
        try:
            self.tokens_computed += len(ids[0])
            cut = self.logits(ids, None, None, places)
            if not self._last.has_cut:
                return False
            self.tokens_computed += len(ids[0])
            whole = self.logits(ids, None, None, torch.arange(12, device=self.device), cuts=False)[places]
        except Exception:  # foreign code: why a model fails is told by the trials of its routes
            return False
        return self._only_rounds(cut, whole)

    def _agrees_in_parts(self) -> bool:
        """Whether the head computes the same logits, but for rounding, for some tokens after the others."""
        if self.device.type != "cpu" or getattr(self.model, "hf_quantizer", None) is not None:
            return False
        if type(self._head.weight) is not torch.nn.Parameter or not isinstance(self._head, torch.nn.Linear):
            return False  # divided, or of an adapter
        if is_changed(self._head):
            return False
        ids = torch.arange(3, 15, device=self.device)[None] % self.vocabulary
        places = torch.tensor([4, 9, 11], device=self.device)
        given: list[torch.Tensor] = []
        handle = self._head.register_forward_hook(lambda _, before, after: given.extend((after, after.clone())))
        try:
            self.tokens_computed += 2 * len(ids[0])
            whole = self.logits(ids, None, None, places)
            if whole.data_ptr() != given[0].data_ptr() or not torch.equal(whole, given[1][0]):
                return False  # divided by a temperature, capped, or in another dtype
            parts = torch.cat([*self.logits_in_parts(ids, None, None, places, [1, 3])])
        except Exception:  # foreign code: why a model fails is told by the trials of its routes
            return False
        finally:
            handle.remove()
        return self._only_rounds(parts, whole)

    def _only_rounds(self, found: torch.Tensor, whole: torch.Tensor) -> bool:
        """Whether logits (rows, V) differ by no more than rounding."""
        moved = (found.float().log_softmax(-1) - whole.float().log_softmax(-1)).abs().max()
        return float(moved) < (1e-4 if self.model.dtype == torch.float32 else 0.1)  # NaN is not

    def logits(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        places: torch.Tensor,
        *,
        cuts: bool = True,
    ) -> torch.Tensor:
        """Logits (rows, V) after the given positions of the flattened batch, computed for these alone.

        One thread at a time. On a GPU a pass has only been queued when the next thread's begins.

        ``cuts``: where possible, the last layer too is computed for these alone.
        """

        with self._for(places, cuts), self.positions.of_pass(positions, mask) as options:
            logits: torch.Tensor = self.model(ids, use_cache=False, **options).logits[0]
            return logits

    def logits_in_parts(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        places: torch.Tensor,
        stops: Sequence[int],
    ) -> Iterator[torch.Tensor]:
        """As `logits`, the rows until each of ``stops`` by themselves, computed when they are asked for.

        With several stops the model is one that `gives_parts`.
        """
        if len(stops) == 1:
            yield self.logits(ids, positions, mask, places)
            return
        first = stops[0]
        rest: list[torch.Tensor] = []
        with self._for(places, True, first, rest), self.positions.of_pass(positions, mask) as options:
            logits: torch.Tensor = self.model(ids, use_cache=False, **options).logits[0]
        yield logits
        for low, high in itertools.pairwise(stops):
            with self._turn, torch.inference_mode():
                logits = self._head(rest[0][:, low - first : high - first])[0]
            yield logits

    def logits_and_cache(self, ids: torch.Tensor, cache: Any, places: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """As `logits`, of tokens behind what the model's own cache holds (None: nothing); and the cache then.

        The cache that is given may be changed. No mask: all rows stand behind as many tokens, padding behind its row.
        """
        name = cache_name(self.model)
        if name is None:
            raise ValueError("it takes no cache")
        with self._for(places, cuts=True):
            out = self.model(ids, use_cache=True, **({} if cache is None else {name: cache}))
            return out.logits[0], getattr(out, name, None)

    @contextlib.contextmanager
    def _for(
        self, places: torch.Tensor, cuts: bool, first: int | None = None, rest: list[torch.Tensor] | None = None
    ) -> Iterator[None]:
        """Passes within this block compute the logits of these places of their flattened batch alone.

        Of the first ones alone, if ``first`` says how many: ``rest`` gets the others' hidden states (1, rows, C).
        """

        def select(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            hidden = arguments[0]  # (B, T, C)
            if not self._last.has_cut:
                at = places.to(hidden.device)  # the last layer may be elsewhere than the input
                hidden = hidden.reshape(-1, hidden.shape[-1])[at][None]
            if rest is not None:
                rest.append(hidden[:, first:])
                hidden = hidden[:, :first]
            return (hidden, *arguments[1:])

        with self._turn:
            handle = self._head.register_forward_pre_hook(select)
            try:
                with torch.inference_mode(), self._last.asked(places if cuts else None):
                    yield
            finally:
                handle.remove()

    def answer(self, trie: Trie, nodes: list[int], logits: torch.Tensor, answers: npt.NDArray[np.float64]) -> bool:
        """Fill in the answers at these nodes, whose logits are given in this order. Returns whether all are numbers."""
        order = np.argsort(nodes)
        low = np.searchsorted(trie.ask_nodes, np.array(nodes)[order], "left")
        high = np.searchsorted(trie.ask_nodes, np.array(nodes)[order], "right")
        asks = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
        row_of_ask = np.repeat(order, high - low)
        answers[asks] = self.log_probabilities(logits, row_of_ask, trie.ask_targets[asks], trie.sets)
        return not np.isnan(answers[asks]).any()

    def log_probabilities(
        self,
        logits: torch.Tensor,
        row_of_ask: npt.NDArray[np.int64],
        targets: npt.NDArray[np.int64],
        sets: list[Hashable],
    ) -> npt.NDArray[np.float64]:
        """log-softmax (nats) at the targets, shape (asks,), in float32 whatever the model's dtype."""
        if len(targets) == 0:
            return np.empty(0)
        with torch.inference_mode():
            total = torch.cat([part.float().logsumexp(-1) for part in logits.split(ROWS_AT_A_TIME)])
            rows = torch.from_numpy(row_of_ask).to(logits.device)
            ids = torch.from_numpy(np.maximum(targets, 0)).to(logits.device)
            values = logits[rows, ids].float()
            for i in np.flatnonzero(targets < 0):
                members = self._beginning_with(sets[-1 - targets[i]])
                # A tokenizer may have more tokens than the model, which never predicts the rest.
                known = torch.from_numpy(members[members < logits.shape[-1]]).to(logits.device)
                values[i] = logits[rows[i]].index_select(0, known).float().logsumexp(-1)
            # Converted on the CPU: MPS has no float64.
            logprobs: npt.NDArray[np.float64] = (values - total[rows]).cpu().double().numpy()
            return logprobs

    @contextlib.contextmanager
    def attention(self, name: str) -> Iterator[None]:
        """Use another attention implementation within this block; other uses of the model keep its own."""
        before: str = self.model.config._attn_implementation
        if before == name:  # within another such block: to change it takes a walk over the model
            yield
            return
        self.model.set_attn_implementation(name)
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)
