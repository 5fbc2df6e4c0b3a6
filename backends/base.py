"""What a model can be asked, what it answers, and the one interface every backend has.

Log-probabilities are natural logarithms (nats) everywhere. A missing probability is never
0, -inf or NaN: it is a bound (`ContinuationScore.exactness`), or the whole request is a
`BackendError`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from backends.errors import BackendError, ConfigError
from backends.options import check_fields

_ROUNDING = 1e-6  # nats above 0 that a sum of logarithms may come to

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


Prompt = str | tuple[Message, ...]
"""Plain text, or chat turns. A last turn of role ``assistant`` is an assistant prefill: the
model continues it. Without one, the answer starts a new assistant turn."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Ask for log P(continuation | prompt) of all the given continuations of one prompt.

    A continuation is appended to the prompt's text as it stands: a space between the two
    belongs to one of them. One request carries all continuations of a prompt so that a
    backend can share the prompt's work.

    ``first_given``: each continuation is a whole text with nothing before it, and its first token is given, not
    scored, where the model puts no token of its own in front. A causal model's own loss sums the same tokens. A text
    of a single given token has no scored tokens and a log-probability of 0.
    """

    prompt: Prompt
    continuations: tuple[str, ...]
    first_given: bool = False

    def __post_init__(self) -> None:
        if self.first_given and self.prompt != "":
            raise ValueError(
                f"ScoreRequest.prompt = {self.prompt!r}: first_given is for texts with nothing before them"
            )
        # A text would be iterated letter by letter, and requests are compared by their hash.
        given: object = self.continuations
        if not isinstance(given, tuple):
            kind = "one text, which would be split into letters" if isinstance(given, str) else "no tuple"
            raise ValueError(f"ScoreRequest.continuations = {given!r}: {kind}: give a tuple of texts")
        if not self.continuations:
            raise ValueError("ScoreRequest.continuations = (): at least one is needed")
        if "" in self.continuations:
            raise ValueError("ScoreRequest.continuations: an empty continuation has no probability to ask for")
        if len(set(self.continuations)) != len(self.continuations):
            raise ValueError(f"ScoreRequest.continuations = {self.continuations!r}: duplicates")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a text is drawn, with the same meaning on every backend.

    temperature 0 is greedy; top_k 0 and top_p 1 switch these filters off;
    repetition_penalty 1 is none. Order of the filters: repetition penalty, temperature,
    top_k, top_p.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    max_tokens: int = 128
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            check_fields(self)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        for name, ok, hint in (
            ("temperature", self.temperature >= 0, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("top_k", self.top_k >= 0, "at least 0"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
        ):
            if not ok:
                raise ValueError(f"Sampling.{name} = {getattr(self, name)!r}: must be {hint}")
        if not isinstance(self.stop, tuple) or not all(self.stop):
            raise ValueError(f"Sampling.stop = {self.stop!r}: must be a tuple of texts, none of them empty")


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Ask for a text. ``repeat`` tells apart several draws of the same prompt."""

    prompt: Prompt
    sampling: Sampling = Sampling()
    seed: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class ClassifyRequest:
    """Ask a text classifier for the probability of each of its labels."""

    text: str


Request = ScoreRequest | GenerateRequest | ClassifyRequest

Boundary = Literal["clean", "merged", "straddled", "altered"]
"""How prompt and continuation meet when they are tokenised together.

clean      a token starts at the boundary, and the prompt keeps the tokens it has alone
merged     a token starts at the boundary, but the prompt's own last tokens changed
straddled  one token covers both sides; its prompt part is marginalised exactly
altered    clean or merged, but the tokenizer read another prompt: it dropped case, accents or spaces
"""

Exactness = Literal["exact", "bounded", "sampled"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One scored token. ``start``/``end``: characters, 0 = first of the continuation.

    A negative ``start`` is a token that straddles the boundary. ``token_id`` is None where a
    server gives none. ``exact`` False: ``logprob`` is only an upper bound.
    """

    text: str
    start: int
    end: int
    logprob: float
    token_id: int | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class ContinuationScore:
    """log P(continuation | prompt) of one continuation, in nats.

    Attributes
    ----------
    logprob : float or None
        The value. None when it is only bounded, or sampled and never seen.
    low, high : float or None
        Identification bounds; ``low`` None means no lower bound (probability may be 0).
        Equal to ``logprob`` when exact. For ``sampled``: a 95 % interval of the share (Jeffreys').
    tokens : tuple of TokenLogprob
        The continuation's tokens, in order; their sum is ``logprob`` when exact and the
        boundary is clean or merged. A straddled first token's ``logprob`` is already
        divided by the probability of its prompt part.
    route : str
        How the number was obtained, e.g. ``tree``, ``batch``, ``echo``, ``top_k``.
    samples : int or None
        Number of draws behind a ``sampled`` score.
    """

    logprob: float | None
    low: float | None
    high: float
    exactness: Exactness = "exact"
    boundary: Boundary = "clean"
    tokens: tuple[TokenLogprob, ...] = ()
    route: str = ""
    samples: int | None = None

    @classmethod
    def exact(
        cls,
        tokens: Sequence[TokenLogprob],
        *,
        boundary: Boundary = "clean",
        route: str = "",
    ) -> ContinuationScore:
        """The score whose log-probability is the sum over ``tokens``."""
        total = math.fsum([t.logprob for t in tokens])
        total = 0.0 if 0 < total <= _ROUNDING else total
        return cls(total, total, total, "exact", boundary, tuple(tokens), route)


@dataclass(frozen=True, slots=True)
class ScoreResponse:
    """One score for each continuation of the request, in the request's order."""

    scores: tuple[ContinuationScore, ...]
    prompt_tokens: int = 0

    def __post_init__(self) -> None:
        for score in self.scores:
            for value in (score.logprob, score.low, score.high):
                if value is not None and not -math.inf < value <= _ROUNDING:
                    raise ValueError(f"{score!r}: a log-probability is finite and at most 0")
            if score.exactness == "exact" and score.logprob is None:
                raise ValueError(f"{score!r}: an exact score needs its logprob")


@dataclass(frozen=True, slots=True)
class GenerateResponse:
    """A generated text, without the prompt, an assistant prefill, or the model's reasoning.

    ``thought`` is that reasoning, as far as it is shown; it accounts for ``thought_tokens`` of ``completion_tokens``.
    """

    text: str
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    thought: str = ""
    thought_tokens: int = 0


#: Stands beside a language model's labels: the total probability of all valid answers, of which each label is a share.
ANSWER_MASS = "answer mass"


@dataclass(frozen=True, slots=True)
class ClassifyResponse:
    """Probability of each label, each in [0, 1]."""

    labels: Mapping[str, float]


Response = ScoreResponse | GenerateResponse | ClassifyResponse
Answer = Response | BackendError

Capability = Literal["score", "score_alone", "generate", "chat", "classify", "recorded"]
"""What a backend can do. ``score_alone``: also texts with nothing before them (`ScoreRequest.first_given`).
``recorded``: give back texts that were written elsewhere, for suites that bring these."""

Form = Literal["score_text", "score_chat", "score_prefill", "generate_prefill"]
"""A form of prompt: a text or a chat whose continuation is scored; a chat that begins the answer, which is scored or
generated from there. Whoever can score, generate and chat is taken to answer all of them unless
`Description.absent` says why not."""

Scalar = str | int | float | bool | None

#: What a model is made of, apart from the engine.
ModelPart = Literal["weights", "quantisation", "adapter", "tokenizer", "chat_template", "settings"]


@dataclass(frozen=True, slots=True)
class Description:
    """What a backend is, found without loading its weights.

    ``fingerprint`` is everything that may change a number: flat JSON scalars. Two equal
    fingerprints share cached answers. ``notes`` is shown in the report and changes nothing.

    ``retired`` names fields that earlier versions wrote into the fingerprint although they change no answer of this
    model. Stored fingerprints that are equal without these fields (left out on both sides) are the same model's, and
    their answers are used.

    ``parts`` says what the model is made of, whatever computes it; ``engine_fields`` names the fields of the
    fingerprint that belong to the engine alone (program, version, device, dtype of the computation). Two descriptions
    are of one model on two engines if their parts are known and equal, and their fingerprints differ only in engine
    fields. A part has the same value on every engine: ``weights`` (the hash of their file, or hub id and revision),
    ``quantisation``, ``adapter``, ``tokenizer``, ``chat_template``, ``settings``. None: there is no such part. Without
    parts (a server) nothing is known.

    ``statements`` are sentences that a reader of the figures must know first, e.g. how a disagreement between two
    routes to one number was decided; ``limits`` say what cannot be known about the numbers. Neither ends with a full
    stop. ``requests`` counts the requests that this took; stored results are not requested again. ``absent`` maps a
    missing capability, or a form of prompt that cannot be answered, to the reason, and what would help.
    """

    fingerprint: Mapping[str, Scalar]
    capabilities: frozenset[Capability]
    notes: Mapping[str, str] = field(default_factory=dict)
    retired: frozenset[str] = frozenset()
    parts: Mapping[ModelPart, Scalar] = field(default_factory=dict)
    engine_fields: frozenset[str] = frozenset()
    statements: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    requests: int = 0
    absent: Mapping[Capability | Form, str] = field(default_factory=dict)


OnResponse = Callable[[int, Answer], None]
"""Called with a request's place in its batch and its answer, as soon as that is known."""


class Backend(ABC):
    """The interface of every model: `check`, `describe` and `run`.

    Lifecycle: ``check`` (bad input, at once) → ``describe`` (identity, no weights) → ``run`` as often
    as needed (the first call loads) → ``close``. A closed backend may be run again: it loads again.
    What only some backends can do is in the ``Supports…`` protocols below.

    Attributes
    ----------
    device : str or None
        The compute it occupies (``cpu``, ``cuda:0``): backends that share one take turns.
        None for a server, which runs at the same time as all others.
    endpoint : str or None
        Server and key identity for a shared limiter, without the key itself.
    batch_size : int
        The preferred number of requests for one call of ``run``.
    max_in_flight : int
        The maximum number of concurrent calls of ``run``.
    """

    #: Constructor options that may be a path (also inside tables), with the keywords that are not paths. A relative
    #: path in a TOML config starts at the config's folder.
    path_options: ClassVar[Mapping[str, Collection[str]]] = {}
    device: str | None = None
    endpoint: str | None = None
    batch_size: int = 1
    max_in_flight: int = 1

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigError` for every mistake that can be found without loading anything."""

    @abstractmethod
    async def describe(self) -> Description:
        """Identity and capabilities. Loads no weights; a server is probed."""

    @abstractmethod
    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        """Answer a batch: one answer or `BackendError` for each request, in order."""

    async def close(self) -> None:
        """Free weights and connections. May be called more than once."""
        return


@runtime_checkable
class SupportsStreaming(Protocol):
    """A backend that may know some answers of a batch long before the last one."""

    async def run_streaming(self, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """`Backend.run`, which also reports answers as soon as they are known.

        ``on_response`` is called on the event loop, at most once for each request; the answer is returned
        with the others all the same.
        """
        ...


@runtime_checkable
class SupportsStopping(Protocol):
    """A backend whose batches take long, and which can end one before all of it is computed."""

    def stop_computing(self) -> None:
        """End the calls of `Backend.run` in progress after the step that is being computed.

        They return what they have, and a `backends.errors.StoppedError` for each request that they did not come to.
        Later calls compute as ever. Called on the event loop; does not wait.
        """
        ...


class ChecksMade(NamedTuple):
    """What was checked of a hosted model's answers.

    Attributes
    ----------
    prompts : int
        Different prompts that got different answers.
    questions, draws : int
        The run's questions after which words were drawn, and how many words: they fit the lists.
    moves : tuple of float
        Nats by which likely scores of those questions differ from the lists asked for again: each question's largest.
    """

    prompts: int = 0
    questions: int = 0
    draws: int = 0
    moves: tuple[float, ...] = ()


@runtime_checkable
class SupportsIdentityCheck(Protocol):
    """A backend that notices answers which are not the audited model's.

    Attributes
    ----------
    unverified_since : float or None
        Seconds since the epoch, once a check has failed: later answers do not count.
    unverified_reason : str
        One sentence: what was seen, what it means, what to set.
    """

    unverified_since: float | None
    unverified_reason: str

    async def verify_identity(self) -> None:
        """Make the last checks; called once per run, after the last request.

        Raises `BackendError` when they cannot be made.
        """
        ...

    def drain_ambiguous(self) -> list[Request]:
        """Requests answered since the last call whose answer may belong to another request."""
        ...


@runtime_checkable
class SupportsSecondAnswers(Protocol):
    """A hosted model, which may change while it is asked: some of a run's questions are asked twice.

    A local model does not need it: it cannot change once loaded.
    """

    def repeats_itself(self, request: Request) -> bool:
        """Whether an unchanged model gives this request the same answer each time; a sampled text differs."""
        ...

    def scores_separately(self, request: Request) -> bool:
        """Whether each continuation takes a request of its own: then one of them is asked twice, not all."""
        ...

    def checks_made(self) -> ChecksMade:
        """What else was checked of its answers, once the run has ended."""
        ...


@runtime_checkable
class SupportsCheckingRequests(Protocol):
    """A backend that sends requests of its own during a run, to check the answers."""

    def checking_cost(self, questions: int, scored: int) -> RequestCost:
        """That of a run of so many questions, without those asked twice; known after `Backend.describe`."""
        ...


@runtime_checkable
class SupportsRunNotes(Protocol):
    """A backend that knows some of its notes only once it has answered."""

    def notes_of_run(self) -> Mapping[str, str]:
        """What replaces or joins `Description.notes` in the report; empty before the first answer."""
        ...


@runtime_checkable
class SupportsPrices(Protocol):
    """A backend that may cost money. Amounts are in the currency of its prices."""

    def spent(self) -> float | None:
        """The cost so far; None without prices."""
        ...

    def highest_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Upper bound on the cost of these numbers of tokens; None without prices."""
        ...


@runtime_checkable
class SupportsTokenCounts(Protocol):
    """A backend with a tokenizer."""

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        """Tokens of each prompt, for estimates; None where they cannot be counted cheaply."""
        ...


@runtime_checkable
class SupportsBoundaries(Protocol):
    """A backend whose tokenizer can be asked how prompts and continuations meet, without loading the weights."""

    def boundaries(self, requests: Sequence[ScoreRequest]) -> list[tuple[Boundary, ...] | BackendError]:
        """For each request the boundary of every continuation, or why it cannot be scored.

        Raises `AuditError` where the tokenizer cannot be loaded.
        """
        ...


@runtime_checkable
class SupportsLabelNames(Protocol):
    """A text classifier that knows its labels before it is loaded."""

    def label_names(self) -> list[str]:
        """The names of its labels. Raises `ConfigError` where they cannot be read."""
        ...


class RequestCost(NamedTuple):
    """What one request sends and generates.

    Attributes
    ----------
    calls : int
        Requests of a server; each sends the prompt.
    further_characters : int
        Sent beside the prompt, in all calls together: a continuation as far as it is part of what is read.
    generated_tokens : int
        The most, in all calls together.
    """

    calls: int
    further_characters: int
    generated_tokens: int

    @classmethod
    def in_one_call(cls, request: Request) -> RequestCost:
        """The prompt is read once, and only texts are generated."""
        return cls(1, 0, request.sampling.max_tokens if isinstance(request, GenerateRequest) else 0)


@runtime_checkable
class SupportsRequestCost(Protocol):
    """A backend that may need several calls of its server for one request."""

    def request_cost(self, request: Request) -> RequestCost:
        """The calls and tokens that ``request`` takes, for estimates; the most before anything is known."""
        ...

    def cost_basis(self) -> str:
        """What `request_cost` and `SupportsTokenCounts.count_tokens` go by."""
        ...


@runtime_checkable
class SupportsUnasked(Protocol):
    """A backend whose `Backend.describe` sends requests, and which can say what is known without any."""

    def describe_unasked(self) -> Description:
        """As far as known: by what an earlier run found, or by the options alone. Sends nothing."""
        ...


async def describe(backend: Backend, *, ask: bool = True) -> Description:
    """What a backend is; without ``ask`` nothing is sent for it, if the backend sends anything at all."""
    return backend.describe_unasked() if not ask and isinstance(backend, SupportsUnasked) else await backend.describe()


def request_cost(backend: Backend, request: Request) -> RequestCost:
    """The calls and tokens that ``request`` takes: one call, unless the backend says otherwise."""
    return (
        backend.request_cost(request) if isinstance(backend, SupportsRequestCost) else RequestCost.in_one_call(request)
    )


def count_tokens(backend: Backend, prompts: Sequence[Prompt]) -> list[int] | None:
    """Tokens of each prompt; None where the backend has no tokenizer."""
    return backend.count_tokens(prompts) if prompts and isinstance(backend, SupportsTokenCounts) else None


def prompt_to_json(prompt: Prompt) -> Any:
    """Canonical JSON form of a prompt: a string, or a list of [role, content]."""
    return prompt if isinstance(prompt, str) else [[m.role, m.content] for m in prompt]


def prompt_from_json(data: Any) -> Prompt:
    """Read back what `prompt_to_json` wrote."""
    return data if isinstance(data, str) else tuple(Message(role, content) for role, content in data)
