"""Plans of items made by hand, and answers to them."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from audit.collect.plan import Plan, Question
from audit.store import Entry, keyed_request
from backends.base import ContinuationScore, ScoreRequest, ScoreResponse, TokenLogprob
from suites.base import Item

FP = "fp1-test"


def score(*continuations):
    return ScoreResponse(tuple(ContinuationScore.exact([TokenLogprob(c, 0, len(c), -1.0)]) for c in continuations))


def items(n, continuations=(" a", " b")):
    return lambda: (Item(f"i{i}", ScoreRequest(f"prompt {i}", continuations), {"t": i % 5}) for i in range(n))


async def answer(store, request):
    await store.answers.write([Entry(keyed_request(request, FP), score(*request.continuations))])


def plan_of(
    items: Callable[[], Iterable[Item]], fingerprint: str, total: int | None = None, work: Sequence[int] = ()
) -> Plan:
    """A plan that hands no answer on."""

    def questions() -> Iterator[Question]:
        for index, item in enumerate(items()):
            keyed = keyed_request(item.request, fingerprint)
            yield Question(item, keyed, place=(index,), work=work[index] if work else 0)

    return Plan(fingerprint, questions, total, sum(work))
