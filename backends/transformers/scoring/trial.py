"""What an architecture supports, shown on a tiny model of its config; and whether the loaded model agrees.

A mask or a position that is wrong moves the tiny model's numbers by tenths of a nat, rounding by millionths. The result
holds for all models of this class and shape of config, whatever their weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backends.errors import BackendError
from backends.local.generation import NoRoomError
from backends.local.scoring import logprobs
from backends.local.trie import Floats, Path
from backends.transformers.context import context_length
from backends.transformers.memory import PassSize
from backends.transformers.scoring.attention import TreeRefusedError
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.rows import RowRoute
from backends.transformers.scoring.tiny import tiny_config, tiny_model
from backends.transformers.scoring.tree import CHUNKED, TreeRoute

SAME = 1e-4  # nats, in float32
#: The kinds of layers that a tree may have. Those by an index are right up to `sure_length`.
TREE_LAYERS = {"full_attention", "sliding_attention", "indexed_attention", CHUNKED}
TRIAL_TOKENS = 40
TIMES_PADDING = 10  # how much more the tree may move a loaded model's numbers than padding does
#: Or by so many roundings of their own size: right trees of 3 to 30 layers moved them by 0.1 to 1.3, wrong ones by 11.
TIMES_ROUNDING = 5


@dataclass(frozen=True, slots=True)
class Support:
    """What an architecture supports.

    Attributes
    ----------
    not_tree : str
        Why its scores cannot be computed by the tree; empty if they can.
    masked : bool
        Whether they can by a mask alone.
    pads : bool
        Whether rows may share a pass, the shorter ones padded.
    sees_later : float
        By how many nats what follows a text changes its log-probabilities; 0 where it does not.
    """

    not_tree: str = ""
    masked: bool = False
    pads: bool = True
    sees_later: float = 0.0


_kept: dict[str, Support] = {}


def support_of(model: Any) -> Support:
    """What a loaded model's architecture supports, tried once in a process for each class and shape of config.

    Raises
    ------
    BackendError
        ``unsupported``, for a model without logits for each token.
    """
    try:
        key = f"{type(model)} {json.dumps(tiny_config(model.config).to_dict(), sort_keys=True, default=str)}"
        if key not in _kept:
            _kept[key] = _tried(tiny_model(model))
        return _kept[key]
    except BackendError:
        raise
    except Exception as error:  # any of hundreds of classes, with sizes that may not fit together
        if model.dtype == torch.float32 and next(model.parameters()).device.type == "cpu":
            return _tried(model)
        why = f"no small model of its kind can be made ({type(error).__name__})"
        return Support(why, pads=False)


def _tried(model: Any) -> Support:
    reader = LogitReader(model, lambda _: np.empty(0, dtype=np.int64))
    lines = _lines(reader)
    later = _later_tokens(reader, lines)
    if later > SAME:
        return Support(sees_later=later)
    alone = [logprobs_alone(reader, line) for line in lines]
    pads = not _moved_in_rows(reader, lines, alone) > SAME
    not_tree = _why_not_tree(reader)
    masked = not_tree != "" and not _why_not_tree(reader, masked=True)
    return Support("" if masked else not_tree, masked, pads)


def _why_not_tree(reader: LogitReader, *, masked: bool = False) -> str:
    """Why the tree cannot be used, by comparison with rows on a small trie; empty if it can."""
    if reader.positions.told is None:
        return "it cannot be told where a token stands"
    kinds = {str(kind) for kind in getattr(reader.config, "layer_types", None) or ()}
    if others := kinds - TREE_LAYERS:
        return f"it has layers of the kind {', '.join(sorted(others))}"
    paths = _branches(reader)
    rows = _flat(RowRoute(reader, _size(), pads=False), paths)
    moved = 0.0
    for tokens in (7, TRIAL_TOKENS * 10):  # several packs, so that what is kept between them is tried too, and one
        try:
            found = _flat(TreeRoute(reader, _size(tokens), masked=masked), paths)
        except (TreeRefusedError, TypeError, AttributeError, ValueError, LookupError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else f"{error}"
        moved = max(moved, largest(found - rows))
    return "" if moved <= SAME else f"with the tree its log-probabilities change by {moved:.2g} nats"


def agrees(tree: TreeRoute, rows: RowRoute, reader: LogitReader) -> str:
    """Why the tree cannot be used on the loaded model's own device and dtype; empty if it can.

    Its numbers may differ from a row's by ten times what padding moves, or what counts as the same,
    or by five roundings of their mean size.

    Raises
    ------
    NoRoomError
        If not even one token fits in memory beside the model.
    """
    paths = _branches(reader)
    line, other = paths[-1].tokens, paths[0].tokens
    alone = logprobs_alone(reader, line)
    beside = _values(logprobs(rows, [Path(other + other, 1), Path(line, 1)])) if rows.pads else [alone, alone]
    by_tree = _values(logprobs(tree, paths))[-1]
    rounding = torch.finfo(reader.model.dtype).eps * mean(alone)
    most = max(TIMES_PADDING * max(mean(beside[1] - alone), SAME), TIMES_ROUNDING * rounding)
    moved = mean(by_tree - alone[len(alone) - len(by_tree) :])
    return "" if moved <= most else f"with the tree its log-probabilities change by {moved:.2g} nats"


def _branches(reader: LogitReader) -> list[Path]:
    """Branches of 1 to 9 tokens from several places of a stem, the shorter ones first in the order of tokens.

    Were the first the longest, a token's place among those of its path would be found at that number of the row, too.
    """
    random, most = np.random.default_rng(0), _trial_vocabulary(reader)
    tokens = np.sort(random.integers(0, most, 9)).tolist()
    stem = tuple(random.integers(0, most, 5).tolist())
    ends = [(first, *random.integers(0, most, n).tolist()) for n, first in enumerate(tokens)]
    return [Path(stem + end, 1) for end in ends[:-1]] + [
        *(Path(stem[:3] + ends[at], 3) for at in (4, 2)),
        Path(stem + ends[-1], 1),
    ]


def _lines(reader: LogitReader) -> list[tuple[int, ...]]:
    """Two texts of equal length that begin alike, and a shorter one."""
    room = min(context_length(reader.model.config)[0] or TRIAL_TOKENS, TRIAL_TOKENS)
    random, most = np.random.default_rng(1), _trial_vocabulary(reader)
    parts = [tuple(random.integers(3, most, n).tolist()) for n in (room // 2, room // 2, room // 2, room // 3)]
    return [parts[0] + parts[1], parts[0] + parts[2], parts[3]]


def _later_tokens(reader: LogitReader, lines: list[tuple[int, ...]]) -> float:
    """By how much what follows a text changes its log-probabilities."""
    stem = lines[0][: len(lines[0]) // 2]
    first, *others = (logprobs_alone(reader, line)[: len(stem) - 1] for line in (*lines[:2], stem))
    return max(largest(first - other) for other in others)


def _moved_in_rows(reader: LogitReader, lines: list[tuple[int, ...]], alone: list[Floats]) -> float:
    """By how much texts' log-probabilities change when they share a pass."""
    found = _values(logprobs(RowRoute(reader, _size()), [Path(line, 1) for line in lines]))
    return max(largest(a - b) for a, b in zip(found, alone, strict=True))


def sure_length(model: Any) -> int | None:
    """Up to how many tokens attention by an index chooses all there are; None for models without it.

    Beyond that, what else is read may decide ties of its choice. Each may stand for several tokens (DeepSeek V4 chooses
    among compressed ones).
    """
    choices = [part for part in model.modules() if isinstance(getattr(part, "index_topk", None), int)]
    rates = [rate if isinstance(rate := getattr(part, "compress_rate", 1), int) else 1 for part in choices]
    return min((part.index_topk * rate for part, rate in zip(choices, rates, strict=True)), default=None)


def _size(tokens: int = TRIAL_TOKENS * 10) -> PassSize:
    return PassSize(tokens, tokens, "cpu")


def _trial_vocabulary(reader: LogitReader) -> int:
    """Trial tokens are drawn from below this id."""
    return min(reader.vocabulary, 1000)


def _flat(route: TreeRoute | RowRoute, paths: list[Path]) -> Floats:
    return np.concatenate(_values(logprobs(route, paths)))


def _values(found: list[Floats | BackendError]) -> list[Floats]:
    values = [value for value in found if not isinstance(value, BackendError)]
    if len(values) < len(found):
        raise NoRoomError
    return values


def logprobs_alone(reader: LogitReader, line: tuple[int, ...]) -> Floats:
    """Log-probabilities of all tokens of a sequence but the first, by a plain pass without a mask."""
    places = torch.arange(len(line) - 1, device=reader.device)
    reader.tokens_computed += len(places)
    with torch.inference_mode():
        logits = reader.logits(torch.tensor([line[:-1]], device=reader.device), None, None, places)
        if logits.shape[:-1] != places.shape:
            raise BackendError(
                "unsupported",
                f"this model gives logits of shape {tuple(logits.shape)} for {len(places)} tokens",
                hint="use a server for this model",
            )
        table = logits.float().log_softmax(-1)
        found: Floats = table[places, torch.tensor(line[1:], device=reader.device)].cpu().double().numpy()
        return found


def largest(numbers: Floats) -> float:
    """The largest size of numbers, without those that overflow."""
    return float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0))


def mean(numbers: Floats) -> float:
    """The mean size of numbers, without those that overflow."""
    finite = np.abs(numbers[np.isfinite(numbers)])
    return float(finite.sum() / max(1, len(finite)))
