"""Checks on a run's own questions while it runs: words drawn after some of them, and their scores against the lists.

No prompt of our own shows numbers that are false for the audited questions alone. Each check is one request: its list
is compared with the question's score, and the words drawn beside it with the list.
"""

from __future__ import annotations

import functools
import math
import random
from collections import deque
from typing import Any

from backends.base import ChecksMade, GenerateRequest, Message, Prompt, Sampling, ScoreRequest, ScoreResponse
from backends.checking import MOST_LATE, drawn_early, drawn_late
from backends.errors import BackendError, ConfigError
from backends.http.usage import reported_tokens
from backends.openai.api import ModelChangedError, ServerApi, turns_of
from backends.openai.generation import sampling_options
from backends.openai.look.draw_test import LEVEL, Place, surprise
from backends.openai.look.session import Look
from backends.openai.quirks import DIALECTS
from backends.openai.scoring.lists import ask
from backends.openai.scoring.top_logprobs import TopLogprobs, read_all_lists

#: Answers drawn after a question, and their words where a request gives several and where it gives one.
_DRAWS, _TOKENS, _MOST_TOKENS = 20, 4, 32
MOST_DRAWN = _DRAWS * _TOKENS
#: Nats by which a score and the list after the question differ by noise at most, below what they are not compared, and
#: how many words must differ.
_OFF, _LIKELY, _FEWEST_OFF = 1.0, -6.0, 2
#: Draws after which they are tested the first time; then at the end.
_TESTED_EARLY = 9
#: Failures after which no more is drawn: the server does not do it.
_MOST_FAILED = 2
#: Tokens by which the counts may differ (a BOS token, the end of a turn), and how many prompts must differ.
_MOST_TOKENS_OFF, _FEWEST_PROMPTS = 3, 2
_TOO_LIKELY = (
    "likely by its own lists: it draws with a top-k, top-p or temperature of its own, or its lists are flatter than "
    'the model. Set extra_body={"top_k": 0, "min_p": 0}, or the server\'s defaults so'
)
_TOO_UNLIKELY = (
    "unlikely by its own lists: these hold a temperature, a top-k or another model's numbers. Let the server list the "
    "model's own (vLLM: --logprobs-mode raw_logprobs --generation-config vllm)"
)


class RunChecks:
    """The checks of one run. ``named``: the hub's name of the model's own tokenizer, if the user gave one."""

    def __init__(self, api: ServerApi, look: Look, named: str | None = None) -> None:
        self._api, self._look = api, look
        self._counts = PromptCounts(named) if named else None
        self._asked = self._drawn = self._failed = self._questions = 0
        self._last: deque[tuple[ScoreRequest, ScoreResponse]] = deque(maxlen=MOST_LATE)
        self._places: list[Place] = []
        self._moves: list[list[float]] = []  # of each question that can be compared
        self._contradicted: list[str] = []
        self._choices = min(look.capabilities.choices, _DRAWS)

    @staticmethod
    def most_requests(questions: int) -> int:
        """How many requests these checks take at most, of so many questions."""
        return drawn_early(questions) + drawn_late(questions)

    @property
    def made(self) -> ChecksMade:
        """What was checked so far."""
        return ChecksMade(self._look.prompts, self._questions, len(self._places), tuple(map(max, self._moves)))

    @property
    def drawn_tokens(self) -> int:
        """Tokens that each check draws, in all its answers together."""
        family = self._look.capabilities.family
        alone = DIALECTS[family].words_drawn if family else _MOST_TOKENS
        return self._choices * _TOKENS if self._choices > 1 else alone

    async def after(self, request: ScoreRequest, response: ScoreResponse) -> None:
        """Draw after a question that was just answered, if it is one of the early ones that are checked.

        Raises `ModelChangedError` if the draws so far, or the scores, cannot be true.
        """
        self._asked += 1
        if self._drawn < drawn_early(self._asked):
            self._drawn += 1
            await self._draw(request, response)
            if self._drawn == _TESTED_EARLY:
                self._test()
        else:
            self._last.append((request, response))

    async def at_the_end(self) -> None:
        """Draw after some of the last questions. Raises `ModelChangedError` as `after` does."""
        late = drawn_late(self._asked)
        for request, response in [*self._last][-late:] if late else []:
            await self._draw(request, response)
        self._last.clear()
        self._test()

    async def _draw(self, request: ScoreRequest, response: ScoreResponse) -> None:
        found, prompt = self._look.capabilities, request.prompt
        is_text = isinstance(prompt, str) or found.chat_route == "rendered"
        if self._failed > _MOST_FAILED or not (k := found.compared(texts=is_text)):
            return
        if not is_text and isinstance(prompt[-1], Message) and prompt[-1].role == "assistant":
            return  # servers differ in how they continue it
        try:
            sent = await self._api.rendered_chat(prompt) if is_text and not isinstance(prompt, str) else prompt
            answer = await ask(self._api, sent, k, **self._options())
        except BackendError as error:
            if error.kind in ("bad_request", "unsupported") and self._choices > 1:
                self._choices = 1  # it gives no lists beside several answers
            self._failed += 1
            return
        if self._counts is not None:
            self._counts.add(prompt, answer.get("usage"))
        try:
            tops = read_all_lists(answer, k)
        except BackendError as error:
            self._contradicted += [error.message] * (error.kind == "inconsistent")
            return
        if tops:
            self._questions += 1
            self._places += [Place.of(top, [top.sampled]) for top in tops]
            self._moves += filter(None, [_moves(response, tops[0])])

    def _options(self) -> dict[str, Any]:
        """Of a request for draws with their lists."""
        found, n = self._look.capabilities, self._choices
        one = GenerateRequest("", Sampling(temperature=1.0, max_tokens=self.drawn_tokens // n))
        options = sampling_options(one, found.family) | ({"n": n} if n > 1 else {})
        return options | ({"seed": random.getrandbits(31)} if found.seed_works else {})

    def _test(self) -> None:
        """Raise `ModelChangedError` for what cannot be true."""
        if self._counts is not None and (problem := self._counts.problem()):
            raise ModelChangedError(problem)
        if len(self._contradicted) >= _FEWEST_OFF:
            seen = f"the lists beside {len(self._contradicted)} of its drawn answers cannot be true"
            raise ModelChangedError(f"{seen} ({self._contradicted[0]}): what it draws is {_TOO_UNLIKELY}")
        moves = [move for of_question in self._moves for move in of_question]
        off = [move for move in moves if move > _OFF]
        if len(off) >= _FEWEST_OFF:
            raise ModelChangedError(
                f"the scores of {len(off)} of {len(moves)} words are up to {max(off):.2g} nats from what it "
                "lists after the same questions: two models answer, or one of its two kinds of numbers is false. "
                "Set the model's version and provider (extra_body)"
            )
        chance, too_likely = surprise(self._places) if self._places else (1.0, False)
        if chance <= LEVEL:
            seen = f"{self.made.draws} words drawn after {self.made.questions} of the run's questions are too"
            raise ModelChangedError(f"{seen} {_TOO_LIKELY if too_likely else _TOO_UNLIKELY}")


def _moves(response: ScoreResponse, top: TopLogprobs) -> list[float]:
    """By how many nats the scores' likely first tokens differ from the list."""
    listed = top.identified()
    firsts = [score.tokens[0] for score in response.scores if score.boundary == "clean" and score.tokens]
    return [
        abs(first.logprob - listed[first.text])
        for first in firsts
        if first.exact and first.start == 0 and listed.get(first.text, -math.inf) > _LIKELY
    ]


class PromptCounts:
    """The server's counts of prompts' tokens against those of the model's own tokenizer.

    They show what stands before every prompt, what rewrites prompts, and words that are masked. ``name``: a tokenizer
    on the hub, or a folder.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._off: list[tuple[int, int]] = []
        self._compared = 0

    def add(self, prompt: Prompt, usage: Any) -> None:
        """Compare the count of a prompt that was answered; one that the server does not count is left out."""
        if (counted := reported_tokens(usage, "prompt_tokens")) is None:
            return
        self._compared += 1
        if abs(counted - (own := self._count(prompt))) > _MOST_TOKENS_OFF:
            self._off.append((counted, own))

    def problem(self) -> str:
        """What the counts show, in one sentence; empty if they agree."""
        if len(self._off) < _FEWEST_PROMPTS:
            return ""
        counted, own = self._off[0]
        return (
            f"it counts {counted} tokens where {self._name} makes {own} of what was sent, and differs for "
            f"{len(self._off)} of {self._compared} prompts: a text is added, or prompts are rewritten or cut. Ask the "
            "model's own server, or correct tokenizer"
        )

    def _count(self, prompt: Prompt) -> int:
        if isinstance(prompt, str):
            return len(self._tokenizer(prompt)["input_ids"])
        text = self._tokenizer.apply_chat_template(turns_of(prompt), tokenize=False, add_generation_prompt=True)
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self._name)
        except (OSError, ValueError) as error:
            problem = str(error).split("\n")[0]
            raise ConfigError("tokenizer", self._name, problem, "Name the model's folder or hub id") from None
