"""What a user can set or do where no score of a server is used, by the experiment that failed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

#: The beginning of a failed experiment's name, and what helps against what it shows. The first that fits is said.
_ADVICE = (
    (
        r"(single )?draws of|unlikely values|longest list",
        "let the server list the model's own probabilities, and draw from all of them: switch off its own top-k, top-p "
        "and penalties (vLLM: --logprobs-mode raw_logprobs --generation-config vllm)",
    ),
    (
        r"near twins|turns of chats",
        "switch off the cache of answers in front of the model, and what cuts or changes prompts",
    ),
    (
        r"token counts",
        "give the server room for whole prompts (llama.cpp: -c, vLLM: --max-model-len); let nothing be added to them",
    ),
    (r"copied characters|prompts as token ids", "let nothing between here and the model change the text of prompts"),
    (r"leading spaces|capital letters|ids of", "let nothing change the tokens in answers, or update the server"),
    (r"longer answers|lists at the end", "let one model answer every request: no router or fallback in front of it"),
    (r"repetition|chat repeated", "let it answer one request at a time (max_in_flight=1), without a cache of prompts"),
)
_ELSE = "ask the model's own server rather than a gateway in front of it"


def next_step(failed: Sequence[str], base_url: str, model: str) -> str:
    """What may help against the first of these failed experiments, and the command that shows all of a server's."""
    advice = next(filter(None, map(_against, failed)), _ELSE)
    command = f"audit probe {shlex.quote(base_url)} --model {shlex.quote(model)}"
    return f"{advice}; then `{command}`, or score the same weights by HFBackend or LlamaCppBackend"


def proofs(failed: Sequence[str]) -> list[str]:
    """Those of these experiments that show false numbers, and not just what a server lacks."""
    return [name for name in failed if _against(name)]


def _against(name: str) -> str:
    return next((advice for pattern, advice in _ADVICE if re.match(pattern, name)), "")
