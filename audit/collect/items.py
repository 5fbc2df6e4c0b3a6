"""A suite's items, made once for a run, and an estimate of the work that each takes."""

from __future__ import annotations

import itertools
import pickle
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence

from backends.base import GenerateRequest, Request, ScoreRequest
from suites.base import Item

CHARACTERS_PER_TOKEN = 4
#: A generated token takes about as long as this number of prompt tokens, in a batch.
PROMPT_TOKENS_PER_GENERATED = 4

_PACK = 512  # items that are compressed together


class PackedItems(Sequence[Item]):
    """Items in their order, kept in a few per cent of their size.

    Every model of a run goes through the same items, and how many there are must be known before the
    first is asked. So a suite makes them once, and they are kept compressed: some 30 bytes per item.

    Parameters
    ----------
    items : iterable of Item
        Gone through once.

    Attributes
    ----------
    work : array of int
        What `estimate_work` says of each item.
    scored : bytearray
        1 for each item whose continuations are scored, else 0.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._packs: list[bytes] = []
        self._last: tuple[int, list[Item]] = -1, []  # the pack that was asked of last: mostly the next one is, too
        self.work, self.scored = array("L"), bytearray()
        source = iter(items)
        previous = ""
        while pack := list(itertools.islice(source, _PACK)):
            self.work.extend(estimate_work((item.request for item in pack), previous))
            self.scored.extend(isinstance(item.request, ScoreRequest) for item in pack)
            previous = _text(pack[-1].request)
            self._packs.append(zlib.compress(pickle.dumps(pack, pickle.HIGHEST_PROTOCOL), 1))

    def __len__(self) -> int:
        return len(self.work)

    def __iter__(self) -> Iterator[Item]:
        for pack in self._packs:
            yield from _unpack(pack)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = index // _PACK
        last = self._last
        if last[0] != number:
            last = self._last = number, _unpack(self._packs[number])
        return last[1][index % _PACK]


def _unpack(pack: bytes) -> list[Item]:
    items: list[Item] = pickle.loads(zlib.decompress(pack))  # made in this process, a moment ago
    return items


def estimate_work(requests: Iterable[Request], previous: str = "") -> Iterator[int]:
    """The work of each request for a local model, in characters that are read; at least 1.

    Prompts of one suite may differ tenfold in length. What a prompt shares with the one before it
    (``previous`` for the first) is read once, so only the rest counts. How many tokens will be generated
    is not known, so the most allowed is taken.
    """
    for request in requests:
        text = _text(request)
        match request:
            case ScoreRequest():
                answer = sum(map(len, request.continuations))
            case GenerateRequest():
                answer = request.sampling.max_tokens * PROMPT_TOKENS_PER_GENERATED * CHARACTERS_PER_TOKEN
            case _:
                answer = 0
        yield max(1, len(text) - shared_length(previous, text) + answer)
        previous = text


def _text(request: Request) -> str:
    prompt = request.prompt if isinstance(request, (ScoreRequest, GenerateRequest)) else request.text
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


def shared_length(a: str, b: str) -> int:
    """How many characters two texts have in common at their beginning."""
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
