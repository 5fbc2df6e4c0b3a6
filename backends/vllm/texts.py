"""Texts by vLLM's own sampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from backends.base import GenerateResponse, Prompt
from backends.errors import BackendError, StoppedError
from backends.local.generation import Generated, Tell, Text
from backends.vllm.engine import Asked, VLLMEngine


class VLLMTexts:
    """`backends.local.generation.TextEngine`: as many texts at once as vLLM finds room for.

    The random numbers of a text depend on its seed and repeat alone. Its logits are rounded differently beside other
    texts, which occasionally decides a near tie.
    """

    route = "vLLM's own sampler"

    def __init__(self, engine: VLLMEngine, render: Callable[[Prompt], list[int]]) -> None:
        self._engine, self._render = engine, render
        self.context: int | None = engine.context + 1
        self.vocabulary = engine.vocabulary

    def render(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt."""
        return self._render(prompt)

    def groups(self, texts: list[Text], most: int) -> Iterator[list[Text]]:
        """All texts together: vLLM finds room for them."""
        if texts:
            yield texts

    def write(self, texts: list[Text], most: int, tell: Tell, is_stopped: Callable[[], bool]) -> None:
        """As in `backends.local.generation.TextEngine`."""

        def told(at: int, output: Any) -> None:
            texts[at].answer = _answer(output)
            tell(texts[at])

        asked: list[Asked] = [(text.prompt, _params(text)) for text in texts]
        for at, output in enumerate(self._engine.run(asked, told, is_stopped)):
            if isinstance(output, BackendError) and not isinstance(output, StoppedError):
                texts[at].answer = output
                tell(texts[at])


def _params(text: Text) -> Any:
    from vllm import SamplingParams

    sampling = text.request.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        repetition_penalty=sampling.repetition_penalty,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        seed=text.key >> 1,
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
