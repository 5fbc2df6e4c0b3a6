"""Score token paths on a transformers model.

Route ``tree`` reads each distinct token once. Route ``batch`` is for models that do not support the tree. The route
is chosen by trying the tree once on the loaded model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.local.trie import Path, Trie
from backends.transformers.context import context_length
from backends.transformers.memory import PassSize
from backends.transformers.scoring.batch import BatchRoute
from backends.transformers.scoring.masked_tree import MaskedTreeRoute
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.tree import TreeRoute
from backends.transformers.scoring.trials import fixed_choice, try_batch, why_not_tree

Value = npt.NDArray[np.float64] | BackendError

LOGIT_BYTES = 256 << 20  # maximum memory of one pack's logits, at 4 bytes each


class SequenceScorer:
    """Scores paths on one loaded model, and keeps the last path's state for the next call.

    Parameters
    ----------
    model : transformers causal language model, in eval mode
    beginning_with : callable
        Returns the token ids of a set, given its name.
    pack_tokens : int
        Maximum tokens of one forward pass.

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

    def __init__(self, model: Any, beginning_with: Callable[[Any], npt.NDArray[np.int64]], *, pack_tokens: int) -> None:
        self.context, _ = context_length(model.config)
        self.pack_tokens = pack_tokens
        self._reader = reader = LogitReader(model, beginning_with)
        self.vocabulary = reader.vocabulary
        rows = max(1, LOGIT_BYTES // (4 * reader.vocabulary))
        self.size = PassSize(pack_tokens, rows, str(reader.device))
        self._batch = BatchRoute(reader, self.size)
        self._tree: TreeRoute | MaskedTreeRoute = TreeRoute(reader, self.size)
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
                self.route_reason += unusual
                self._limit(fixed_choice(reader, self.size))

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
        return self._reader.tokens_computed

    def logprobs(self, paths: Sequence[Path]) -> list[Value]:
        """For each path the log-probabilities (nats) of its scored tokens, then of its token set.

        A path that does not fit in memory even one token at a time gets an error instead.
        """
        if self.route == "batch":
            return self._by(self._batch, paths)
        longest = self._tree.longest
        if longest is None or all(len(path.computed) <= longest for path in paths):
            return self._by(self._tree, paths)
        short = [len(path.computed) <= longest for path in paths]
        by_tree, by_rows = (
            iter(self._by(route, [path for path, is_short in zip(paths, short, strict=True) if is_short == of_tree]))
            for route, of_tree in ((self._tree, True), (self._batch, False))
        )
        return [next(by_tree if is_short else by_rows) for is_short in short]

    def _by(self, route: TreeRoute | MaskedTreeRoute | BatchRoute, paths: Sequence[Path]) -> list[Value]:
        trie = Trie(paths, route.kept)
        answers, failed = route.logprobs(trie)
        return [_too_large() if failed[asks].any() else answers[asks] for asks in trie.asks_of]

    def forget(self) -> None:
        """Drop the state kept from the last call."""
        self._tree.forget()


def _too_large() -> BackendError:
    return BackendError(
        "out_of_memory",
        "the text does not fit in memory even one token at a time",
        hint="use a smaller dtype or model, or shorten the prompt",
    )
