"""What the experiments of a probe share: their interface, how they send requests, and their results so far."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

from backends.base import Message
from backends.errors import BackendError
from backends.http.retries import is_down, with_retries
from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe.calibration import Place, Unseen, drawn_place
from backends.openai.probe.report import Check
from backends.openai.protocol.api import ServerApi
from backends.openai.response_ids import OtherProviderError
from backends.openai.scoring.next_tokens import next_chat_tokens, next_tokens
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

P = ParamSpec("P")
T = TypeVar("T")

#: The kind of a prompt: each has an endpoint of its own, and is trusted separately.
Kind = Literal["text", "chat"]

#: Short, because some servers need seconds for a prompt's log-probabilities.
PROMPT = "Q: Who found the nurse's letter? Answer with one word.\nA:"
OTHER = "It was a bright cold day in April, and the"
#: Nats within which two independent routes to one number agree in full precision.
FULL_PRECISION = 1e-3
#: Nats. If repeated numbers of a server differ by more, it is not used for scores.
MAX_NOISE = 1.0
#: Nats. Noise of log-probabilities below this is ignored.
NEGLIGIBLE = -8.0
#: Tokens of each list whose letters are counted.
_OF_A_LIST = 20
#: Entries of a list from which on its last two differ by less than noise.
_LONG_LIST = 100
_FATAL = ("rate_limited", "timeout", "connection", "quota")


class Outcome:
    """What an experiment showed: ``passed`` and ``message`` as in `Check`, and fields of the capabilities."""

    def __init__(self, passed: bool | None, message: str, **updates: Any) -> None:
        self.passed, self.message, self.updates = passed, message, updates


class NotTestedError(Exception):
    """An experiment could not be run; the message says why."""


class ProbeSession:
    """A probe in progress.

    Attributes
    ----------
    capabilities : ServerCapabilities
        What has been shown so far; `update` adds to it.
    checks : list of Check
        The report's lines; `record` adds one.
    tokenizer : RemoteTokenizer or None
    text_list, chat_list : TopLogprobs or None
        The first list of next tokens after a text, and after a chat.
    settled_list : TopLogprobs or None
        The list after `PROMPT` at the temperature that all later lists are requested at.
    drawn_after : dict
        The prompts whose draws fit their lists, with their places, by kind of prompt.
    longest_list : TopLogprobs or None
        The longest one after `PROMPT`.
    lists_after : dict of str to TopLogprobs
        Those after parts of a text, with which each route over whole texts is compared.
    lists_after_prefill : bool
        Whether an assistant prefill is also continued in lists.
    untrusted : dict
        Why lists of texts, or of chats, are not used although the server gives them.
    statements : list of str
        What a reader of figures must know: how a disagreement was decided.
    limits : dict
        The lies that draws would probably not detect, by kind of prompt.
    unsent_tokens : int
        Tokens of a chat that its words do not account for: the template's, and those of any hidden text.
    beside_lists : list of Place
        Tokens drawn beside lists, each at temperature 1.
    by_ids : bool
        Whether prompts are sent as token ids because the server tokenises texts differently.
    words : Counter
        How many listed words had a capital letter (True), and how many had letters but no capital.
    refused : BackendError or None
        The first response that rejected the key. Some gateways also send it for unknown paths and models.
    unanswered : BackendError or None
        Why not even the plainest text or chat is answered; the chat's reason, unless that endpoint is missing.
    without_lists : str
        Why no lists are used, of chats where the server answers any; empty if they are.
    """

    def __init__(self, api: ServerApi) -> None:
        self.api = api
        self.beside_lists: list[Place] = []
        api.on_draw = self.record_draw
        self.capabilities = ServerCapabilities()
        self.checks: list[Check] = []
        self.tokenizer: RemoteTokenizer | None = None
        self.text_list: TopLogprobs | None = None
        self.chat_list: TopLogprobs | None = None
        self.settled_list: TopLogprobs | None = None
        self.drawn_after: dict[Kind, Sequence[tuple[str | tuple[Message, ...], Place]]] = {}
        self.longest_list: TopLogprobs | None = None
        self.lists_after: dict[str, TopLogprobs] = {}
        self.lists_after_prefill = False
        self.untrusted: dict[Kind, str] = {}
        self.statements: list[str] = []
        self.limits: dict[Kind, Unseen] = {}
        self.by_ids = False
        self.unlikely_are_tested = False
        self.unsent_tokens = 0
        self.words = Counter[bool]()
        self.refused: BackendError | None = None
        self.unanswered: BackendError | None = None
        self.without_lists = ""
        self._n_lists, self._largest_mass = 0, 0.0
        self._impossible: BackendError | None = None

    def update(self, **capabilities: Any) -> None:
        """Set fields of `capabilities`."""
        self.capabilities = self.capabilities.model_copy(update=capabilities)

    def record_draw(self, drawn: str, top: TopLogprobs | None) -> None:
        """Keep a token that was drawn beside a list, and record when it is not among the likeliest ones there."""
        if top is None:
            return
        self.beside_lists.append(drawn_place(drawn, top))
        if drawn and drawn not in {token.text for token in top.tokens[: top.requested_k]}:
            self.update(draws_apart=True)

    def draw_with_lists(self, draws: bool = True) -> None:
        """Whether the answer that comes with each list is drawn at temperature 1, from now on."""
        self.update(draws_with_lists=draws)
        self.api.draw_with_lists(self.capabilities)

    def lists_are_steady(self) -> bool:
        """Whether a bound by the last of a list is the same whatever is drawn: the last of a long one is far down."""
        k = max(self.capabilities.largest_k, self.capabilities.largest_chat_k)
        return self.capabilities.draws_apart or k >= _LONG_LIST

    def record(self, name: str, outcome: Outcome) -> None:
        """Add one line to the report, and update `capabilities` with what it showed."""
        self.checks.append(Check(name, outcome.passed, outcome.message))
        self.update(**outcome.updates)

    def record_values(self) -> None:
        """Record whether all lists so far could be true."""
        if self._impossible is not None:
            self.record("possible values", Outcome(False, str(self._impossible)))
        elif self._n_lists:
            message = f"{self._n_lists} lists: finite, at most 0, adding up to at most {self._largest_mass:.6g}"
            self.record("possible values", Outcome(True, message))

    def unknowable(self) -> Iterator[str]:
        """What this probe cannot detect about the scores that will be used, and how large a lie would pass."""
        routes = self.capabilities.routes
        if not any(routes):
            return
        yield (
            "A hidden text before every prompt, a different model from the start, and lists and draws that are altered "
            "alike cannot be detected by asking the server alone"
        )
        if "text" not in self.untrusted and self.capabilities.reaches_unlikely and not self.unlikely_are_tested:
            yield (
                f"Values of unlikely tokens, below the {min(self.capabilities.largest_k, 1000)} likeliest or never "
                "drawn, are compared with nothing: false ones of any size would not be detected, unless they are equal"
            )
        for kind, limit in self.limits.items():
            yield (
                f"Lists of {kind}s at a temperature between {limit.colder:.2f} and {limit.hotter:.2f}, or whose "
                f"probabilities are all too high by up to {100 * (limit.factor - 1):.0f} %, would probably not be "
                "detected by its draws"
            )
        if self.unsent_tokens > 0:
            yield (
                f"In each chat the server counts {self.unsent_tokens} tokens beyond its words: its template's, and "
                "those of any hidden text"
            )
        if "sampled" in routes:
            yield (
                "Without lists, draws at a temperature other than 1 look like those of another model, and copies of "
                "draws in random order like draws: intervals would be too short"
            )

    def without_scores(self) -> str:
        """Why no answer can be scored, and what would help; empty if some can."""
        if any(self.capabilities.routes):
            return ""
        if self.untrusted:
            return "; ".join(self.untrusted.values())
        reason = self.without_lists or "none in its answers"
        return f"no log-probabilities: {reason}; set samples=20 to count drawn answers"

    def distrust(self, kind: Kind, reason: str) -> None:
        """Stop using lists for this kind of prompt; the first reason is kept."""
        self.untrusted.setdefault(kind, reason)

    async def as_sent(self, text: str) -> str | list[int]:
        """A text as it is sent: as token ids if the server tokenises texts differently."""
        if not self.by_ids or self.tokenizer is None:
            return text
        return await with_retries(self.tokenizer.ids, text)

    def tolerance(self) -> float:
        """How far two routes to the same number may differ, in nats."""
        return max(FULL_PRECISION, 2 * self.capabilities.repeat_noise)

    def needed_tokenizer(self) -> RemoteTokenizer:
        """The server's tokenizer. Raises `NotTestedError` if it has none."""
        if self.tokenizer is None:
            raise NotTestedError("not tried: no tokenise endpoint")
        return self.tokenizer

    async def ask(self, ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T | BackendError:
        """The answer, or why there is none. Transient failures are retried.

        Raises `BackendError` if the server cannot be reached: its capabilities cannot be tested while it is down,
        and a wrong result would identify the model from then on. A gateway may report "down" for a single request;
        the server's answer to a plain request then shows that it is up.
        """
        try:
            return await with_retries(ask, *args, **options)
        except BackendError as error:
            if error.kind in _FATAL or isinstance(error, OtherProviderError):
                raise
            if is_down(error) and (self.capabilities.completions or self.capabilities.chat):
                await with_retries(self.plain, PROMPT, max_tokens=1, temperature=0.0)
                try:
                    return await with_retries(ask, *args, **options)
                except BackendError as again:
                    error = again
            if error.kind == "auth":
                self.refused = self.refused or error
            return error

    async def plain(self, text: str, **options: Any) -> dict[str, Any]:
        """The response to a text, from whichever endpoint works."""
        if self.capabilities.completions:
            return await self.api.completion(text, **options)
        return await self.api.chat((Message("user", text),), **options)

    async def experiment(self, text: str, **options: Any) -> dict[str, Any] | BackendError:
        """The unchecked response to a text, from whichever endpoint works."""
        if self.capabilities.completions:
            return await self.ask(self.api.experiment, "completions", {"prompt": text, **options})
        turns = [{"role": "user", "content": text}]
        return await self.ask(self.api.experiment, "chat/completions", {"messages": turns, **options})

    async def next_tokens(self, prompt: str | Sequence[int], k: int) -> TopLogprobs | BackendError:
        """The k likeliest tokens after a text or token ids."""
        sent = await self.as_sent(prompt) if isinstance(prompt, str) else prompt
        return self._tracked(await self.ask(next_tokens, self.api, sent, k))

    async def next_chat_tokens(self, messages: Sequence[Message], k: int, **flags: Any) -> TopLogprobs | BackendError:
        """The k likeliest tokens that continue a chat."""
        return self._tracked(await self.ask(next_chat_tokens, self.api, messages, k, **flags))

    def _tracked(self, top: TopLogprobs | BackendError) -> TopLogprobs | BackendError:
        if isinstance(top, TopLogprobs):
            self._n_lists += 1
            self._largest_mass = max(self._largest_mass, top.mass)
            texts = [token.text for token in top.tokens[:_OF_A_LIST]]
            self.words.update(text != text.lower() for text in texts if text.lower() != text.upper())
        elif top.kind == "inconsistent":
            self._impossible = self._impossible or top
        return top


Experiment = Callable[[ProbeSession], Awaitable[None]]


def experiment(name: str) -> Callable[[Callable[[ProbeSession], Awaitable[Outcome]]], Experiment]:
    """Decorator for an experiment: its outcome is recorded under ``name``."""

    def decorate(test: Callable[[ProbeSession], Awaitable[Outcome]]) -> Experiment:
        @functools.wraps(test)
        async def run(session: ProbeSession) -> None:
            try:
                outcome = await test(session)
            except NotTestedError as reason:
                outcome = Outcome(None, str(reason))
            session.record(name, outcome)

        return run

    return decorate


def accepted(answer: T | BackendError) -> T:
    """The answer. Raises `NotTestedError` if the server refused to give one."""
    if isinstance(answer, BackendError):
        raise NotTestedError(f"refused: {str(answer)[:80]}")
    return answer


def max_abs_diff(a: TopLogprobs | BackendError | None, b: TopLogprobs | BackendError | None) -> float:
    """Largest difference between two lists of one question, in nats, over tokens that both identify; inf if none."""
    if not isinstance(a, TopLogprobs) or not isinstance(b, TopLogprobs):
        return float("inf")
    counts_a, counts_b = Counter(map(_key, a.tokens)), Counter(map(_key, b.tokens))
    in_b = {_key(t): t for t in b.tokens if counts_b[_key(t)] == 1}
    gaps = [
        abs(t.logprob - other.logprob)
        for t in a.tokens
        if counts_a[_key(t)] == 1
        and (other := in_b.get(_key(t))) is not None
        and max(t.logprob, other.logprob) > NEGLIGIBLE
        and a.identifies(t)
        and b.identifies(other)
    ]
    return max(gaps, default=float("inf"))


def _key(token: ListedToken) -> object:
    return token.token_id if token.token_id is not None else (token.data or token.text)
