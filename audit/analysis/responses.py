"""A suite's items with the answers that are stored for them, follow-up questions included."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from audit.store import Store, answer_keys, join_answers
from backends.base import Answer
from backends.errors import BackendError
from suites.base import Item, Suite

_CHUNK = 512  # items whose answers are read together: bounds memory, whatever the suite's size


@dataclass(frozen=True, slots=True)
class ItemResponse:
    """An item, the keys of its answer, and the answer: None where none was ever given.

    ``root`` is the id of the suite's own item that a follow-up hangs on; for others their own id.
    """

    item: Item
    keys: tuple[str, ...]
    answer: Answer | None
    root: str


def item_responses(
    items: Callable[[], Iterator[Item]], suite: Suite, fingerprint_of: Callable[[str | None], str], store: Store
) -> Iterator[ItemResponse]:
    """Every item of a suite with its stored answer, and then the items that follow from answers.

    Parameters
    ----------
    items : callable
        The suite's items, limited or not.
    fingerprint_of : callable
        ``Item.scorer → fingerprint id``: the audited model's for None, else a scorer's.
    """
    source = items()
    while some := list(itertools.islice(source, _CHUNK)):
        chunk = [(item, item.id) for item in some]
        while chunk:
            found = _with_answers(chunk, fingerprint_of, store)
            yield from found
            chunk = [(follow, one.root) for one in found for follow in _follow_ups(suite, one)]


def has_follow_ups(suite: Suite) -> bool:
    """Whether the suite ever asks questions that depend on answers."""
    return type(suite).follow_ups is not Suite.follow_ups


def _follow_ups(suite: Suite, one: ItemResponse) -> Iterable[Item]:
    if one.answer is None or isinstance(one.answer, BackendError):
        return ()
    return suite.follow_ups(one.item, one.answer)


def _with_answers(
    items: list[tuple[Item, str]], fingerprint_of: Callable[[str | None], str], store: Store
) -> list[ItemResponse]:
    keys = [answer_keys(item.request, fingerprint_of(item.scorer)) for item, _ in items]
    stored = store.answers.read_many(itertools.chain.from_iterable(keys))
    return [
        ItemResponse(item, k, join_answers(item.request, k, stored), root)
        for (item, root), k in zip(items, keys, strict=True)
    ]
