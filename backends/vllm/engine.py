"""vLLM's engine in this process: loaded once, then given many requests at a time."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

from backends.errors import BackendError, StoppedError

#: Tokens of a block of the prefix cache. On the CPU vLLM's own default is longer than most prompts, which would then
#: share nothing.
BLOCK_TOKENS = 32
#: The share of the memory free at the start that a CPU engine may take.
_SHARE_OF_FREE_MEMORY = 0.5

Asked = tuple[Sequence[int], Any]
"""The tokens of a prompt, and vLLM's ``SamplingParams``."""


class VLLMEngine:
    """A loaded model.

    Parameters
    ----------
    model : str
        Folder or hub id.
    options : mapping
        Further arguments of ``vllm.LLM``; they win over the defaults here.
    on_cpu : bool

    Attributes
    ----------
    context : int
        Maximum tokens that the model reads before it predicts one more.
    vocabulary : int
        Number of tokens that the model has a logit for.
    computes_in_float32 : bool
        Whether nothing rounds more than float32 does.
    """

    def __init__(self, model: str, options: Mapping[str, Any], *, on_cpu: bool) -> None:
        # One process is enough for one device, needs no guard in the caller's script, and ends with this one.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        if on_cpu:  # busy waiting would take the cores from everything else here
            os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        from vllm import LLM

        usual: dict[str, Any] = {
            "enable_prefix_caching": True,
            "max_logprobs": -1,
            # Log-probabilities before a sampler's changes; vLLM can also give logits, or those after them.
            "logprobs_mode": "raw_logprobs",
            "seed": 0,
        }
        if on_cpu:
            memory = psutil.virtual_memory()
            share = _SHARE_OF_FREE_MEMORY * memory.available / memory.total
            usual |= {"block_size": BLOCK_TOKENS, "gpu_memory_utilization": round(share, 2)}
        self._llm: Any = LLM(model, **{**usual, **options})
        self._engine = self._llm.llm_engine
        config = self._engine.model_config
        self.context: int = config.max_model_len - 1
        self.vocabulary: int = config.get_vocab_size()
        self.computes_in_float32 = str(config.dtype) == "torch.float32" and config.quantization is None
        self._asked = 0

    def run(
        self,
        asked: Sequence[Asked],
        on_done: Callable[[int, Any], None] = lambda place, output: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[Any]:
        """vLLM's finished ``RequestOutput`` for each request, in order, or why vLLM refuses it.

        ``on_done`` is called with each output as soon as it is finished. ``is_stopped`` is asked before each step; once
        it says so, requests that have not finished are `StoppedError`.

        Raises
        ------
        Exception
            Whatever vLLM raises while it computes; nothing is then left in its queue.
        """
        from vllm.inputs import TokensPrompt

        outputs: list[Any] = [None] * len(asked)
        places: dict[str, int] = {}
        try:
            for place, (tokens, params) in enumerate(asked):
                self._asked += 1
                name = f"audit-{self._asked}"
                try:
                    self._engine.add_request(name, TokensPrompt(prompt_token_ids=list(tokens)), params)
                except Exception as error:  # foreign code: it refuses a request in many ways
                    outputs[place] = BackendError.of(error)
                else:
                    places[name] = place
            while places and not is_stopped():
                for output in self._engine.step():
                    if output.finished and (at := places.pop(output.request_id, None)) is not None:
                        outputs[at] = output
                        on_done(at, output)
        finally:
            if places:
                self._engine.abort_request(list(places))
        for at in places.values():
            outputs[at] = StoppedError()
        return outputs

    def close(self) -> None:
        """Free the weights, and end the processes of further devices. May be called more than once."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
        self._llm = self._engine = None
        gc.collect()
