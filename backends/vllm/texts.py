"""Texts by vLLM's own sampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backends.base import GenerateRequest, GenerateResponse, OnResponse, Prompt
from backends.errors import BackendError
from backends.local.backend import discard_response
from backends.local.generation import Generated, check_known, check_length
from backends.vllm.engine import Asked, VLLMEngine


class VLLMTexts:
    """Writes texts with one loaded model, as many at once as vLLM finds room for.

    The random numbers of a text depend on its seed and repeat alone. Its logits are rounded differently beside other
    texts, which occasionally decides a near tie.
    """

    route = "vLLM's own sampler"

    def __init__(self, engine: VLLMEngine, render: Callable[[Prompt], list[int]]) -> None:
        self._engine, self._render = engine, render

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        on_response: OnResponse = discard_response,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[Generated]:
        """As in `backends.local.causal.Writer`."""
        answers: list[Generated | None] = [None] * len(requests)
        asked: list[Asked] = []
        places: list[int] = []
        for place, request in enumerate(requests):
            try:
                prompt = self._render(request.prompt)
                check_length(prompt, request, self._engine.context + 1)
                check_known(prompt, self._engine.vocabulary)
            except BackendError as error:  # e.g. a chat prompt for a model without chat template
                answers[place] = error
            else:
                asked.append((prompt, _params(request)))
                places.append(place)

        def told(at: int, output: Any) -> None:
            answers[places[at]] = answer = _answer(output)
            on_response(places[at], answer)

        for at, output in enumerate(self._engine.run(asked, told, is_stopped)):
            if isinstance(output, BackendError):
                answers[places[at]] = output
        return [answer for answer in answers if answer is not None]


def _params(request: GenerateRequest) -> Any:
    from vllm import SamplingParams

    sampling = request.sampling
    seeds = np.random.SeedSequence((request.seed % 2**64, request.repeat % 2**64))
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        repetition_penalty=sampling.repetition_penalty,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        seed=int(seeds.generate_state(1, np.uint64)[0] >> np.uint64(1)),
        logprobs=0,  # of the drawn tokens: NaN shows a model whose output is no distribution
        flat_logprobs=True,
    )


def _answer(output: Any) -> Generated:
    (text,) = output.outputs
    if any(math.isnan(value) for value in text.logprobs.logprobs):
        return BackendError(
            "internal",
            "a log-probability of NaN: the model's output is not a distribution over tokens",
            hint="try float32, or another quantisation",
        )
    if text.finish_reason not in ("stop", "length"):
        return BackendError("internal", f"vLLM ended the text: {text.finish_reason}", retryable=True)
    # A stop string is part of what was drawn; the token that ends a text is not.
    ended = text.finish_reason == "stop" and not isinstance(text.stop_reason, str)
    return GenerateResponse(
        text.text, text.finish_reason, len(output.prompt_token_ids), len(text.token_ids) - int(ended)
    )
