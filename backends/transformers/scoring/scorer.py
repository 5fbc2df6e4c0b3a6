"""Score token paths on a transformers model.

Route ``tree`` reads each distinct token once. Route ``batch`` is for models that do not support the tree. The route
is chosen by trying the tree once on the loaded model.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from backends.errors import BackendError
from backends.local.scoring import OnKnown, Scorer, in_threads
from backends.local.trie import Path, Trie
from backends.transformers.context import context_length
from backends.transformers.memory import PassSize, is_divided, most_rows
from backends.transformers.scoring.batch import BatchRoute
from backends.transformers.scoring.masked_tree import MaskedTreeRoute
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.shared_starts import SharedStarts
from backends.transformers.scoring.starts_trial import try_starts
from backends.transformers.scoring.tree import TreeRoute
from backends.transformers.scoring.tree_attention import ATTENTION
from backends.transformers.scoring.trials import fixed_choice, trial_vocabulary, try_batch, why_not_tree
from backends.transformers.scoring.twin import agree, make_twin

Value = npt.NDArray[np.float64] | BackendError

#: How much larger a pass of a small model is whose answers are computed in parts, so that a kill loses no more of them.
#: Half of what such a pass takes beside its products is the same for any number of tokens.
LARGER_IN_PARTS = 2
SMALL_MODEL = 10**9  # weights: of larger models products take all the time, and one pass many seconds
LONG_START = 48  # tokens: a start of so many that all texts share is read once, by all threads


class SequenceScorer:
    """Scores paths on one loaded model, and keeps the last path's state for the next call.

    Parameters
    ----------
    model : transformers causal language model, in eval mode
    beginning_with : callable
        Returns the token ids of a set, given its name.
    pack_tokens : int
        Maximum tokens of one forward pass; twice as many for a small model whose answers can be computed in parts.
    threads : int
        CPU threads that torch computes with here, which `side_by_side` divides.

    Attributes
    ----------
    context : int or None
        Maximum tokens of one text; None: no limit.
    vocabulary : int
        Number of tokens that the model has a logit for.
    size : PassSize
        The current size of a forward pass.
    route : "tree" or "batch"
    route_reason : str
        Why this route, for reports.

    Raises
    ------
    BackendError
        ``unsupported``, for a model that sees later tokens.
    NoRoomError
        If not even one token fits in memory beside the model.
    """

    def __init__(
        self,
        model: Any,
        beginning_with: Callable[[Any], npt.NDArray[np.int64]],
        *,
        pack_tokens: int,
        threads: int = 1,
    ) -> None:
        self.context, _ = context_length(model.config)
        self.pack_tokens, self._threads = pack_tokens, threads
        self._reader = reader = LogitReader(model, beginning_with)
        self.vocabulary = reader.vocabulary
        self.size = PassSize(pack_tokens, most_rows(self.vocabulary, str(reader.device)), str(reader.device))
        self._batch = BatchRoute(reader, self.size)
        self._tree: TreeRoute | MaskedTreeRoute = TreeRoute(reader, self.size)
        self._beside: tuple[SequenceScorer, ...] | None = None  # None: not looked for yet
        self.route: Literal["tree", "batch"] = "tree"
        self.route_reason = "each distinct token is read once"
        if reason := why_not_tree(self._tree, self._batch, reader, self.size):
            self._tree = MaskedTreeRoute(reader, self.size)
            if self._masks_the_tree():
                self.route_reason = f"each distinct token of a pass is read once, by a mask: {reason}"
            else:
                self.route, self.route_reason = "batch", reason
            unusual = try_batch(self._batch, reader)  # refuses a model that sees later tokens
            if self.route == "batch":
                self.route_reason += unusual + try_starts(self._batch, SharedStarts(reader, self.size), reader)
                self._limit(fixed_choice(reader, self.size))
        elif reader.gives_parts and sum(weight.numel() for weight in model.parameters()) < SMALL_MODEL:
            self.pack_tokens = self.size.most_tokens = pack_tokens * LARGER_IN_PARTS

    def _limit(self, tokens: int | None) -> None:
        if tokens is not None:
            self.context = tokens if self.context is None else min(self.context, tokens)
            self.route_reason += f"; beyond {tokens} tokens what else is read decides ties of its choice of tokens"

    def _masks_the_tree(self) -> bool:
        """Whether the model takes the tree as a mask; if not by itself, then in its layers."""
        places = self._reader.positions
        for masks_layers in (False, True) if places.told == "argument" else (False,):
            places.masks_layers = masks_layers
            if not why_not_tree(self._tree, self._batch, self._reader, self.size):
                return True
        places.masks_layers = False
        return False

    @property
    def tokens_computed(self) -> int:
        """Tokens the model has read so far, trials included."""
        return sum(lane._reader.tokens_computed for lane in (self, *(self._beside or ())))

    @property
    def lanes(self) -> tuple[SequenceScorer, ...]:
        """As in `backends.local.scoring.SupportsLanes`: two, if the tree keeps its state.

        On a CPU each has a model object of its own. On a GPU they take turns with one model: while it computes for
        one, the other makes its answers and its next pass.
        """
        if self._beside is None:
            self._beside = self._make_beside()
        return (self, *self._beside)

    def _make_beside(self) -> tuple[SequenceScorer, ...]:
        # The parts of a divided model take the same passes in the same order, which threads would not keep.
        if self.route != "tree" or not isinstance(self._tree, TreeRoute) or is_divided():
            return ()
        reader = self._in_turns() if self._takes_turns else self._at_the_same_time()
        if reader is None:
            return ()
        second = copy.copy(self)
        second._reader, second._beside = reader, ()
        second.size = PassSize(self.size.most_tokens, self.size.most_rows, str(reader.device))
        second._tree, second._batch = TreeRoute(reader, second.size), BatchRoute(reader, second.size)
        return (second,)

    @property
    def _takes_turns(self) -> bool:
        return str(self._reader.device).startswith("cuda")

    def _in_turns(self) -> LogitReader | None:
        if self._tree.longest is not None:  # its long texts take another attention: one model has one at a time
            return None
        reader, count = self._reader.beside(), trial_vocabulary(self._reader)
        try:
            return reader if agree(partial(_all_logits, self._reader), partial(_all_logits, reader), count) else None
        except Exception:  # foreign code
            return None

    def _at_the_same_time(self) -> LogitReader | None:
        twin = make_twin(self._reader.model) if self._threads > 1 else None
        return None if twin is None else self._reader.of(twin)

    def side_by_side(self, work: Callable[[Scorer], None], start: tuple[int, ...]) -> None:
        """As in `backends.local.scoring.SupportsLanes`; on a CPU each lane computes with its share of the threads."""
        if len(start) >= LONG_START:
            self._read_for_all(start)
        share = self._threads if self._takes_turns else max(1, self._threads // len(self.lanes))

        def compute(lane: Scorer) -> None:
            torch.set_num_threads(share)
            work(lane)

        try:
            with contextlib.ExitStack() as attention:
                for lane in self.lanes:  # before any of them computes: they may share their model
                    attention.enter_context(lane._reader.attention(ATTENTION))
                in_threads(self.lanes, compute)
        finally:
            torch.set_num_threads(self._threads)

    def _read_for_all(self, start: tuple[int, ...]) -> None:
        try:
            self.logprobs([Path(start, len(start) - 1)])
        except Exception:  # foreign code: the texts that begin so will say why
            self.forget()
        for tree in (lane._tree for lane in self.lanes[1:]):
            if isinstance(self._tree, TreeRoute) and isinstance(tree, TreeRoute):
                tree.take_over(self._tree)

    def logprobs(self, paths: Sequence[Path]) -> list[Value]:
        """For each path the log-probabilities (nats) of its scored tokens, then of its token set.

        A path that does not fit in memory even one token at a time gets an error instead.
        """
        return self.logprobs_as_known(paths, None)

    def logprobs_as_known(self, paths: Sequence[Path], on_known: OnKnown | None) -> list[Value]:
        """As in `backends.local.scoring.SupportsEarlyValues`. The tree alone knows some before others."""
        if self.route == "batch":
            return self._by(self._batch, paths)
        longest = self._tree.longest
        if longest is None or all(len(path.computed) <= longest for path in paths):
            return self._by(self._tree, paths, on_known)
        short = [len(path.computed) <= longest for path in paths]
        by_tree = iter(self._by(self._tree, [*itertools.compress(paths, short)]))
        with self._reader.attention(self._reader.own_attention):  # a lane has set the tree's
            by_rows = iter(self._by(self._batch, [path for path in paths if len(path.computed) > longest]))
        return [next(by_tree if is_short else by_rows) for is_short in short]

    def _by(
        self,
        route: TreeRoute | MaskedTreeRoute | BatchRoute,
        paths: Sequence[Path],
        on_known: OnKnown | None = None,
    ) -> list[Value]:
        trie = Trie(paths, route.kept)

        def tell(answers: npt.NDArray[np.float64], first: int, last: int) -> None:
            if on_known is not None:
                for places, values in trie.ended(answers, first, last):
                    on_known(places, values)

        if isinstance(route, TreeRoute) and on_known is not None:
            answers, failed = route.logprobs(trie, tell)
        else:
            answers, failed = route.logprobs(trie)
        if not failed.any():
            return [*trie.share_out(answers)]
        return [_too_large() if failed[asks].any() else answers[asks] for asks in trie.asks_of]

    def forget(self) -> None:
        """Drop the state kept from the last call."""
        for lane in (self, *(self._beside or ())):
            lane._tree.forget()
            lane._batch.forget()


def _all_logits(reader: LogitReader, ids: torch.Tensor) -> torch.Tensor:
    ids = ids.to(reader.device)
    return reader.logits(ids, None, None, torch.arange(ids.shape[1], device=ids.device))


def _too_large() -> BackendError:
    return BackendError(
        "out_of_memory",
        "the text does not fit in memory even one token at a time",
        hint="use a smaller dtype or model, or shorten the prompt",
    )
