"""Whether a model that showed no thought in its probe thinks before some answers of the run.

A drawn answer has few tokens. One that is cut off and begins with none of the words that are counted is another answer,
or the start of a thought that the model's template opened unseen: then nothing is known of the answer.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import GenerateRequest, GenerateResponse, Message, Sampling, ScoreRequest
from backends.errors import BackendError, UncheckedError
from backends.http.retries import with_retries
from backends.http.usage import reasoning_tokens
from backends.openai.capabilities import ServerCapabilities
from backends.openai.protocol.api import ServerApi, single_choice
from backends.openai.protocol.parameters import sampling_options
from backends.reading.reasoning import has_reasoned, is_opened_before
from backends.reading.words import begins_with_words

#: Questions that are asked again, each with room for a thought: if half of the cut answers were thoughts, one of these
#: shows it but in one run of 4,000.
_ASKED, _ROOM = 12, 1024
LATE_THOUGHTS = (
    "it thinks before some answers, which its probe did not show: "
    "thoughts that were cut off were counted as other answers"
)
_UNCHECKED = (
    "whether it thinks before some answers could not be checked: drawn answers were cut off, which may be thoughts, "
    "and {} of {} questions that were asked again with room for one failed ({}). If it thinks, these answers were "
    "counted as other ones"
)


class CutAnswers:
    """A sample of the questions of a run of which a drawn answer was cut off and is counted as another one."""

    def __init__(self) -> None:
        self._seen, self._kept = 0, list[ScoreRequest]()
        self._draw = random.SystemRandom()

    def add(self, request: ScoreRequest, answers: Sequence[GenerateResponse | None]) -> None:
        """Note a question, if an answer to it may have been a thought."""
        if not any(answer is not None and _is_cut(answer, request.continuations) for answer in answers):
            return
        self._seen += 1
        if len(self._kept) < _ASKED:
            self._kept.append(request)
        elif (place := self._draw.randrange(self._seen)) < _ASKED:
            self._kept[place] = request

    def requests(self, found: ServerCapabilities) -> int:
        """How many requests `with_thoughts` may take."""
        return _ASKED if "sampled" in found.routes and not found.reasons else 0

    async def with_thoughts(self, api: ServerApi, found: ServerCapabilities) -> ServerCapabilities:
        """The capabilities, with ``reasons`` where a question that is asked again shows a thought.

        Raises `UncheckedError` if none does, and some could not be asked.
        """
        if found.reasons:
            return found
        failures: list[BackendError] = []
        for request in self._kept:
            try:
                choice, is_counted = await with_retries(_with_room, api, found, request)
            except BackendError as error:
                failures.append(error)
                continue
            if is_counted or has_reasoned(choice) or is_opened_before(choice):
                return found.model_copy(update={"reasons": True, "opened_unseen": is_opened_before(choice)})
        if failures:
            raise UncheckedError(failures[-1].kind, _UNCHECKED.format(len(failures), len(self._kept), failures[-1]))
        return found


async def _with_room(
    api: ServerApi, found: ServerCapabilities, request: ScoreRequest
) -> tuple[Mapping[str, Any], bool]:
    """An answer with room for a thought, and whether the server counts tokens of one."""
    sampling = Sampling(temperature=1.0, max_tokens=_ROOM)
    options = sampling_options(GenerateRequest(request.prompt, sampling), found.family)
    if isinstance(request.prompt, str) and found.completions:
        response = await api.completion(request.prompt, **options)
    else:
        turns = (Message("user", request.prompt),) if isinstance(request.prompt, str) else request.prompt
        response = await api.chat(turns, **options)
    return single_choice(response), reasoning_tokens(response.get("usage")) > 0


def _is_cut(answer: GenerateResponse, continuations: Sequence[str]) -> bool:
    return answer.finish_reason == "length" and not any(
        begins_with_words(answer.text, words) for words in continuations
    )
