"""Attention over a tree of tokens, registered with transformers' attention interface.

Every model that uses the interface can use it, with its own scaling, sliding window and soft cap. Linear layers see a
plain row of tokens; this function sees the tree. Within a pack, blocks of neighbouring nodes attend to the block
itself and to the chain of its ancestors: time and memory grow with the depth of the trie, not with the square of the
pack.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from transformers import AttentionInterface

from backends.local.trie import Pack, Trie

ATTENTION = "token_tree"
WHOLE = 16  # keys: a CPU's remainder takes longer than the rest, and CUDA's kernels want masks so aligned
GATHER_BYTES = 256 << 20  # maximum memory of gathered keys and their scores at a time, and of a cached mask
#: Queries that attend together: enough for a full matrix kernel, and for the gathering of long lines of ancestors.
BLOCK = 64
#: On a CPU: further sizes, and how many queries take as long as the gathering of the keys.
SIZES = (8, 16, 24, 32, 48)
GATHERING = 16
LEAST_EXPONENT = -80.0  # e^-80 is negligible next to 1, and exp takes ten times as long when it underflows

_Reach = tuple[int | None, int | None]  # a layer's sliding window, and its chunk

State = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""layer → (keys, values), each (key heads, tokens, head size)."""


_TENSORS = ("index", "queries", "slots", "allowed", "query_depth", "key_depth")


class TreeRefusedError(Exception):
    """The model requires something that the attention function does not support."""


@dataclass
class TreePass:
    """What the attention function needs in one forward pass over a pack.

    Attributes
    ----------
    index : (blocks, L) long tensor
        Keys of each block, as indices into [chain, pack]; padded with 0.
    queries : (blocks * queries of a block) long tensor
        The queries of all blocks, as indices into the pack; padded with 0.
    slots : (pack) long tensor
        The place of each token of the pack among ``queries``.
    allowed : (blocks, queries of a block, L) bool tensor
    query_depth : (blocks, queries of a block), key_depth : (blocks, L) long tensors
    past, present : State
        Keys and values of the chain, and of [chain, pack].
    chunks : dict
        Layers that attend within chunks of so many tokens alone.
    """

    index: torch.Tensor
    queries: torch.Tensor
    slots: torch.Tensor
    allowed: torch.Tensor
    query_depth: torch.Tensor
    key_depth: torch.Tensor
    past: State
    present: State = field(default_factory=dict)
    chunks: Mapping[int, int] = field(default_factory=dict)
    _masks: dict[tuple[_Reach, int, torch.dtype], torch.Tensor] = field(default_factory=dict)
    _elsewhere: dict[torch.device, TreePass] = field(default_factory=dict)

    def on(self, device: torch.device) -> TreePass:
        """The same pass for layers on ``device``: a model may be spread over several."""
        if self.index.device == device:
            return self
        if device not in self._elsewhere:
            moved = {name: getattr(self, name).to(device) for name in _TENSORS}
            self._elsewhere[device] = dataclasses.replace(self, **moved, _masks={}, _elsewhere={})
        return self._elsewhere[device]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make this the pass that the current thread's attention layers compute."""
        _current.tree = self
        try:
            yield
        finally:
            _current.tree = None

    def mask(self, reach: _Reach, groups: int, dtype: torch.dtype, part: slice) -> torch.Tensor:
        """Mask of shape (blocks in the part, queries of a block * groups, L), to be added to the scores."""
        if self.allowed.numel() * groups * dtype.itemsize > GATHER_BYTES:
            return self._make_mask(reach, groups, dtype, part)
        key = (reach, groups, dtype)
        if key not in self._masks:  # for all blocks at once, shared by all layers
            self._masks[key] = self._make_mask(reach, groups, dtype, slice(None))
        return self._masks[key][part]

    def _make_mask(self, reach: _Reach, groups: int, dtype: torch.dtype, part: slice) -> torch.Tensor:
        allowed = self.allowed[part]
        window, chunk = reach
        queries, keys = self.query_depth[part, :, None], self.key_depth[part, None, :]
        if window is not None:
            allowed = allowed & (queries - keys < window)
        if chunk is not None:
            allowed = allowed & (queries // chunk == keys // chunk)
        mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        mask.masked_fill_(~allowed, torch.finfo(dtype).min)
        return mask.repeat_interleave(groups, 1)


class _Current(threading.local):
    """The current pass of this thread: backends on different devices compute at the same time."""

    tree: TreePass | None = None


_current = _Current()


def _tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **other: Any,
) -> tuple[torch.Tensor, None]:
    """Attention over a tree. Shapes: query (1, H, T, D), key and value (1, K, T, D), result (1, T, H, D).

    ``s_aux`` (H,) are attention sinks: the score of a key in front that every query sees and that has no value.
    """
    tree = _current.tree
    layer = getattr(module, "layer_idx", None)
    for name in ("position_bias", "head_mask"):
        if other.get(name) is not None:
            raise TreeRefusedError(f"its attention uses {name}")
    if tree is None or layer is None or layer in tree.present or not getattr(module, "is_causal", True):
        raise TreeRefusedError("its attention layers are not plain causal ones")
    tree = tree.on(query.device)
    _, heads, _, size = query.shape
    key_heads = key.shape[1]
    groups = heads // key_heads
    keys, values = key[0], value[0]
    if layer in tree.past:
        keys = torch.cat([tree.past[layer][0], keys], 1)
        values = torch.cat([tree.past[layer][1], values], 1)
    tree.present[layer] = (keys, values)

    blocks, block, length = tree.allowed.shape
    scale = size**-0.5 if scaling is None else scaling
    exact = sums_exactly(query)
    dtype = torch.float32 if exact else query.dtype
    keys, values = keys.to(dtype), values.to(dtype)
    queries = _in_blocks(query[0], tree.queries, dtype, key_heads, blocks)
    sinks: torch.Tensor | None = other.get("s_aux")
    if sinks is not None:
        sinks = sinks.to(queries).view(key_heads, 1, groups, 1).repeat(1, 1, block, 1)
    # Keys and values of a block, and its scores, in float32 and (while they are summed) in float64.
    block_bytes = length * (2 * key_heads * size * keys.element_size() + 12 * heads * block)
    step = max(1, GATHER_BYTES // block_bytes)
    parts = []
    for low in range(0, blocks, step):
        part = slice(low, low + step)
        index = tree.index[part]
        k, v = (x.index_select(1, index.reshape(-1)).view(key_heads, len(index), length, -1) for x in (keys, values))
        mask = tree.mask((sliding_window, tree.chunks.get(layer)), groups, dtype, part)
        parts.append(_attend(queries[:, part], k, v, mask, scale, softcap, sinks, exact))
    out = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    out = out.view(key_heads, blocks * block, -1).index_select(1, tree.slots).transpose(0, 1)
    # Contiguous: some models take the heads together by a view.
    out = out.to(query.dtype, memory_format=torch.contiguous_format).contiguous()
    return out.view(1, len(tree.slots), heads, -1), None


def _in_blocks(
    query: torch.Tensor, places: torch.Tensor, dtype: torch.dtype, key_heads: int, blocks: int
) -> torch.Tensor:
    """Queries (H, T, D) as (K, blocks, block * groups, D): heads that share a key head become more queries of it."""
    heads, _, size = query.shape
    rows = query.transpose(0, 1).index_select(0, places).view(blocks, -1, key_heads, heads // key_heads, size)
    rows = rows.permute(2, 0, 1, 3, 4).to(dtype, memory_format=torch.contiguous_format)
    return rows.reshape(key_heads, blocks, -1, size)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
    exact: bool,
) -> torch.Tensor:
    """Shapes: q (K, blocks, R, D), k and v (K, blocks, L, D), mask (blocks, R, L), sinks (K, 1, R, 1)."""
    if softcap is None and sinks is None and not exact:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[None], scale=scale)
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(scale)
    if softcap is not None:
        scores.div_(softcap).tanh_().mul_(softcap)
    scores.add_(mask)
    if not exact:
        if sinks is not None:
            scores = torch.cat([scores, sinks.expand(-1, scores.shape[1], -1, -1)], -1)
        shares = functional.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
        return shares[..., : k.shape[-2]] @ v
    most = scores.amax(-1, keepdim=True)
    if sinks is not None:
        most = torch.maximum(most, sinks)
    # Fused kernels sum a row in an order that depends on the positions of its keys, hence on the rest of the batch:
    # the last bits grow to 4e-5 nats. Here masked keys add less than any rounding, and the sum is in float64.
    scores.sub_(most).clamp_(min=LEAST_EXPONENT).exp_()
    total = scores.sum(-1, keepdim=True, dtype=torch.float64)
    if sinks is not None:
        total = total + (sinks - most).double().exp_()
    return torch.matmul(scores, v).div_(total.to(scores.dtype))


def sums_exactly(q: torch.Tensor) -> bool:
    """Whether sums are made in float32, whatever else a batch holds: on a CPU, where fused kernels take more time."""
    return bool(q.itemsize <= 4 and q.device.type == "cpu")


AttentionInterface.register(ATTENTION, _tree_attention)


def make_tree_pass(
    trie: Trie,
    pack: Pack,
    chain: Sequence[int],
    past: State,
    to_device: Callable[[npt.NDArray[Any]], torch.Tensor] = torch.from_numpy,
    chunks: Mapping[int, int] | None = None,
    *,
    on_cpu: bool = True,
) -> TreePass:
    """Compute which keys each block of queries sees. ``chain``: the nodes of ``past``; ``chunks``: as in `TreePass`.

    A block's keys are the ancestors of its first node, by depth, then its own nodes. What sees a key are the nodes of
    its subtree, which are consecutive: the queries from the key itself (or the block's first) until its subtree ends.
    """
    depths = trie.depths[pack.start : pack.stop]
    starts = np.array(block_starts(depths, on_cpu=on_cpu))
    sizes = np.diff(np.array([*starts, len(depths)]))
    block = int(sizes.max())
    above = depths[starts]  # so many ancestors
    length = -(-(int(above.max()) + block) // WHOLE) * WHOLE
    place = np.arange(block)
    is_query = place < sizes[:, None]
    queries = np.where(is_query, starts[:, None] + place, 0)
    own = np.arange(length) - above[:, None]  # a key's place among the block's own
    is_own = (own >= 0) & (own < sizes[:, None])
    nodes = np.where(is_own, pack.start + starts[:, None] + own, 0)
    for line, low in zip(nodes, starts.tolist(), strict=True):
        ancestors = trie.ancestors(pack.start + low)
        line[: len(ancestors)] = ancestors
    is_key = is_own | (own < 0)
    # The part of a path before the pack is a prefix of the chain, which is the path to the pack's first node.
    index = np.where(nodes < pack.start, trie.depths[nodes], len(chain) + nodes - pack.start)
    seen_from = np.maximum(own, 0).astype(np.int32)
    seen_until = np.minimum(trie.ends[nodes] - (pack.start + starts[:, None]), sizes[:, None])
    seen_until = np.where(is_key, seen_until, 0).astype(np.int32)
    at = place.astype(np.int32)[:, None]
    allowed = (seen_from[:, None] <= at) & (at < seen_until[:, None])
    allowed[:, :, 0] |= ~is_query  # padding attends to something, so that its softmax is defined
    return TreePass(
        to_device(np.where(is_key, index, 0)),
        to_device(queries.reshape(-1)),
        to_device(np.flatnonzero(is_query)),
        to_device(allowed),
        to_device(np.where(is_query, depths[queries], 0)),
        to_device(np.where(is_key, trie.depths[nodes], 0)),
        past,
        chunks=chunks or {},
    )


def block_starts(depths: npt.NDArray[np.int64], *, on_cpu: bool = True) -> list[int]:
    """The first node of each block of a pack, given the depths of the pack's nodes in preorder.

    A block gathers the keys of its ancestors and its own, and each of its queries is multiplied with all of them. Best
    is one of whole branches: its ancestors are few, and it sees little that is not its own.
    """
    plain = list(range(0, len(depths), BLOCK))
    if not on_cpu:  # a GPU takes 64 in less time than fewer, and more
        return plain
    begins = np.full_like(depths, depths.max() + 1)  # the depths where a branch begins
    begins[1:] = np.where(depths[1:] <= depths[:-1], depths[1:], begins[1:])
    cuts = [plain, *(_cut_at_branches(depths, begins, size) for size in SIZES)]
    return min(cuts, key=lambda starts: _cost(depths, starts))


def _cut_at_branches(depths: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], most: int) -> list[int]:
    """Blocks of at most so many nodes, and of half of it at least: one may end before a branch nearer to the root."""
    starts = [0]
    while len(depths) - starts[-1] > most:
        least, last = starts[-1] + (most + 1) // 2, starts[-1] + most
        places = begins[least : last + 1].copy()
        places[-1] = depths[last]
        starts.append(last - int(places[::-1].argmin()))
    return starts


def _cost(depths: npt.NDArray[np.int64], starts: list[int]) -> int:
    """Time of a layer's attention, in the products of one query with one key; all blocks are padded to one size."""
    block = max(high - low for low, high in itertools.pairwise([*starts, len(depths)]))
    return len(starts) * (int(depths[starts].max()) + block) * (block + GATHERING)
