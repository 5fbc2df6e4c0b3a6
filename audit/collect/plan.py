"""From items to the requests that are still to be asked, lazily.

A plan is never held as a whole: items are made, keyed, looked up in the store and handed on in
chunks, so that a hundred thousand of them take the memory of a few hundred.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from audit.collect.work import CHARACTERS_A_TOKEN
from audit.store import Store, answer_keys, canonical_json, to_bytes
from backends.base import Backend, ClassifyRequest, Prompt, Request, ScoreRequest, count_tokens, request_cost
from backends.errors import ConfigError
from suites.base import Factor, Item

ItemsFactory = Callable[[], Iterator[Item]]

CHUNK = 256
MOST_HELD = 8  # items held for each that is wanted, while a sample is chosen
TOKEN_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """What is still to be asked for one item, with one key for each of its answers."""

    item_id: str
    request: Request
    keys: tuple[str, ...]
    work: int = 0  # as in `Plan.work`


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of the plan: ``items`` were looked at, ``len(requests)`` of them need asking.

    ``cached_work`` is that of the others.
    """

    requests: tuple[PlannedRequest, ...]
    items: int
    cached_work: int

    @property
    def cached(self) -> int:
        """Items whose answers were all in the store."""
        return self.items - len(self.requests)


@dataclass(frozen=True, slots=True)
class Plan:
    """All items of one model.

    Attributes
    ----------
    model : str
        Display name; no key depends on it.
    fingerprint_id : str
        Whose answers count.
    items : callable
        Makes the items anew each time it is called, the same ones in the same order.
    total : int or None
        How many items there are, where it is known; for progress only.
    work : sequence of int
        How much work each item is, in their order, for the time left; empty where all are alike.
    """

    model: str
    fingerprint_id: str
    items: ItemsFactory
    total: int | None = None
    work: Sequence[int] = ()

    def chunks(self, store: Store, size: int = CHUNK) -> Iterator[Chunk]:
        """What is missing in the store, chunk by chunk. Blocks while it reads: call it off the loop."""
        work = iter(self.work)
        for keyed in self._keyed(size):
            known = store.answers.answered_keys(key for _, keys in keyed for key in keys)
            missing: list[PlannedRequest] = []
            cached_work = 0
            for item, keys in keyed:
                its_work = next(work, 0)  # however few are told, every item is planned
                planned = _missing(item, keys, known, its_work)
                if planned is None:
                    cached_work += its_work
                else:
                    missing.append(planned)
            yield Chunk(tuple(missing), len(keyed), cached_work)

    def _keyed(self, size: int) -> Iterator[list[tuple[Item, tuple[str, ...]]]]:
        items = self.items()
        while some := list(itertools.islice(items, size)):
            yield [(item, answer_keys(item.request, self.fingerprint_id)) for item in some]


def _missing(item: Item, keys: tuple[str, ...], known: set[str], work: int) -> PlannedRequest | None:
    """The part of an item's request that is not answered yet, or None."""
    if known.isdisjoint(keys):
        return PlannedRequest(item.id, item.request, keys, work)
    if known.issuperset(keys):
        return None
    assert isinstance(item.request, ScoreRequest)  # only these have more than one key
    left = [(c, k) for c, k in zip(item.request.continuations, keys, strict=True) if k not in known]
    return PlannedRequest(
        item.id, replace(item.request, continuations=tuple(c for c, _ in left)), tuple(k for _, k in left), work
    )


# -- a balanced sample -------------------------------------------------------------------------


def limit_items(
    items: ItemsFactory, strata: Sequence[str], limit: int, seed: int, together: Sequence[str] = ()
) -> ItemsFactory:
    """A balanced sample of ``limit`` items, the same for every model.

    Parameters
    ----------
    items : callable
        Makes all items, in their order.
    strata : sequence of str
        Factors: each combination of their levels gets the same number of items, as far as it
        has that many; what is over goes to combinations drawn by ``seed``.
    limit : int
        How many items, at least 1. All of them when there are no more than that.
    seed : int
        Which items: they are ranked by a hash of ``seed`` and their identity, so that the choice
        depends on nothing else.
    together : sequence of str
        Factors whose equal values name one set of items that is kept or dropped as a whole. The
        sample then has as many whole sets as fit into ``limit``.

    Returns
    -------
    callable
        Gives the sampled items, in their original order. All items are walked through now, twice where the
        sample is a small part of them, and the sample is kept: it is gone through many times, and making it
        anew would make all items anew.

    Raises
    ------
    ConfigError
        ``limit`` is below 1, or smaller than one set of ``together``.
    """
    if limit < 1:
        raise ConfigError("limit", limit, "is not a number of items", "Give at least 1, or leave it out for all")
    strata, together = tuple(strata), tuple(together)
    sizes: dict[int, int] = {}
    stratum_of: dict[int, tuple[str, ...]] = {}
    units: list[int] = []
    held: list[Item] | None = []
    for item in items():
        if held is not None:
            held.append(item)
            if len(held) > MOST_HELD * limit:
                held = None  # few of them are wanted: those are made anew
        unit = _rank(item, together, seed)
        units.append(unit)
        sizes[unit] = sizes.get(unit, 0) + 1
        levels = _levels(*[item.factors.get(f) for f in strata])
        seen = stratum_of.get(unit, ())
        if levels not in seen:
            stratum_of[unit] = tuple(sorted((*seen, levels)))
    chosen = _choose(sizes, stratum_of, limit, seed)
    sample = tuple(itertools.compress(items() if held is None else held, (unit in chosen for unit in units)))
    return lambda: iter(sample)


@functools.lru_cache(maxsize=4096, typed=True)  # True is not 1
def _levels(*levels: Factor) -> str:
    return canonical_json(levels)


def _rank(item: Item, together: tuple[str, ...], seed: int) -> int:
    if together:
        return _rank_of_levels(seed, *[item.factors.get(f) for f in together])
    return _hashed(seed, item.id)


@functools.lru_cache(maxsize=4096, typed=True)  # a set's items mostly follow each other
def _rank_of_levels(seed: int, *levels: Factor) -> int:
    return _hashed(seed, levels)


def _hashed(seed: int, identity: object) -> int:
    digest = hashlib.sha256(to_bytes(f"{seed}\n{canonical_json(identity)}")).digest()
    return int.from_bytes(digest[:16], "big")


def _choose(sizes: dict[int, int], stratum_of: dict[int, tuple[str, ...]], limit: int, seed: int) -> frozenset[int]:
    """Units in rounds: each round gives one more to every stratum, least served first, until none fits."""
    waiting: dict[tuple[str, ...], list[int]] = {}
    for unit in sorted(sizes, reverse=True):
        waiting.setdefault(stratum_of[unit], []).append(unit)
    order = sorted(waiting, key=lambda s: hashlib.sha256(to_bytes(f"{seed}\n{canonical_json(s)}")).digest())
    chosen: set[int] = set()
    left = limit
    while order:
        for stratum in list(order):
            units = waiting[stratum]
            if not units or sizes[units[-1]] > left:
                order.remove(stratum)
                continue
            unit = units.pop()
            chosen.add(unit)
            left -= sizes[unit]
    if sizes and not chosen:
        raise ConfigError(
            "limit", limit, f"is smaller than one set of items that belong together ({min(sizes.values())})", "Raise it"
        )
    return frozenset(chosen)


# -- a dry run ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would ask, counted without asking it.

    ``prompt_tokens`` belongs to the requests that are still to be asked, each prompt as often as it is
    sent; ``tokens_by`` says how it was got, since only a sample of the prompts is tokenised.
    ``generated_tokens`` takes each text at its longest.
    """

    model: str
    items: int
    cached: int
    requests: int
    answers: int
    answers_cached: int
    prompt_characters: int
    prompt_tokens: int
    generated_tokens: int
    tokens_by: str


def estimate(plan: Plan, store: Store, backend: Backend) -> Estimate:
    """Count what ``plan`` would ask of ``backend``. Loads no weights and asks nothing."""
    items = cached = requests = answers = answers_cached = characters = generated = 0
    draw = random.Random(0)
    sample: list[tuple[Prompt, int]] = []
    for keyed in plan._keyed(CHUNK):
        known = store.answers.answered_keys(key for _, keys in keyed for key in keys)
        for item, keys in keyed:
            items += 1
            answers_cached += len(known.intersection(keys))
            planned = _missing(item, keys, known, 0)
            if planned is None:
                cached += 1
                continue
            requests += 1
            answers += len(planned.keys)
            prompt = planned.request.text if isinstance(planned.request, ClassifyRequest) else planned.request.prompt
            cost = request_cost(backend, planned.request)
            characters += cost.times_sent * _length(prompt)
            generated += cost.times_sent * cost.generated_tokens
            if len(sample) < TOKEN_SAMPLE:  # reservoir sampling: each prompt is equally likely to be in it
                sample.append((prompt, cost.times_sent))
            elif (place := draw.randrange(requests)) < TOKEN_SAMPLE:
                sample[place] = prompt, cost.times_sent
    tokens, how = _tokens(backend, sample, characters, requests)
    return Estimate(plan.model, items, cached, requests, answers, answers_cached, characters, tokens, generated, how)


def _tokens(backend: Backend, sample: list[tuple[Prompt, int]], characters: int, requests: int) -> tuple[int, str]:
    counts = count_tokens(backend, [prompt for prompt, _ in sample]) if sample else []
    if counts is None:
        return round(characters / CHARACTERS_A_TOKEN), f"estimated: {CHARACTERS_A_TOKEN:g} characters a token"
    sent = sum(count * times for count, (_, times) in zip(counts, sample, strict=True))
    if len(sample) == requests:
        return sent, "counted"
    read = sum(times * _length(prompt) for prompt, times in sample)
    return round(sent * characters / max(read, 1)), f"estimated from {len(sample)} of {requests} prompts"


def _length(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(m.content) for m in prompt)
