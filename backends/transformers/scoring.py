"""Value token paths on a transformers model, reading each distinct token once.

Route ``tree``: a pack of trie nodes is one forward pass over a row of tokens. Linear layers see a plain
row; the attention function sees the tree. It is registered with transformers' attention interface,
so that every model that uses the interface takes it, with its own scaling, sliding window and soft cap.
Within a pack, blocks of neighbouring nodes attend to the block itself and to the chain of its ancestors:
work and memory grow with the depth of the trie, not with the square of the pack.

Route ``batch``: right-padded rows through the model's own attention, for models that do not take the
tree. Which route a model takes is found by trying the tree on it once. A model that takes the batch is tried too:
one that sees later tokens is refused, and rows that move each other are read apart.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from transformers import AttentionInterface

from backends.errors import BackendError
from backends.local.trie import Pack, Path, Trie
from backends.transformers.context import context_length
from backends.transformers.memory import is_out_of_memory
from backends.transformers.precision import ROUNDING_OF_16_BITS, computes_in_float32

Route = Literal["tree", "batch"]
T = TypeVar("T")

ATTENTION = "token_tree"
TREE_LAYERS = {"full_attention", "sliding_attention"}  # the kinds of layers that the tree's attention does
BLOCK = 64  # queries that attend together: few enough to waste little, enough for a full matrix kernel
LOGIT_BYTES = 256 << 20  # most memory of one pack's logits, at 4 bytes each
GATHER_BYTES = 256 << 20  # most memory of the keys gathered, and of their scores, at a time; and of a mask kept
LEAST_EXPONENT = -80.0  # e^-80 is nothing beside 1; where exp underflows, it takes ten times as long
PASSES_BEFORE_GROWTH = 8  # how often less than usual must have fitted before more is tried: a miss costs a pass
TRIAL_TOKENS = 40  # of the lines that try the batch
ROWS_AT_A_TIME = 16  # rows of logits turned to float32 together: few enough for the cache


class _TreeRefusedError(Exception):
    """The model asks the attention function for something it does not do."""


class _NoRoomError(Exception):
    """A forward pass does not fit in memory."""


@dataclass
class _TreePass:
    """What the attention function needs in one forward pass over a pack.

    Attributes
    ----------
    index : (blocks, L) long tensor
        Keys of each block, as places in [chain, pack]; padded with 0.
    allowed : (blocks, BLOCK, L) bool tensor
    query_depth : (blocks, BLOCK), key_depth : (blocks, L) long tensors
    past, present : layer → (keys, values), each (key heads, tokens, head size)
        Of the chain, and of [chain, pack].
    """

    index: torch.Tensor
    allowed: torch.Tensor
    query_depth: torch.Tensor
    key_depth: torch.Tensor
    past: dict[int, tuple[torch.Tensor, torch.Tensor]]
    present: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    windows: set[int | None] = field(default_factory=set)
    _masks: dict[tuple[int | None, int, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, groups: int, dtype: torch.dtype, part: slice) -> torch.Tensor:
        """(blocks of the part, 1, groups * BLOCK, L) to be added to the attention scores."""
        if self.allowed.numel() * groups * dtype.itemsize > GATHER_BYTES:
            return self._make_mask(window, groups, dtype, part)
        key = (window, groups, dtype)
        if key not in self._masks:  # all blocks' at once, for all layers
            self._masks[key] = self._make_mask(window, groups, dtype, slice(None))
        return self._masks[key][part]

    def _make_mask(self, window: int | None, groups: int, dtype: torch.dtype, part: slice) -> torch.Tensor:
        allowed = self.allowed[part]
        if window is not None:
            near = self.query_depth[part, :, None] - self.key_depth[part, None, :] < window
            allowed = allowed & near
        mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        mask.masked_fill_(~allowed, torch.finfo(dtype).min)
        return mask.repeat(1, groups, 1)[:, None]


class _Current(threading.local):
    """The pass under way in this thread: backends on different devices compute at the same time."""

    tree: _TreePass | None = None


_current = _Current()


def _tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **other: Any,
) -> tuple[torch.Tensor, None]:
    """Attention over a tree. Shapes: query (1, H, T, D), key and value (1, K, T, D), result (1, T, H, D)."""
    tree = _current.tree
    layer = getattr(module, "layer_idx", None)
    for name in ("s_aux", "position_bias", "head_mask"):
        if other.get(name) is not None:
            raise _TreeRefusedError(f"its attention uses {name}")
    if tree is None or layer is None or layer in tree.present or not getattr(module, "is_causal", True):
        raise _TreeRefusedError("its attention layers are not plain causal ones")
    tree.windows.add(sliding_window)
    _, heads, tokens, size = query.shape
    key_heads = key.shape[1]
    groups = heads // key_heads
    keys, values = key[0], value[0]
    if layer in tree.past:
        keys = torch.cat([tree.past[layer][0], keys], 1)
        values = torch.cat([tree.past[layer][1], values], 1)
    tree.present[layer] = (keys, values)

    blocks, length = tree.index.shape
    scale = size**-0.5 if scaling is None else scaling
    padded = functional.pad(query[0], (0, 0, 0, blocks * BLOCK - tokens))
    # Heads that share a key head become further queries of it: (blocks, K, groups * BLOCK, D).
    queries = padded.view(key_heads, groups, blocks, BLOCK, size).permute(2, 0, 1, 3, 4)
    queries = queries.reshape(blocks, key_heads, groups * BLOCK, size)
    # Keys and values of a block, and its scores: in float32 and, while they are added up, in float64.
    block_bytes = length * (2 * key_heads * size * keys.element_size() + 12 * heads * BLOCK)
    step = max(1, GATHER_BYTES // block_bytes)
    parts = []
    for low in range(0, blocks, step):
        part = slice(low, low + step)
        index = tree.index[part]
        k, v = (
            x.index_select(1, index.reshape(-1)).view(key_heads, len(index), length, -1).transpose(0, 1)
            for x in (keys, values)
        )
        mask = tree.mask(sliding_window, groups, query.dtype, part)
        parts.append(_attend(queries[part], k, v, mask, scale, softcap))
    out = parts[0] if len(parts) == 1 else torch.cat(parts)
    out = out.view(blocks, key_heads, groups, BLOCK, -1).permute(0, 3, 1, 2, 4)
    return out.reshape(1, blocks * BLOCK, heads, -1)[:, :tokens], None


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float, softcap: float | None
) -> torch.Tensor:
    exact = sums_exactly(q)
    if softcap is None and not exact:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(scale)
    if softcap is not None:
        scores.div_(softcap).tanh_().mul_(softcap)
    scores.add_(mask)
    if not exact:
        return functional.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
    # Fused kernels add up a row in an order that depends on where its keys stand, so on what else was asked:
    # their last bits grow to 4e-5 nats. Here masked keys add less than any rounding, and the sum is in float64.
    scores.sub_(scores.amax(-1, keepdim=True)).clamp_(min=LEAST_EXPONENT).exp_()
    return torch.matmul(scores, v).div_(scores.sum(-1, keepdim=True, dtype=torch.float64).float())


def sums_exactly(q: torch.Tensor) -> bool:
    """Whether attention over these queries takes the time to be the same whatever else was asked."""
    return bool(q.dtype == torch.float32 and q.device.type == "cpu")


AttentionInterface.register(ATTENTION, _tree_attention)


class SequenceScorer:
    """Values paths on one loaded model, and keeps the last path's state for the next call.

    Parameters
    ----------
    model : transformers causal language model, in eval mode
    beginning_with : callable
        Token ids of a set, by its name.
    pack_tokens : int
        Most tokens of one forward pass.

    Attributes
    ----------
    halvings : int
        How often the size of a pass is halved now, because memory ran out.
    route : "tree" or "batch"
    route_reason : str
        Why, for people.
    tokens_computed : int
        Tokens the model has read so far, check of the route included.

    Raises
    ------
    BackendError
        ``unsupported``, for a model that sees later tokens.
    """

    def __init__(self, model: Any, beginning_with: Callable[[Any], npt.NDArray[np.int64]], *, pack_tokens: int) -> None:
        self._model, self._beginning_with = model, beginning_with
        self.pack_tokens = pack_tokens
        self.tokens_computed = 0
        self._device = model.device
        self._head = model.get_output_embeddings()
        vocabulary = model.config.get_text_config().vocab_size
        self._rows: int = max(1, LOGIT_BYTES // (4 * vocabulary))
        self.halvings = self._halvings_that_worked = self._passes = 0
        self._kept: tuple[int, ...] = ()
        self._past: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self._own_attention = model.config._attn_implementation
        self.route: Route = "batch"
        self._padded = self._together = True
        self.route_reason = self._try_tree(min(vocabulary, 1000))
        if self.route == "batch":
            self.route_reason += self._try_batch(min(vocabulary, 1000))

    def value(self, paths: Sequence[Path]) -> list[npt.NDArray[np.float64] | BackendError]:
        """For each path the log-probabilities (nats) of its scored tokens, then of its set.

        A path that does not fit in memory, even one token at a time, has an error in their place.
        """
        trie = Trie(paths, self._kept if self.route == "tree" else ())
        answers, failed = self._value_tree(trie) if self.route == "tree" else self._value_batch(trie)
        return [_too_large() if failed[asks].any() else answers[asks] for asks in trie.asks_of]

    def forget(self) -> None:
        """Drop the state kept from the last call."""
        self._kept, self._past = (), {}

    # -- route "tree" ---------------------------------------------------------------------------

    def _value_tree(self, trie: Trie) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """All answers, and which of them there is no memory for."""
        answers = np.full(len(trie.ask_nodes), np.nan)
        failed = np.zeros(len(answers), dtype=bool)
        start = trie.reusable(self._kept)
        past = {layer: (k[:, :start], v[:, :start]) for layer, (k, v) in self._past.items()}
        chain = list(range(start))
        if start < len(trie):
            wanted = trie.ancestors(start)
            past, chain = _cut(past, chain, wanted), wanted
        self.forget()
        with self._attention(ATTENTION):
            while start < len(trie):
                pack = trie.pack(start, nodes=self._most_tokens, rows=self._most_rows)
                try:
                    past, chain = self._within_memory(partial(self._forward_pack, trie, pack, chain, past, answers))
                    start = pack.stop
                except _NoRoomError:
                    tokens = pack.stop - pack.start
                    if tokens > 1:
                        while self._most_tokens >= tokens:
                            self.halvings += 1
                        continue
                    # What comes after this token fits even less. The next node goes on from a start of the chain.
                    self.halvings = self._halvings_that_worked
                    stop = trie.after(start)
                    failed[np.searchsorted(trie.ask_nodes, start) : np.searchsorted(trie.ask_nodes, stop)] = True
                    line = trie.ancestors(stop) if stop < len(trie) else chain
                    past, chain, start = _cut(past, chain, line), line, stop
        self._kept = tuple(trie.tokens[chain].tolist())
        self._past = past
        return answers, failed

    def _forward_pack(
        self,
        trie: Trie,
        pack: Pack,
        chain: list[int],
        past: dict[int, tuple[torch.Tensor, torch.Tensor]],
        answers: npt.NDArray[np.float64],
    ) -> tuple[dict[int, tuple[torch.Tensor, torch.Tensor]], list[int]]:
        """Compute a pack and fill in its answers; returns the chain that the next one needs, keys and values first."""
        tokens = torch.from_numpy(trie.tokens[pack.start : pack.stop]).to(self._device)
        depths = torch.from_numpy(trie.depths[pack.start : pack.stop]).to(self._device)
        rows, row_of_ask = np.unique(trie.ask_nodes[pack.first_ask : pack.last_ask], return_inverse=True)
        places = torch.from_numpy(rows - pack.start).to(self._device)
        tree = _tree_pass(trie, pack, len(chain), past, self._device)
        _current.tree = tree
        try:
            logits = self._forward(tokens[None], depths[None], None, places)
        finally:
            _current.tree = None
        config = self._model.config.get_text_config()
        if len(tree.present) != config.num_hidden_layers:
            seen = f"{len(tree.present)} of its {config.num_hidden_layers} layers"
            raise _TreeRefusedError(f"{seen} attend through transformers' attention interface")
        window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
        if window is not None and window not in tree.windows:
            raise _TreeRefusedError("its sliding window does not reach the attention function")
        self.tokens_computed += len(tokens)
        targets = trie.ask_targets[pack.first_ask : pack.last_ask]
        answers[pack.first_ask : pack.last_ask] = self._log_probabilities(logits, row_of_ask, targets, trie.sets)
        held = chain + list(range(pack.start, pack.stop))
        wanted = trie.ancestors(pack.stop) if pack.stop < len(trie) else [*trie.ancestors(pack.stop - 1), pack.stop - 1]
        return _cut(tree.present, held, wanted), wanted

    # -- route "batch" --------------------------------------------------------------------------

    def _value_batch(self, trie: Trie) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """All answers, and which of them there is no memory for."""
        answers = np.full(len(trie.ask_nodes), np.nan)
        failed = np.zeros(len(answers), dtype=bool)
        rows = _rows_of_leaves(trie)
        at = 0
        while at < len(rows):
            line, mine = rows[at]
            if len(mine) > self._most_rows:  # read once more rather than hold so many logits at once
                rows[at : at + 1] = [(line, mine[: self._most_rows]), (line, mine[self._most_rows :])]
                continue
            stop = at + 1
            asked = len(mine)
            while stop < len(rows):
                if not self._together or (not self._padded and len(rows[stop][0]) != len(line)):
                    break
                asked += len(rows[stop][1])
                # The first is the longest.
                if len(line) * (stop + 1 - at) > self._most_tokens or asked > self._most_rows:
                    break
                stop += 1
            try:
                self._within_memory(partial(self._forward_rows, trie, rows[at:stop], answers))
            except _NoRoomError:
                if stop - at > 1:
                    while self._most_tokens >= len(line) * (stop - at):
                        self.halvings += 1
                    continue
                if len(mine) > 1:
                    while self._most_rows >= len(mine):
                        self.halvings += 1
                    continue
                self.halvings = self._halvings_that_worked
                failed[np.isin(trie.ask_nodes, mine)] = True
            at = stop
        return answers, failed

    def _forward_rows(
        self, trie: Trie, rows: list[tuple[list[int], list[int]]], answers: npt.NDArray[np.float64]
    ) -> None:
        length = max(len(line) for line, _ in rows)
        ids = torch.zeros((len(rows), length), dtype=torch.long)
        mask = torch.zeros((len(rows), length), dtype=torch.long)
        places, nodes = [], []
        for i, (line, asked) in enumerate(rows):
            ids[i, : len(line)] = torch.from_numpy(trie.tokens[line])
            mask[i, : len(line)] = 1
            places += [i * length + int(trie.depths[node]) for node in asked]
            nodes += asked
        logits = self._forward(
            ids.to(self._device),
            None,
            mask.to(self._device) if self._padded else None,
            torch.tensor(places, device=self._device),
        )
        self.tokens_computed += int(mask.sum())
        order = np.argsort(nodes)
        low = np.searchsorted(trie.ask_nodes, np.array(nodes)[order], "left")
        high = np.searchsorted(trie.ask_nodes, np.array(nodes)[order], "right")
        asks = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
        row_of_ask = np.repeat(order, high - low)
        answers[asks] = self._log_probabilities(logits, row_of_ask, trie.ask_targets[asks], trie.sets)

    # -- both -----------------------------------------------------------------------------------

    def _forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        places: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (rows, V) after the given places of the flattened batch, computed for these alone."""

        def select(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            hidden = arguments[0]  # (B, T, C)
            return (hidden.reshape(-1, hidden.shape[-1])[places][None], *arguments[1:])

        options: dict[str, Any] = {"use_cache": False}
        if positions is not None:
            options["position_ids"] = positions
        if mask is not None:
            options["attention_mask"] = mask
        handle = self._head.register_forward_pre_hook(select)
        try:
            with torch.inference_mode():
                logits: torch.Tensor = self._model(ids, **options).logits[0]
                return logits
        finally:
            handle.remove()

    def _log_probabilities(
        self,
        logits: torch.Tensor,
        row_of_ask: npt.NDArray[np.int64],
        targets: npt.NDArray[np.int64],
        sets: list[Hashable],
    ) -> npt.NDArray[np.float64]:
        """log-softmax at the targets, in float32 whatever the model's dtype."""
        if len(targets) == 0:
            return np.empty(0)
        with torch.inference_mode():
            total = torch.cat([part.float().logsumexp(-1) for part in logits.split(ROWS_AT_A_TIME)])
            rows = torch.from_numpy(row_of_ask).to(logits.device)
            ids = torch.from_numpy(np.maximum(targets, 0)).to(logits.device)
            values = logits[rows, ids].float()
            for i in np.flatnonzero(targets < 0):
                members = torch.from_numpy(self._beginning_with(sets[-1 - targets[i]])).to(logits.device)
                values[i] = logits[rows[i]].index_select(0, members).float().logsumexp(-1)
            # On the processor: MPS has no float64.
            logprobs: npt.NDArray[np.float64] = (values - total[rows]).cpu().double().numpy()
            return logprobs

    @contextlib.contextmanager
    def _attention(self, name: str) -> Iterator[None]:
        """The model with another attention, so that what else runs on it finds its own."""
        self._model.set_attn_implementation(name)
        try:
            yield
        finally:
            self._model.set_attn_implementation(self._own_attention)

    # -- memory ---------------------------------------------------------------------------------

    @property
    def _most_tokens(self) -> int:
        return max(1, self.pack_tokens >> self.halvings)

    @property
    def _most_rows(self) -> int:
        return max(1, self._rows >> self.halvings)

    def _within_memory(self, work: Callable[[], T]) -> T:
        """What one forward pass gives. After some that fitted, the next may be twice as large again.

        Raises
        ------
        _NoRoomError
            When memory runs out.
        """
        try:
            result = work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            self._halvings_that_worked = self.halvings
            self._passes += 1
            if self.halvings and self._passes >= PASSES_BEFORE_GROWTH:
                self.halvings, self._passes = self.halvings - 1, 0
            return result
        # The error is gone by now, and with it the tensors that its frames held.
        self._passes = 0
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        raise _NoRoomError

    # -- which route ----------------------------------------------------------------------------

    def _try_tree(self, vocabulary: int) -> str:
        """Set the route by comparing both on a small tree; returns the reason in words."""
        if not self._takes_positions:
            return "its forward pass takes no position_ids"
        config = self._model.config.get_text_config()
        if others := {str(kind) for kind in getattr(config, "layer_types", None) or ()} - TREE_LAYERS:
            return f"it has layers of the kind {', '.join(sorted(others))}"
        if getattr(config, "attention_chunk_size", None) is not None:
            return "it attends within chunks"
        random = np.random.default_rng(0)
        stem, *branches = (tuple(random.integers(0, vocabulary, n).tolist()) for n in (5, 4, 3, 5))
        paths = [Path(stem + b, 1) for b in branches] + [Path(stem[:3] + branches[0], 3)]
        plain, failed = self._value_batch(Trie(paths))
        if failed.any():
            raise torch.OutOfMemoryError("not one token fits beside the model")
        pack_tokens, self.pack_tokens = self.pack_tokens, 7  # so that the state kept between packs is tried too
        try:
            tree, _ = self._value_tree(Trie(paths))
        except (_TreeRefusedError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            return f"{error}"
        finally:
            self.pack_tokens = pack_tokens
            self.forget()
        apart = float(np.abs(tree - plain).mean())
        if not apart < self._rounding:
            return f"with the tree its log-probabilities move by {apart:.2g} nats"
        self.route = "tree"
        return "each distinct token is read once"

    @property
    def _rounding(self) -> float:
        """Nats. Rounding: 1e-6 in float32, some hundredths in 16 bits. A wrong mask or position: tenths and more."""
        return 1e-4 if self._model.dtype == torch.float32 else 0.1

    def _try_batch(self, vocabulary: int) -> str:
        """Find which rows may be read together, by rows read alone; returns it in words where it is not all."""
        config = self._model.config
        room = min(context_length(config)[0] or TRIAL_TOKENS, TRIAL_TOKENS)
        random = np.random.default_rng(1)
        stem, *ends, short = (
            tuple(random.integers(3, vocabulary, n).tolist()) for n in (room // 2, room // 2, room // 2, room // 3)
        )
        # Of one length: what rounding does is the same in both.
        lines = [stem + ends[0], stem + ends[1], short]
        alone = [self._value_alone(line) for line in lines]
        first, second = (values[: len(stem) - 1] for values in alone[:2])
        if computes_in_float32(self._model):
            moved, most = _mean_abs_diff(first, second), self._rounding
        else:  # not the mean: rounding may send a single token to another expert
            moved, most = _mean_abs_diff(first, second, np.median), ROUNDING_OF_16_BITS
        if moved > most:
            raise BackendError(
                "unsupported",
                f"this model sees later tokens: what follows a text moves its log-probabilities by {moved:.2g} nats",
                hint="give a causal language model",
            )
        moved = self._moved_together([lines[0], short], [alone[0], alone[2]])
        if not moved > self._rounding:
            return ""
        self._padded = False
        if not self._moved_together(lines[:2], alone[:2]) > self._rounding:
            return f"; padding moves its log-probabilities by {moved:.2g} nats, so only rows of one length go together"
        self._together = False
        return f"; rows move each other's log-probabilities by {moved:.2g} nats, so each is read alone"

    def _value_alone(self, line: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Log-probabilities of all tokens of a line but the first."""
        ids = torch.tensor([line[:-1]], device=self._device)
        places = torch.arange(len(line) - 1, device=self._device)
        self.tokens_computed += len(places)
        logits = self._forward(ids, None, None, places)
        if logits.shape[:-1] != places.shape:
            raise BackendError(
                "unsupported",
                f"this model gives logits of shape {tuple(logits.shape)} for {len(places)} tokens",
                hint="use a server for this model",
            )
        return self._log_probabilities(logits, np.arange(len(places)), np.array(line[1:]), [])

    def _moved_together(self, lines: list[tuple[int, ...]], alone: list[npt.NDArray[np.float64]]) -> float:
        """By how much the lines' log-probabilities change where they are read in one batch."""
        paths = [Path(line, 1) for line in lines]
        trie = Trie(paths)
        answers, failed = self._value_batch(trie)
        if failed.any():
            raise torch.OutOfMemoryError("not one token fits beside the model")
        return max(_mean_abs_diff(answers[asks], values) for asks, values in zip(trie.asks_of, alone, strict=True))


def _mean_abs_diff(
    some: npt.NDArray[np.float64], others: npt.NDArray[np.float64], average: Callable[[Any], Any] = np.mean
) -> float:
    """How far two sets of log-probabilities are apart on average, those left out that overflow."""
    distances = np.abs(some - others)
    distances = distances[np.isfinite(distances)]
    return float(average(distances)) if len(distances) else 0.0


def _too_large() -> BackendError:
    return BackendError(
        "out_of_memory",
        "one token at a time does not fit",
        hint="use a smaller dtype or model, or shorten the prompt",
    )


def _cut(
    state: dict[int, tuple[torch.Tensor, torch.Tensor]], held: list[int], wanted: list[int]
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of the wanted nodes, out of those of the held ones."""
    place = {node: i for i, node in enumerate(held)}
    index = torch.tensor([place[node] for node in wanted], dtype=torch.long)
    cut = {}
    for layer, (k, v) in state.items():
        at = index.to(k.device)
        cut[layer] = (k.index_select(1, at), v.index_select(1, at))
    return cut


def _tree_pass(
    trie: Trie,
    pack: Pack,
    chain: int,
    past: dict[int, tuple[torch.Tensor, torch.Tensor]],
    device: torch.device,
) -> _TreePass:
    """Which keys each block of queries sees.

    A block's keys are the ancestors of its first node, by depth, then its own nodes. A query's ancestors
    outside the block are the first of them; how many is the depth at which its line enters the block.
    """
    tokens = pack.stop - pack.start
    blocks = -(-tokens // BLOCK)
    lines = [trie.ancestors(pack.start + b * BLOCK) for b in range(blocks)]
    length = max(map(len, lines)) + min(BLOCK, tokens)
    index = np.zeros((blocks, length), dtype=np.int64)
    allowed = np.zeros((blocks, BLOCK, length), dtype=bool)
    key_depth = np.zeros((blocks, length), dtype=np.int64)
    query_depth = np.zeros((blocks, BLOCK), dtype=np.int64)
    parents, depths = trie.parents, trie.depths
    for b, line in enumerate(lines):
        low = pack.start + b * BLOCK
        high = min(low + BLOCK, pack.stop)
        above = len(line)
        # What a line has before the pack is a start of the chain, which is the line of the pack's first node.
        outside = [i if node < pack.start else chain + node - pack.start for i, node in enumerate(line)]
        index[b, :above] = outside
        index[b, above : above + high - low] = np.arange(chain + low - pack.start, chain + high - pack.start)
        key_depth[b, :above] = np.arange(above)
        key_depth[b, above : above + high - low] = depths[low:high]
        query_depth[b, : high - low] = depths[low:high]
        sees = allowed[b]
        for i in range(high - low):
            parent = int(parents[low + i])
            if parent >= low:
                sees[i] = sees[parent - low]
            else:
                sees[i, : depths[low + i]] = True
            sees[i, above + i] = True
        sees[high - low :, 0] = True  # padding attends to something, so that its softmax is defined

    def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return _TreePass(tensor(index), tensor(allowed), tensor(query_depth), tensor(key_depth), past)


def _rows_of_leaves(trie: Trie) -> list[tuple[list[int], list[int]]]:
    """For each leaf its line of nodes, and the asked nodes on it that no earlier leaf has; longest first."""
    asked = set(trie.ask_nodes.tolist())
    rows = []
    for node in range(len(trie)):
        if node + 1 == len(trie) or trie.depths[node + 1] <= trie.depths[node]:
            line = [*trie.ancestors(node), node]
            mine = [n for n in line if n in asked]
            asked.difference_update(mine)
            if mine:
                rows.append((line, mine))
    return sorted(rows, key=lambda row: -len(row[0]))
