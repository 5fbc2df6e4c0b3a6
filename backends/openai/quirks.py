"""Where servers depart from OpenAI's documents, as data: each entry names its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Dialect = Literal["llama.cpp", "llama-cpp-python", "vllm"]
LimitName = Literal["max_tokens", "max_completion_tokens"]


class DialectQuirks(NamedTuple):
    """Extra endpoints and options of one engine.

    ``tokenize``, ``text_field``, ``tokenize_options``: path, the text's field, further fields. ``detokenize``: path;
    empty where tokens come with their bytes. ``always``: fields of every request. ``words_drawn``: of one answer that
    is drawn beside lists.
    """

    tokenize: str
    text_field: str
    detokenize: str
    penalty: str
    tokenize_options: Mapping[str, Any] = {}
    always: Mapping[str, Any] = {}
    words_drawn: int = 32


#: Read from each engine's own server code: llama.cpp tools/server, llama_cpp/server/app.py, vllm/entrypoints/openai
#: (and sglang/srt/entrypoints, which follows it). llama.cpp's cache of prompts moves its numbers by up to 0.7 nats.
DIALECTS: Mapping[Dialect, DialectQuirks] = {
    "llama.cpp": DialectQuirks(
        *("/tokenize", "content", "", "repeat_penalty"),
        tokenize_options={"add_special": True, "parse_special": True, "with_pieces": True},
        always={"cache_prompt": False},
    ),
    "llama-cpp-python": DialectQuirks(
        *("/extras/tokenize", "input", "/extras/detokenize", "repeat_penalty"),
        words_drawn=1,  # for each listed token it sorts its whole vocabulary in Python (llama_cpp/llama.py)
    ),
    "vllm": DialectQuirks("/tokenize", "prompt", "/detokenize", "repetition_penalty"),
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
#: How byte-level and SentencePiece vocabularies write a space, which some servers show (TGI; mlx_lm.server).
SPACE_MARKS = ("Ġ", "▁")
#: What the refusal of a chat says where the Responses API alone reaches a model: OpenAI's, and Azure's
#: (open-webui #15356, vanna-ai/vanna #967).
ONLY_RESPONSES = re.compile(r"v1/responses|chatCompletion operation does not work")
#: Servers give about this in place of an unknown log-probability (OpenAI's legacy completions).
PLACEHOLDER = -9000.0
