"""Chooses a model's route by trying both on it once.

A model that supports the tree gives the same numbers on both routes. Route ``batch`` is tried too: a model that sees
later tokens is refused, and if batching changes its results, its rows are scored individually.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backends.errors import BackendError
from backends.local.generation import NoRoomError
from backends.local.trie import Path, Trie
from backends.transformers.context import context_length
from backends.transformers.memory import PassSize
from backends.transformers.precision import ROUNDING_OF_16_BITS, computes_in_float32
from backends.transformers.scoring.batch import BatchRoute
from backends.transformers.scoring.masked_tree import MaskedTreeRoute
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.tree import CHUNKED, TreeRoute
from backends.transformers.scoring.tree_attention import TreeRefusedError
from backends.transformers.weight_layout import in_float32

Floats = npt.NDArray[np.float64]

TREE_LAYERS = {"full_attention", "sliding_attention", CHUNKED}  # the kinds of layers that tree attention supports
TRIAL_TOKENS = 40  # maximum tokens of the sequences that try the batch
MORE_ROUNDING = 1.25  # how much farther than plain passes the tree may be from float32: they differ by chance
FEW_CHOSEN = 8  # tokens that attention by an index chooses in its trial
CHOICE_TEXTS, CHOICE_TOKENS = 6, 80  # how many texts it reads there, and their length


def why_not_tree(tree: TreeRoute | MaskedTreeRoute, batch: BatchRoute, reader: LogitReader, size: PassSize) -> str:
    """Why the tree cannot be used for this model, by comparing both routes on a small trie; empty if it can.

    Raises
    ------
    BackendError
        ``unsupported``, for a model that gives no logits for each token.
    NoRoomError
        If not even one token fits in memory beside the model.
    """
    if reader.positions.told is None:
        return "it cannot be told where a token stands"
    kinds = {str(kind) for kind in getattr(reader.config, "layer_types", None) or ()}
    if others := kinds - TREE_LAYERS:
        return f"it has layers of the kind {', '.join(sorted(others))}"
    if isinstance(tree, TreeRoute) and getattr(reader.config, "attention_chunk_size", None) is not None and not kinds:
        return "it attends within chunks"
    paths = _trial_paths(reader)
    if tree.longest is not None and any(len(path.computed) > tree.longest for path in paths):
        return f"a layer sees {tree.longest} tokens by a window of its own, too few for a trial"
    logprobs_alone(reader, paths[0].tokens)  # refuses a model whose logits have another shape
    plain, failed = batch.logprobs(Trie(paths))
    if failed.any():
        raise NoRoomError
    usual = size.most_tokens
    found = []
    try:
        for tokens in (7, usual):  # several packs, so that the state kept between them is tested too, and one
            size.most_tokens = tokens
            found.append(tree.logprobs(Trie(paths))[0])
            tree.forget()
    except (TreeRefusedError, TypeError, AttributeError, ValueError, LookupError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else f"{error}"
    finally:
        size.most_tokens = usual
        tree.forget()
    moved = float(np.max([np.abs(values - plain).mean() for values in found]))  # NaN if any is
    if moved < rounding(reader) or (isinstance(tree, TreeRoute) and _only_rounds(reader, size, paths, plain, found)):
        return ""
    return f"with the tree its log-probabilities change by {moved:.2g} nats"


def _only_rounds(reader: LogitReader, size: PassSize, paths: list[Path], plain: Floats, found: list[Floats]) -> bool:
    """Whether a tree that differs from plain passes in 16 bits is right, and rounds no more than they do.

    Some models round by more than tenths, which hides a mistake of that size. So the tree has to be right on a copy of
    the model in float32, and in 16 bits as near to the copy as the plain passes are.
    """
    copied = in_float32(reader.model)
    if copied is None:
        return False
    precise = reader.of(copied)
    if why_not_tree(TreeRoute(precise, size), BatchRoute(precise, size), precise, size):
        return False
    exact, failed = BatchRoute(precise, size).logprobs(Trie(paths))
    reader.tokens_computed += precise.tokens_computed
    most = MORE_ROUNDING * float(np.abs(plain - exact).mean())
    return not failed.any() and all(float(np.abs(values - exact).mean()) <= most for values in found)  # NaN is not


def _trial_paths(reader: LogitReader) -> list[Path]:
    """Branches of 1 to 9 tokens from several places of a stem, the shorter ones first in the order of tokens.

    Were the first the longest, a token's place among those of its path would be found at that number of the row, too.
    """
    random = np.random.default_rng(0)
    tokens = np.sort(random.integers(0, trial_vocabulary(reader), 9)).tolist()
    stem = tuple(random.integers(0, trial_vocabulary(reader), 5).tolist())
    ends = [(first, *random.integers(0, trial_vocabulary(reader), n).tolist()) for n, first in enumerate(tokens)]
    return [Path(stem + end, 1) for end in ends] + [Path(stem[:3] + ends[at], 3) for at in (4, 2)]


def try_batch(batch: BatchRoute, reader: LogitReader) -> str:
    """Find which rows may share a batch, by comparison with rows read alone. Returns the reason unless all may.

    Raises
    ------
    BackendError
        ``unsupported``, for a model that sees later tokens.
    NoRoomError
        If not even one token fits in memory beside the model.
    """
    room = min(context_length(reader.model.config)[0] or TRIAL_TOKENS, TRIAL_TOKENS)
    random = np.random.default_rng(1)
    stem, *ends, short = (
        tuple(random.integers(3, trial_vocabulary(reader), n).tolist())
        for n in (room // 2, room // 2, room // 2, room // 3)
    )
    # The first two have equal length, so that rounding affects both alike.
    lines = [stem + ends[0], stem + ends[1], short]
    alone = [logprobs_alone(reader, line) for line in lines]
    first, second = (values[: len(stem) - 1] for values in alone[:2])
    # Attention to the tokens of highest index may depend on how many follow, whatever they are.
    nothing_follows = logprobs_alone(reader, stem)
    moved, most = _moved_by_what_follows(reader, first, second, nothing_follows)
    if moved > most:
        raise BackendError(
            "unsupported",
            f"this model sees later tokens: what follows a text changes its log-probabilities by {moved:.2g} nats",
            hint="give a causal language model",
        )
    moved = _moved_together(batch, [lines[0], short], [alone[0], alone[2]])
    if not moved > rounding(reader):
        return ""
    batch.pads = False
    if not _moved_together(batch, lines[:2], alone[:2]) > rounding(reader):
        return (
            f"; padding changes its log-probabilities by {moved:.2g} nats, so only rows of equal length share a batch"
        )
    batch.together = False
    return f"; a row's log-probabilities change by {moved:.2g} nats beside others in a batch, so each is read alone"


def _moved_by_what_follows(reader: LogitReader, first: Floats, *others: Floats) -> tuple[float, float]:
    """By how much a text's log-probabilities differ where something else follows, and how much rounding explains."""
    if computes_in_float32(reader.model):
        return max(mean_abs_diff(first, other) for other in others), rounding(reader)
    # Not the mean: rounding may route a single token to another expert.
    return max(mean_abs_diff(first, other, np.median) for other in others), ROUNDING_OF_16_BITS


def fixed_choice(reader: LogitReader, size: PassSize) -> int | None:
    """How long a text may be for attention that chooses among its tokens by an index; None: as long as the model reads.

    Up to the number that is chosen, all are. Beyond it ties may go by what else is read, which a short trial would not
    meet: so it is tried with a choice of few. Ties are a matter of chance, so several texts are tried.
    """
    choosing = [m for m in reader.model.modules() if isinstance(getattr(m, "index_topk", None), int)]
    chosen = [int(module.index_topk) for module in choosing]
    widths = [_width(module) for module in choosing]
    most = min((count * width for count, width in zip(chosen, widths, strict=True)), default=0)
    if not choosing:
        return None
    try:
        for module, width in zip(choosing, widths, strict=True):
            module.index_topk = min(module.index_topk, max(1, FEW_CHOSEN // width))
        depends = bool(try_batch(BatchRoute(reader, size), reader)) or _depends_on_what_follows(reader)
    except BackendError:
        return most
    finally:
        for module, count in zip(choosing, chosen, strict=True):
            module.index_topk = count
    return most if depends else None


def _depends_on_what_follows(reader: LogitReader) -> bool:
    """Whether what follows a text changes its log-probabilities by more than rounding, in one of some texts."""
    room = min(context_length(reader.model.config)[0] or CHOICE_TOKENS, CHOICE_TOKENS)
    random = np.random.default_rng(2)
    for _ in range(CHOICE_TEXTS):
        line = tuple(random.integers(3, trial_vocabulary(reader), room).tolist())
        stem = line[: room * 3 // 4]
        moved, most = _moved_by_what_follows(
            reader, logprobs_alone(reader, stem), logprobs_alone(reader, line)[: len(stem) - 1]
        )
        if not moved <= most:  # NaN is not
            return True
    return False


def _width(module: Any) -> int:
    """How many tokens each of those that an index chooses stands for (DeepSeek V4 chooses among compressed ones)."""
    rate = getattr(module, "compress_rate", 1)
    return rate if isinstance(rate, int) else 1


def trial_vocabulary(reader: LogitReader) -> int:
    """Trial tokens are drawn from below this id."""
    return min(reader.vocabulary, 1000)


#: Tolerances in nats. Rounding: 1e-6 in float32, mostly hundredths in 16 bits. A wrong mask or position: tenths.
ROUNDING_OF_32, ROUNDING_OF_16 = 1e-4, 0.1


def rounding(reader: LogitReader) -> float:
    return ROUNDING_OF_32 if reader.model.dtype == torch.float32 else ROUNDING_OF_16


def logprobs_alone(reader: LogitReader, line: tuple[int, ...]) -> Floats:
    """Log-probabilities of all tokens of a sequence but the first."""
    ids = torch.tensor([line[:-1]], device=reader.device)
    places = torch.arange(len(line) - 1, device=reader.device)
    reader.tokens_computed += len(places)
    logits = reader.logits(ids, None, None, places)
    if logits.shape[:-1] != places.shape:
        raise BackendError(
            "unsupported",
            f"this model gives logits of shape {tuple(logits.shape)} for {len(places)} tokens",
            hint="use a server for this model",
        )
    return reader.log_probabilities(logits, np.arange(len(places)), np.array(line[1:]), [])


def _moved_together(batch: BatchRoute, lines: list[tuple[int, ...]], alone: list[Floats]) -> float:
    """By how much the sequences' log-probabilities change when they share a batch, in nats."""
    trie = Trie([Path(line, 1) for line in lines])
    answers, failed = batch.logprobs(trie)
    if failed.any():
        raise NoRoomError
    return max(mean_abs_diff(answers[asks], values) for asks, values in zip(trie.asks_of, alone, strict=True))


def mean_abs_diff(a: Floats, b: Floats, average: Callable[[Any], Any] = np.mean) -> float:
    """The average absolute difference of two sets of log-probabilities, without those that overflow."""
    distances = np.abs(a - b)
    distances = distances[np.isfinite(distances)]
    return float(average(distances)) if len(distances) else 0.0
