"""A check on a run's own questions: whether the server's draws fit its lists there, and its lists fit its scores.

A probe only uses prompts of its own. It misses numbers that are false for the audited prompts or words alone. Draws
after some of the run's questions reveal those, unless the draws are falsified in the same way.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from backends.base import ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai.api import ServerApi
from backends.openai.capabilities import ServerCapabilities, Together
from backends.openai.probe.calibration import Place, listed_texts
from backends.openai.probe.experiments.draws import Asked, compare_draws, drawn_places
from backends.openai.probe.session import MAX_NOISE, NEGLIGIBLE, NotTestedError, ProbeSession
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import TopLogprobs

#: Questions of a run that are checked: this share, at most this many; none in runs with fewer than the last.
_SHARE, _MOST, _FEWEST_SEEN = 0.25, 30, 10
#: Of these, the share and maximum that draws are made after, and the maximum if each draw takes a request. The others
#: are only compared with their lists, if the scores come from another route.
_SHARE_DRAWN, _MOST_DRAWN, _MOST_ONE_BY_ONE = 0.4, 10, 5
_OTHER_ROUTES = ("echo", "prompt_logprobs")
#: Requests for draws: this share of the run's own, at least and at most so many; and draws per request.
_REQUESTS_SHARE = 0.02
_REQUESTS: Mapping[Together | None, tuple[int, int]] = {"n": (20, 20), "prompts": (10, 30), None: (30, 300)}
_OF_A_REQUEST: Mapping[Together | None, int] = {"n": 50, "prompts": 20, None: 1}
#: Entries of each list.
_LISTED = 1000
#: Nats by which a score's first token may differ from its list: half precision rounds long texts by 0.05.
_OFF = 0.1
#: How many questions must differ to count as a contradiction.
_MIN_OFF = 2


class OwnQuestions:
    """A uniform random sample of a run's scored questions (reservoir sampling)."""

    def __init__(self) -> None:
        self._kept: list[tuple[ScoreRequest, ScoreResponse]] = []
        self._seen = 0
        self._draw = random.SystemRandom()

    def add(self, request: ScoreRequest, response: ScoreResponse) -> None:
        self._seen += 1
        if len(self._kept) < _MOST:
            self._kept.append((request, response))
        elif (at := self._draw.randrange(self._seen)) < _MOST:
            self._kept[at] = request, response

    def take(self) -> list[tuple[ScoreRequest, ScoreResponse]]:
        """Return a random share of the questions seen, and start anew."""
        n = min(round(_SHARE * self._seen), _MOST) if self._seen >= _FEWEST_SEEN else 0
        taken = self._draw.sample(self._kept, n)
        self._kept, self._seen = [], 0
        return taken


async def contradiction(
    api: ServerApi,
    capabilities: ServerCapabilities,
    tokenizer: RemoteTokenizer | None,
    asked: Sequence[tuple[ScoreRequest, ScoreResponse]],
    requests: int,
) -> str:
    """How the server contradicts the scores of these questions; empty if it does not, or if this cannot be tested.

    ``requests`` is how many the run has sent. An honest server is flagged once in 10,000 runs, as by the probe.
    """
    session = ProbeSession(api)
    session.capabilities, session.tokenizer = capabilities, tokenizer
    session.by_ids = capabilities.takes_ids and tokenizer is not None
    if not asked or capabilities.repeat_noise > MAX_NOISE:
        return ""
    is_chat = not isinstance(asked[0][0].prompt, str) and capabilities.chat_route != "rendered"
    way = None if is_chat and capabilities.together == "prompts" else capabilities.together
    listed: list[tuple[Asked, dict[str, float]]] = []
    n_compared = n_moved = 0
    n_drawn = min(math.ceil(_SHARE_DRAWN * len(asked)), _MOST_DRAWN if way else _MOST_ONE_BY_ONE)
    for at, (request, response) in enumerate(asked):
        if at >= n_drawn and capabilities.text_route not in _OTHER_ROUTES:
            break
        prompt, top = await _listed(session, request)
        if isinstance(top, TopLogprobs):
            if at < n_drawn:
                listed.append((prompt, listed_texts(top, trimmed=not isinstance(prompt, str))))
            n_compared += 1
            n_moved += _difference(response, top) > max(_OFF, 4 * capabilities.repeat_noise)
    if n_moved >= _MIN_OFF:
        return f"the scores of {n_moved} of {n_compared} questions differ from what the server lists after them"
    if not listed:
        return ""
    fewest, most = _REQUESTS[way]
    draws = _OF_A_REQUEST[way] * min(max(round(_REQUESTS_SHARE * requests), fewest), most)

    async def draw() -> list[list[Place]]:
        return [await drawn_places(session, listed, math.ceil(draws / len(listed)))]

    try:
        _, fit, message = await compare_draws(session, draw, pooled=True)
    except NotTestedError:
        return ""
    return "" if fit else f"tokens drawn after the run's own questions do not fit their lists ({message})"


async def _listed(session: ProbeSession, request: ScoreRequest) -> tuple[Asked, TopLogprobs | BackendError]:
    """The prompt as the routes send it, and the next tokens listed after it."""
    found, prompt = session.capabilities, request.prompt
    if not isinstance(prompt, str) and found.chat_route == "rendered":
        rendered = await session.ask(session.api.rendered_chat, prompt)
        if isinstance(rendered, BackendError):
            return prompt, rendered
        prompt = rendered
    if isinstance(prompt, str):
        return prompt, await session.next_tokens(prompt, min(found.largest_k, _LISTED))
    if prompt[-1].role == "assistant":  # servers differ in how they continue it
        return prompt, BackendError("unsupported", "the prompt ends in an assistant prefill")
    return prompt, await session.next_chat_tokens(prompt, found.largest_chat_k)


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
