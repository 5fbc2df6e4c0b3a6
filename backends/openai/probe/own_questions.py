"""A check on a run's own questions: whether the server's draws fit its lists there, and its lists fit its scores.

A probe only uses prompts of its own. It misses numbers that are false for the audited prompts or words alone. Draws
after the run's questions reveal those, unless the draws are falsified in the same way. Every list that is scored comes
with a draw. A few more draws are requested without lists, since a server could falsify the others alone. A few twins of
these questions must have other lists than they have: a gateway may rewrite what only they contain.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

from backends.base import ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai.capabilities import ServerCapabilities, Together
from backends.openai.probe.calibration import (
    WITH_TWIN,
    Place,
    audited_bound,
    chat_place,
    drawn_place,
    listed_place,
    p_value,
    pooled_p_value,
    single_draws_bound,
)
from backends.openai.probe.experiments.chats import apart_from_rendered
from backends.openai.probe.experiments.draws import Asked, Levels, Look, compare_draws, drawn_places
from backends.openai.probe.experiments.longer_answers import LONGER_ANSWERS, of_own_questions
from backends.openai.probe.experiments.twins import LEAST_VALUES, has_values, same_lists
from backends.openai.probe.later_rows import MOST_LATER, later_rows, requests_for_one
from backends.openai.probe.own_twins import own_twins
from backends.openai.probe.session import MAX_NOISE, NEGLIGIBLE, NotTestedError, ProbeSession
from backends.openai.probe.unlisted import left_out, left_out_bound, share_left_out, unlisted_bound
from backends.openai.probe.unseen_words import DrawsCompared, draws_compared
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.prompt_logprobs import WITHOUT_LISTS
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import TopLogprobs

T = TypeVar("T")
Doubtful = tuple[ScoreRequest, ScoreResponse, frozenset[str]]
#: A drawn token, and the list that it came with; None for an echo.
Drawn = tuple[str, TopLogprobs | None]

#: Questions of a run that are checked: this share, at most this many; none in runs with fewer than the last.
_SHARE, _MOST, _FEWEST_SEEN = 0.25, 30, 10
#: If each draw takes a request, the share and maximum of these that draws are made after. The others are only compared
#: with their lists, if the scores come from another route.
_SHARE_DRAWN, _MOST_ONE_BY_ONE = 0.4, 5
#: Questions where an audited word was drawn that its list leaves out, and requests for draws after them: at first, and
#: for each fresh set where those do not fit.
_MOST_DOUBTFUL = 10
_AFTER_DOUBTFUL: Mapping[Together | None, int] = {"n": 10, "prompts": 20, None: 60}
_FRESH_AFTER_DOUBTFUL: Mapping[Together | None, int] = {"n": 20, "prompts": 40, None: 100}
#: Requests for draws: this share of the run's questions, at least and at most so many; and draws per request.
_REQUESTS_SHARE = 0.02
_REQUESTS: Mapping[Together | None, tuple[int, int]] = {"n": (20, 20), "prompts": (10, 30), None: (30, 300)}
#: Where lists came with draws: more, since there the rest takes few requests.
_BESIDE_LISTS: Mapping[Together | None, int] = {"n": 60, "prompts": 60, None: 15}
#: Draws of a request by ``n`` in these numbers; a server that gives more takes fewer requests.
_CHOICES = 50
#: Questions with longer answers, asked until one agrees.
_MOST_LONGER = 3
#: Twins of the questions. Short lists are not compared: they may be equal where the model is sure of its answer.
_TWINS = 10
#: Entries of each list, and how many of the lists that came with a draw are kept.
_LISTED, _MOST_KEPT = 1000, 2000
#: Of draws that came with lists, and of those without: together a true server is contradicted once in 10,000 runs.
_LEVELS = Levels(at_once=1e-5, first=0.02, fresh=0.002, most_fresh=1)
#: Of audited words that lists leave out: of all draws at hand and some where one was doubtful, then of fresh ones.
_LEVELS_HIDDEN = Levels(first=0.05, fresh=0.0001, most_fresh=3)
#: The chance of fresh draws above which they lift the doubt that earlier ones raised.
_LIFTED = 0.5
#: Tests of some draws at each of a few places, and of one at each of many.
_OF_FEW, _OF_MANY = (p_value, pooled_p_value, audited_bound, unlisted_bound), (single_draws_bound, unlisted_bound)
#: Levels of `audited_bound`, by Bonferroni: of one of three bounds in one of two tests where the first look contradicts
#: alone, and of one of four tests where both looks must.
ALONE, TWICE = _LEVELS.at_once / (3 * len(_OF_MANY)), _LEVELS.fresh / len(_OF_FEW)
#: Nats by which a score's first token may differ from its list: half precision rounds long texts by 0.05.
_OFF = 0.1
#: How many questions must differ to count as a contradiction.
_MIN_OFF = 2
#: Chats that are scored as their rendered texts, and compared with the chat endpoint too: two requests each.
_MOST_CHATS = 5


@dataclass(frozen=True)
class OwnSample:
    """Some of the ``seen`` questions of a run with their answers, and the places of lists that came with a draw.

    ``doubtful`` are questions where audited words were drawn that the lists beside them leave out, with these words.
    """

    questions: Sequence[tuple[ScoreRequest, ScoreResponse]]
    places: Sequence[Place]
    seen: int
    doubtful: Sequence[Doubtful] = ()


class OwnQuestions:
    """A uniform random sample of a run's scored questions, and one of the lists that came with a draw."""

    def __init__(self) -> None:
        self._questions = _Reservoir[tuple[ScoreRequest, ScoreResponse]](_MOST)
        self._places = _Reservoir[Place](_MOST_KEPT)
        self._doubtful = _Reservoir[Doubtful](_MOST_DOUBTFUL)

    def add(self, request: ScoreRequest, response: ScoreResponse, drawn: Iterable[Drawn] = ()) -> None:
        """Add a question and its answer, and what was drawn beside its lists."""
        self._questions.add((request, response))
        places = [_place(request, response, text, top) for text, top in drawn]
        for place in places:
            self._places.add(place)
        if hidden := frozenset(text for place in places for text in left_out(place).intersection(place.drawn)):
            self._doubtful.add((request, response, hidden))

    def take(self) -> OwnSample:
        """A share of the questions that were seen, and the places; none of them is kept."""
        seen = self._questions.seen
        questions, places = self._questions.take(_number_taken(seen)), self._places.take(_MOST_KEPT)
        return OwnSample(questions, places, seen, self._doubtful.take(_MOST_DOUBTFUL))


class _Reservoir(Generic[T]):
    """At most ``most`` of all that are added, each as likely as the others (Vitter, ACM TOMS 11, 1985)."""

    def __init__(self, most: int) -> None:
        self.seen = 0
        self._most, self._kept = most, list[T]()
        self._draw = random.SystemRandom()

    def add(self, one: T) -> None:
        self.seen += 1
        if len(self._kept) < self._most:
            self._kept.append(one)
        elif (at := self._draw.randrange(self.seen)) < self._most:
            self._kept[at] = one

    def take(self, n: int) -> list[T]:
        taken = self._draw.sample(self._kept, min(n, len(self._kept)))
        self._kept, self.seen = [], 0
        return taken


def _place(request: ScoreRequest, response: ScoreResponse, drawn: str, top: TopLogprobs | None) -> Place:
    """The list that a token was drawn beside; beside an echo, the scores' first tokens."""
    audited = _audited(request, response)
    if top is not None:
        return drawn_place(drawn, top, audited)
    scored = [score.tokens[0] for score in response.scores if score.tokens]
    return Place({t.text: math.exp(t.logprob) for t in scored if t.exact and t.start == 0}, (drawn,), audited)


def _audited(request: ScoreRequest, response: ScoreResponse) -> set[str]:
    """The first tokens of what was scored; where those are unknown, what they may be."""
    return {
        score.tokens[0].text if score.tokens else continuation
        for continuation, score in zip(request.continuations, response.scores, strict=True)
    }


@dataclass(frozen=True)
class _Plan:
    """How the questions of a run are followed up: ``some`` and ``many`` are requests for draws without lists."""

    way: Together | None
    n_drawn: int
    n_listed: int
    some: int
    many: int
    twins: int

    @classmethod
    def of(cls, found: ServerCapabilities, n_questions: int, seen: int, *, is_chat: bool, with_lists: bool) -> Self:
        way = None if is_chat and found.together == "prompts" else found.together
        fewest, most = _REQUESTS[way]
        some = _BESIDE_LISTS[way] if with_lists else min(max(round(_REQUESTS_SHARE * seen), fewest), most)
        if way == "n":
            some, most = (math.ceil(_CHOICES * requests / found.choices) for requests in (some, most))
        n_drawn = min(n_questions, some) if way else min(math.ceil(_SHARE_DRAWN * n_questions), _MOST_ONE_BY_ONE)
        some = n_drawn * max(some // max(n_drawn, 1), 1)
        n_listed = n_questions if found.text_route in WITHOUT_LISTS else n_drawn
        twins = _TWINS if (found.largest_chat_k if is_chat else found.largest_k) >= LEAST_VALUES else 0
        return cls(way, n_drawn, n_listed, some, most, twins)


def requests_at_the_end(found: ServerCapabilities, scored: int) -> int:
    """How many requests follow a run of so many scored questions at most, where its draws fit its lists."""
    n = _number_taken(scored)
    if not n or found.repeat_noise > MAX_NOISE or set(found.routes) <= {None, "sampled"}:
        return 0
    with_lists = found.draws_with_lists and (found.text_route not in WITHOUT_LISTS or found.family is None)
    plan = _Plan.of(found, n, scored, is_chat=found.text_route is None, with_lists=with_lists)
    # How many questions are doubtful is not known: as if there were some, where lists leave words out.
    k = found.largest_k if found.text_route is not None else found.largest_chat_k
    may_be = found.draws_with_lists and found.text_route not in WITHOUT_LISTS and k < _LISTED
    doubtful = _AFTER_DOUBTFUL[plan.way] if may_be else 0
    # Nor how many continuations have several tokens.
    later = requests_for_one(found.text_route == "echo" and found.family is None) * min(n, MOST_LATER)
    later *= found.text_route in WITHOUT_LISTS
    chats = 2 * min(n, _MOST_CHATS) if found.chat_route == "rendered" else 0
    return plan.n_listed + plan.some + plan.twins + LONGER_ANSWERS + doubtful + later + chats


def _number_taken(scored: int) -> int:
    return min(round(_SHARE * scored), _MOST) if scored >= _FEWEST_SEEN else 0


@dataclass(frozen=True)
class OwnCheck:
    """How the server contradicts its scores, and what its draws could show; empty and None if that is not known."""

    contradiction: str = ""
    compared: DrawsCompared | None = None


async def check_own(
    api: ServerApi,
    capabilities: ServerCapabilities,
    tokenizer: RemoteTokenizer | None,
    sample: OwnSample,
) -> OwnCheck:
    """Compare the scores of these questions with lists and draws.

    An honest server is flagged once in 10,000 runs, as by the probe.
    """
    session = ProbeSession(api)
    session.capabilities, session.tokenizer = capabilities, tokenizer
    session.by_ids = capabilities.takes_ids and tokenizer is not None
    if not sample.questions or capabilities.repeat_noise > MAX_NOISE:
        return OwnCheck()
    is_chat = not isinstance(sample.questions[0][0].prompt, str) and capabilities.chat_route != "rendered"
    with_lists = len(sample.places) >= _FEWEST_SEEN
    plan = _Plan.of(capabilities, len(sample.questions), sample.seen, is_chat=is_chat, with_lists=with_lists)
    found = await _compared(session, sample.questions, plan)
    if found.moved:
        return OwnCheck(found.moved)
    # Of the first questions: each that is `listed` has its list in `tops`, at the same place.
    asked = [(prompt, top) for (prompt, _), (_, top) in zip(found.listed, found.tops, strict=False)]
    if routed := await of_own_questions(session, asked[:_MOST_LONGER]):
        return OwnCheck(routed)
    if moved := await _moved_in_chats(session, sample.questions):
        return OwnCheck(moved)
    if capabilities.text_route in WITHOUT_LISTS and (moved := await later_rows(session, sample.questions)):
        return OwnCheck(moved)
    if rewritten := await _rewritten(session, found.tops, plan.twins):
        return OwnCheck(rewritten)
    beside = [*sample.places, *found.beside]

    async def draw(requests: int) -> list[list[Place]]:
        if not found.listed:
            raise NotTestedError("no lists after the questions themselves")
        each = max(requests // len(found.listed), 1) * capabilities.draws_of_a_request(plan.way)
        return [await drawn_places(session, found.listed, each)]

    async def at_hand() -> list[list[Place]]:
        return [beside]

    some, many = Look(lambda: draw(plan.some), _OF_FEW), Look(lambda: draw(plan.many), _OF_FEW)
    compared: list[DrawsCompared | None] = []
    drawn_without: Sequence[Place] = ()  # the last, if there are any
    for looks, level in [((Look(at_hand, _OF_MANY), many), ALONE)] * (len(beside) >= _FEWEST_SEEN) + [
        ((some, some), TWICE)
    ]:
        with contextlib.suppress(NotTestedError):
            drawn_without, fit, message = await compare_draws(session, looks, _LEVELS)
            if not fit:
                return OwnCheck(f"tokens drawn after the run's own questions do not fit their lists ({message})")
            compared.append(draws_compared(drawn_without, noise=capabilities.repeat_noise, level=level))
    # Of draws beside lists and those without, those that show more.
    most = min((one for one in compared if one), key=lambda one: one.unseen_factor or math.inf, default=None)
    hidden, is_doubted = await _hidden(session, sample, [*beside, *drawn_without], plan.way)
    if any(score.exactness == "bounded" for _, response in sample.questions for score in response.scores):
        at_most = share_left_out(sample.places if with_lists else drawn_without)
        most = (most or DrawsCompared(0, 0.0, None))._replace(left_out=at_most, doubted=is_doubted)
    return OwnCheck(hidden, most)


async def _hidden(
    session: ProbeSession, sample: OwnSample, at_hand: Sequence[Place], way: Together | None
) -> tuple[str, bool]:
    """How draws contradict the scores' bounds of words that lists leave out, "" if they do not; and if they may.

    All draws ``at_hand`` count, and some after the doubtful questions. Where those do not fit, up to three fresh sets
    after the same questions decide, which are compared together. They leave a doubt unless they fit well.
    """
    places = []
    all_fresh: list[Place] = []
    for request, response, words in sample.doubtful:
        prompt = await _prompt(session, request)
        if not isinstance(prompt, BackendError):
            places.append((prompt, _scored_place(request, response, words, session.capabilities)))

    async def draw(requests: Mapping[Together | None, int]) -> list[Place]:
        if not places:
            raise NotTestedError("no audited word was drawn that its list leaves out")
        each = max(requests[way] // len(places), 1) * session.capabilities.draws_of_a_request(way)
        return await drawn_places(session, places, each)

    async def first() -> list[Sequence[Place]]:
        return [at_hand, await draw(_AFTER_DOUBTFUL)]

    async def fresh() -> list[Sequence[Place]]:
        drawn = await draw(_FRESH_AFTER_DOUBTFUL)
        all_fresh.extend(drawn)
        return [drawn]

    looks = Look(first, (left_out_bound,)), Look(fresh, (left_out_bound,))
    try:
        _, fit, message = await compare_draws(session, looks, _LEVELS_HIDDEN)
    except NotTestedError:
        return "", False
    if not fit:
        return f"audited words that its lists leave out are drawn too often ({message})", True
    return "", left_out_bound(all_fresh, noise=session.capabilities.repeat_noise) < _LIFTED


def _scored_place(
    request: ScoreRequest, response: ScoreResponse, words: frozenset[str], found: ServerCapabilities
) -> Place:
    """What a question's scores say of those of these words that they only bound."""
    bounds = {
        continuation: score.high
        for continuation, score in zip(request.continuations, response.scores, strict=True)
        if score.exactness == "bounded" and not score.tokens and continuation in words
    }
    is_chat = not isinstance(request.prompt, str) and found.chat_route != "rendered"
    bound = math.exp(max(bounds.values())) if bounds else None
    return Place({}, (), bounds.keys(), bound, spellings=WITH_TWIN if is_chat else 1)


@dataclass
class _Compared:
    """What is listed after the questions that are drawn after, with the audited texts.

    ``tops`` are the questions with all of these lists, ``beside`` the draws that came with them; ``moved`` says how the
    scores differ from them.
    """

    listed: list[tuple[Asked, Place]]
    beside: list[Place]
    tops: list[tuple[ScoreRequest, TopLogprobs]]
    moved: str = ""


async def _compared(
    session: ProbeSession, asked: Sequence[tuple[ScoreRequest, ScoreResponse]], plan: _Plan
) -> _Compared:
    """The lists after these questions, compared with their scores."""
    found = _Compared([], [], [])
    n_compared = n_moved = 0
    for at, (request, response) in enumerate(asked[: plan.n_listed]):
        n_before = len(session.beside_lists)
        prompt, top = await _listed(session, request)
        if isinstance(top, TopLogprobs):
            found.tops.append((request, top))
            audited = _audited(request, response)
            if at < plan.n_drawn:
                place = listed_place(top, trimmed=False) if isinstance(prompt, str) else chat_place(top)
                found.listed.append((prompt, replace(place, audited=audited)))
            found.beside += [replace(place, audited=audited) for place in session.beside_lists[n_before:]]
            n_compared += 1
            n_moved += _difference(response, top) > max(_OFF, 4 * session.capabilities.repeat_noise)
    if n_moved >= _MIN_OFF:
        found.moved = f"the scores of {n_moved} of {n_compared} questions differ from what the server lists after them"
    return found


async def _moved_in_chats(session: ProbeSession, asked: Sequence[tuple[ScoreRequest, ScoreResponse]]) -> str:
    """How lists after rendered chats differ from those of the chat endpoint; empty if they do not.

    Only the probe's own chats are compared with their rendered texts; others may be rendered in another way.
    """
    if session.capabilities.chat_route != "rendered":
        return ""
    chats = [
        request.prompt
        for request, _ in asked
        if not isinstance(request.prompt, str) and request.prompt[-1].role != "assistant"
    ][:_MOST_CHATS]
    allowed = max(_OFF, 4 * session.capabilities.repeat_noise)
    n_moved = sum([await apart_from_rendered(session, chat, allowed) > allowed for chat in chats])
    if n_moved < _MIN_OFF:
        return ""
    return f"lists after {n_moved} of {len(chats)} chats differ from those after their rendered texts"


async def _rewritten(session: ProbeSession, tops: Sequence[tuple[ScoreRequest, TopLogprobs]], n: int) -> str:
    """In what questions differ although one list follows them; empty if each twin has another list."""
    compared = [(request, top) for request, top in tops if has_values(top)]
    if not n or not compared:
        return ""
    alike = []
    for twin in own_twins([request.prompt for request, _ in compared], n, random.SystemRandom()):
        request, top = compared[twin.at]
        before = len(session.beside_lists)
        _, other = await _listed(session, replace(request, prompt=twin.prompt))
        del session.beside_lists[before:]  # draws after questions that the run did not ask
        if isinstance(other, TopLogprobs) and has_values(other) and same_lists(session, top, other):
            alike.append(twin.difference)
    if not alike:
        return ""
    return (
        f"questions of the run that differ in {', '.join(sorted(set(alike)))} get one answer: something changes or "
        "cuts them before the model reads them, or a cache answers"
    )


async def _listed(session: ProbeSession, request: ScoreRequest) -> tuple[Asked, TopLogprobs | BackendError]:
    """The prompt as the routes send it, and the next tokens listed after it."""
    found = session.capabilities
    prompt = await _prompt(session, request)
    if isinstance(prompt, BackendError):
        return "", prompt
    if isinstance(prompt, str):
        return prompt, await session.next_tokens(prompt, min(found.largest_k, _LISTED))
    if prompt[-1].role == "assistant":  # servers differ in how they continue it
        return prompt, BackendError("unsupported", "the prompt ends in an assistant prefill")
    return prompt, await session.next_chat_tokens(prompt, found.largest_chat_k)


async def _prompt(session: ProbeSession, request: ScoreRequest) -> Asked | BackendError:
    """The prompt as the routes send it."""
    if not isinstance(request.prompt, str) and session.capabilities.chat_route == "rendered":
        return await session.ask(session.api.rendered_chat, request.prompt)
    return request.prompt


def _difference(response: ScoreResponse, top: TopLogprobs) -> float:
    """The largest difference between a first token's score and its listed value, in nats."""
    listed = {token.text: token.logprob for token in top.tokens if top.identifies(token)}
    firsts = [score.tokens[0] for score in response.scores if score.boundary == "clean" and score.tokens]
    return max(
        (
            abs(first.logprob - listed[first.text])
            for first in firsts
            if first.exact and first.start == 0 and listed.get(first.text, -math.inf) > NEGLIGIBLE
        ),
        default=0.0,
    )
