"""Score token paths on a transformers model.

Route ``tree`` reads each distinct token once. Route ``rows`` is for models that do not take the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.local.scoring import Known
from backends.local.trie import Trie
from backends.transformers.context import alike_places, context_length
from backends.transformers.memory import PassSize, most_rows
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.rows import TIMES, RowRoute
from backends.transformers.scoring.tree import MASKED_TOKENS, TreeRoute
from backends.transformers.scoring.trial import agrees, logprobs_alone, support_of, sure_length

#: Weights. A smaller model's pass on a CPU takes twice the tokens: half of what it takes beside products is the same.
SMALL_MODEL = 10**9


class SequenceScorer:
    """Scores tries of paths on one loaded model.

    Parameters
    ----------
    model : transformers causal language model, in eval mode
    beginning_with : callable
        Returns the token ids of a set, given its name.
    pack_tokens : int
        Maximum tokens of one forward pass; twice as many for a small model on a CPU.

    Attributes
    ----------
    context : int or None
        Maximum tokens of one text; None: no limit.
    vocabulary : int
        Number of tokens that the model has a logit for.
    size : PassSize
        The current size of a forward pass.
    route : "tree" or "rows"
    route_reason : str
        Why this route, for reports.

    Raises
    ------
    BackendError
        ``unsupported``, for a model that sees later tokens, or gives no logits for each token.
    NoRoomError
        If not even one token fits in memory beside the model.
    """

    def __init__(self, model: Any, beginning_with: Callable[[Any], npt.NDArray[np.int64]], *, pack_tokens: int) -> None:
        self.context, _ = context_length(model.config)
        self._reader = reader = LogitReader(model, beginning_with)
        self.vocabulary = reader.vocabulary
        logprobs_alone(reader, (0, 1))  # refuses a model whose logits have another shape
        support = support_of(model)
        if support.sees_later:
            raise BackendError(
                "unsupported",
                "this model sees later tokens: what follows a text changes its log-probabilities "
                f"by {support.sees_later:.2g} nats",
                hint="give a causal language model",
            )
        device, kind = str(reader.device), reader.device.type
        if kind == "cpu" and sum(weight.numel() for weight in model.parameters()) < SMALL_MODEL:
            pack_tokens *= 2
        self.size = PassSize(pack_tokens * TIMES[kind], most_rows(self.vocabulary, device), device)
        rows = RowRoute(reader, self.size, pads=support.pads)
        self._by: TreeRoute | RowRoute = rows
        self.route: Literal["tree", "rows"] = "rows"
        self.route_reason = support.not_tree
        if not self.route_reason:
            most = min(alike_places(model.config) or pack_tokens, MASKED_TOKENS if support.masked else pack_tokens)
            size = PassSize(min(pack_tokens, most), self.size.most_rows, device)
            tree = TreeRoute(reader, size, masked=support.masked)
            self.route_reason = agrees(tree, rows, reader)
            if not self.route_reason:
                self.size, self._by, self.route = size, tree, "tree"
                self.route_reason = "each distinct token is read once" + (", by a mask" if support.masked else "")
        if self.route == "rows" and not support.pads:
            self.route_reason += "; each row is read alone"
        if (sure := sure_length(model)) is not None:
            self.context = sure if self.context is None else min(self.context, sure)
            self.route_reason += f"; beyond {sure} tokens what else is read decides ties of its choice of tokens"

    @property
    def tokens_computed(self) -> int:
        """Tokens the model has read so far, trials included."""
        return self._reader.tokens_computed

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        """As in `backends.local.scoring.Scorer`."""
        self.size.grow()
        return self._by.passes(trie)
