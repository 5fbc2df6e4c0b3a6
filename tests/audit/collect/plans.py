"""Plans of items made by hand."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from audit.collect.plan import Plan, Question
from audit.store import keyed_request
from suites.base import Item


def plan_of(
    items: Callable[[], Iterable[Item]], fingerprint: str, total: int | None = None, work: Sequence[int] = ()
) -> Plan:
    """A plan that hands no answer on."""

    def questions() -> Iterator[Question]:
        for index, item in enumerate(items()):
            keyed = keyed_request(item.request, fingerprint)
            yield Question(item, keyed, place=(index,), work=work[index] if work else 0)

    return Plan(fingerprint, questions, total, sum(work))
