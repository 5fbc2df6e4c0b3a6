"""Whether several servers serve one model: each is asked the first one's canary, or its draws are compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from backends.errors import ERROR_KINDS, BackendError
from backends.http.replicas import ReplicaClient
from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe.report import ProbeReport
from backends.openai.probe.same_draws import (
    DrawnAnswers,
    differ,
    doubted,
    drawn_answers,
    draws_of_each,
    requests_of_draws,
)
from backends.openai.protocol.api import ServerApi
from backends.openai.response_ids import ModelChangedError

#: Whether a server gives a report's canary; the kinds of errors that are raised, not read as a no.
Repeats = Callable[[ProbeReport, Collection[str]], Awaitable[bool]]

_TOLD = ("auth", "quota", "not_found")
_OF_DRAWS = (
    "The servers are compared by {} drawn answers to each of 10 questions: another model is found, a slightly "
    "different one, such as another quantisation, probably not"
)
_HINT = "Audit it as a model of its own"


def compares_draws(capabilities: ServerCapabilities) -> bool:
    """Whether no log-probabilities of the answers that will be asked for can be compared."""
    route = capabilities.chat_route if capabilities.chat else capabilities.text_route
    return route in (None, "sampled")


class ReplicaProof:
    """Shows that all servers of a client serve the first one's model, and shows it again for one that was down.

    Parameters
    ----------
    api : callable
        The API as it is asked at the moment.
    repeats : callable
        Whether the server that requests are pinned to gives the canary of a report.
    """

    def __init__(self, client: ReplicaClient, api: Callable[[], ServerApi], repeats: Repeats) -> None:
        self._client, self._api, self._repeats = client, api, repeats
        self._report: ProbeReport | None = None
        #: Answers of the first server: those that others are compared with, and those that confirm a difference.
        self._reference: tuple[DrawnAnswers, DrawnAnswers] | None = None

    async def of_all(self, report: ProbeReport) -> None:
        """Raises `BackendError` if a server does not serve the model of the first, whose probe this is."""
        self._report = report
        first, *others = self._client.replicas
        if compares_draws(report.capabilities):
            with self._client.pinned(first), first.named():
                self._reference = await self._drawn(), await self._drawn()
        for replica in others:
            with self._client.pinned(replica), replica.named():
                await self.of_one()
        self._client.prove = self.of_one

    async def of_one(self) -> None:
        """As `of_all`, for the server that requests are pinned to."""
        assert self._report is not None
        problem = f"it does not serve the same model as {self._first}"
        try:
            if not await self._repeats(self._report, ERROR_KINDS):
                raise BackendError("inconsistent", problem, hint=_HINT)
        except BackendError as error:
            if error.retryable or error.kind in _TOLD or error.message == problem:
                raise
            raise BackendError("inconsistent", f"{problem}, or not as it does: {error.message}", hint=_HINT) from None
        await self.by_draws()

    async def by_draws(self) -> None:
        """Compare the draws of the server that requests are pinned to, if nothing better can be compared."""
        if self._reference is None:
            return
        compared, confirming = self._reference
        if doubted(compared, await self._drawn()) and differ(confirming, await self._drawn()):
            raise ModelChangedError(f"its drawn answers are not those of the model that {self._first} served")

    def requests(self) -> int:
        """How many requests `by_draws` takes at a run's end, of all servers."""
        if self._report is None or not compares_draws(self._report.capabilities):
            return 0
        return len(self._client.replicas) * requests_of_draws(self._report.capabilities)

    def limits(self) -> tuple[str, ...]:
        """What the proof cannot detect."""
        if self._report is None or not compares_draws(self._report.capabilities):
            return ()
        return (_OF_DRAWS.format(draws_of_each(self._report.capabilities)),)

    async def _drawn(self) -> DrawnAnswers:
        assert self._report is not None
        return await drawn_answers(self._api(), self._report.capabilities)

    @property
    def _first(self) -> str:
        return self._client.replicas[0].client.base_url
