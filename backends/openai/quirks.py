"""Where servers depart from OpenAI's documents, as data: each entry names its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Dialect = Literal["llama.cpp", "llama-cpp-python", "vllm", "sglang"]
LimitName = Literal["max_tokens", "max_completion_tokens"]


class DialectQuirks(NamedTuple):
    """Extra endpoints and options of one engine.

    ``tokenize``, ``text_field``, ``tokenize_options``: path, the text's field, further fields. ``detokenize``,
    ``detokenized``, ``detokenize_options``: path and the answer's field; empty where tokens come with their bytes.
    ``words_drawn``: of one answer that is drawn beside lists.
    """

    tokenize: str
    text_field: str
    detokenize: str
    detokenized: str
    penalty: str
    names_model: bool = True
    tokenize_options: Mapping[str, Any] = {}
    detokenize_options: Mapping[str, Any] = {}
    words_drawn: int = 32


#: Read from each engine's own server code: llama.cpp tools/server, llama_cpp/server/app.py, vllm/entrypoints/openai,
#: sglang/srt/entrypoints.
DIALECTS: Mapping[Dialect, DialectQuirks] = {
    "llama.cpp": DialectQuirks(
        *("/tokenize", "content", "", "", "repeat_penalty", False),
        {"add_special": True, "parse_special": True, "with_pieces": True},
    ),
    "llama-cpp-python": DialectQuirks(
        *("/extras/tokenize", "input", "/extras/detokenize", "text", "repeat_penalty"),
        words_drawn=1,  # for each listed token it sorts its whole vocabulary in Python (llama_cpp/llama.py)
    ),
    "vllm": DialectQuirks("/tokenize", "prompt", "/detokenize", "prompt", "repetition_penalty"),
    "sglang": DialectQuirks(
        "/tokenize", "prompt", "/detokenize", "text", "repeat_penalty", True, {}, {"skip_special_tokens": False}
    ),
}

#: Finish reasons in OpenAI's terms: Gemini and some gateways write them in capitals, Claude's pass through OpenRouter,
#: ``model_length`` is Mistral's, ``eos_token`` TGI's.
FINISH_REASONS: Mapping[str, Literal["stop", "length"]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
}
#: OpenAI's newer models accept only this name for the limit on tokens, and say so.
NEW_LIMIT: LimitName = "max_completion_tokens"
#: What the refusal of a chat says where the model is reached by the Responses API alone: OpenAI's, and Azure's
#: (vanna-ai/vanna #967).
ONLY_RESPONSES = re.compile(r"v1/responses|chatCompletion operation does not work")
#: The fewest tokens that the Responses API may be limited to (https://platform.openai.com/docs/api-reference/responses).
RESPONSES_MIN_TOKENS = 16
#: How byte-level and SentencePiece vocabularies write a space, which some servers show (TGI; mlx_lm.server).
SPACE_MARKS = ("Ġ", "▁")
#: Servers give about this in place of an unknown log-probability (OpenAI's legacy completions).
PLACEHOLDER = -9000.0
