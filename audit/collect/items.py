"""A suite's items, generated once per run, and an estimate of the work that each takes."""

from __future__ import annotations

import itertools
import pickle
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from audit.spool import Slot, Spool, mapped
from backends.base import GenerateRequest, Request, ScoreRequest
from suites.base import Item

CHARACTERS_PER_TOKEN = 4
#: In a batch, generating a token takes about as long as reading this many prompt tokens.
PROMPT_TOKENS_PER_GENERATED = 4

_PACK = 512  # items that are compressed together


class PackedItems(Sequence[Item]):
    """Items in order, compressed to a few per cent of their size.

    Every model of a run is asked the same items, and their number must be known before the first is asked. So a suite
    generates them once, and they are kept compressed, about 30 bytes per item, in a temporary file if they are many.

    Parameters
    ----------
    items : iterable of Item
        Iterated over once.
    of : int, optional
        How many items these were chosen from; as many as there are, if none was left out.

    Attributes
    ----------
    of : int
    work : sequence of int
        The result of `estimate_work` for each item.
    scored : sequence of int
        1 for each item whose continuations are scored, else 0.
    """

    def __init__(self, items: Iterable[Item], of: int | None = None) -> None:
        self._spool = Spool()
        self._packs: list[Slot] = []
        self._last: tuple[int, list[Item]] = -1, []  # the pack used last: the next item is mostly in it, too
        work, scored = array("L"), bytearray()
        source = iter(items)
        previous = ""
        while pack := list(itertools.islice(source, _PACK)):
            work.extend(estimate_work((item.request for item in pack), previous))
            scored.extend(isinstance(item.request, ScoreRequest) for item in pack)
            previous = prompt_text(pack[-1].request)
            self._packs.append(self._spool.add(zlib.compress(pickle.dumps(pack, pickle.HIGHEST_PROTOCOL), 1)))
        self.work, self.scored = mapped(np.array(work)).data, mapped(np.array(scored)).data
        self.of = len(self) if of is None else of

    def __len__(self) -> int:
        return len(self.work)

    def __iter__(self) -> Iterator[Item]:
        for pack in self._packs:
            yield from _unpack(self._spool.get(pack))

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = index // _PACK
        last = self._last
        if last[0] != number:
            last = self._last = number, _unpack(self._spool.get(self._packs[number]))
        return last[1][index % _PACK]


def _unpack(pack: bytes) -> list[Item]:
    items: list[Item] = pickle.loads(zlib.decompress(pack))  # safe to unpickle: pickled by this process
    return items


def estimate_work(requests: Iterable[Request], previous: str = "") -> Iterator[int]:
    """The work of each request for a local model, in characters to be read; at least 1.

    Prompts of one suite may differ tenfold in length. The beginning that a prompt shares with the one before it
    (``previous`` for the first) is read only once, so it does not count. The number of tokens that will be generated is
    unknown, so their limit is used.
    """
    for request in requests:
        text = prompt_text(request)
        match request:
            case ScoreRequest():
                answer = sum(map(len, request.continuations))
            case GenerateRequest():
                answer = request.sampling.max_tokens * PROMPT_TOKENS_PER_GENERATED * CHARACTERS_PER_TOKEN
            case _:
                answer = 0
        yield max(1, len(text) - shared_length(previous, text) + answer)
        previous = text


def prompt_text(request: Request) -> str:
    """A request's prompt as one text: messages are joined by newlines."""
    prompt = request.prompt if isinstance(request, (ScoreRequest, GenerateRequest)) else request.text
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


def shared_length(a: str, b: str) -> int:
    """The length of the longest common prefix of two texts."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] is shared, a[:high] is not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
