"""An honest server over a real model, for what no server of the package index shows in every run.

Two styles: ``vllm`` has token ids, ``prompt_logprobs``, chosen tokens and lists of 20, and continues the start of an
answer on request; ``openai`` has chats only, lists of 5, knows the limit as ``max_completion_tokens``, and starts
each answer anew. Model: `ReferenceModel`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tests.backends.openai.raw_server import RawServer, Reply
from tests.backends.openai.reference_model import ReferenceModel

MODEL = "honest-llama"
LONGEST = {"vllm": 20, "openai": 5}


class ModelServer(RawServer):
    """Serves one model. ``prefill_repeated``: the lists of a chat start with the assistant prefill."""

    def __init__(
        self, llama: ReferenceModel, style: Literal["vllm", "openai"], *, prefill_repeated: bool = False
    ) -> None:
        super().__init__()
        self._llama, self._style, self._prefill_repeated = llama, style, prefill_repeated
        self._numbers = itertools.count()

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if sent.get("model") != MODEL:
            return _refusal(404, "no such model")
        if path == "/v1/chat/completions":
            return self._chat(sent)
        if self._style == "openai":
            return _refusal(404, "no such route")
        if path == "/tokenize":
            return Reply({"tokens": self._llama.tokenize(sent["prompt"])}) if "prompt" in sent else _refusal(400, "no")
        if path == "/detokenize":
            return Reply({"prompt": b"".join(map(self._llama.piece, sent["tokens"])).decode("utf-8", "replace")})
        return self._completions(sent) if path == "/v1/completions" else _refusal(404, "no such route")

    def _completions(self, sent: dict[str, Any]) -> Reply:
        if sent.get("echo"):
            return _refusal(400, "echo is not supported")
        k = sent.get("logprobs")
        if k is not None and k > LONGEST[self._style]:
            return _refusal(400, f"logprobs must be at most {LONGEST[self._style]}")
        prompt = sent["prompt"]
        prompts = prompt if isinstance(prompt, list) and isinstance(prompt[0], str) else [prompt]
        choices, counts = [], [0, 0]
        for one in prompts:
            ids = self._llama.tokenize(one) if isinstance(one, str) else one
            for _ in range(sent.get("n", 1)):
                drawn, rows = self._drawn(ids, sent)
                choice = {"index": len(choices), "text": self._text(drawn), "finish_reason": "length"}
                if k is not None:
                    choice["logprobs"] = self._legacy(drawn[:1], rows[0], k, sent)
                if "prompt_logprobs" in sent:
                    choice["prompt_logprobs"] = self._of_prompt(ids)
                choices.append(choice)
                counts = [counts[0] + len(ids), counts[1] + len(drawn)]
        return self._answer(choices, *counts)

    def _chat(self, sent: dict[str, Any]) -> Reply:
        limit = sent.get("max_tokens")
        if self._style == "openai" and limit is not None:
            return _refusal(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        k = sent.get("top_logprobs", 0)
        if k > LONGEST[self._style]:
            return _refusal(400, f"top_logprobs must be at most {LONGEST[self._style]}")
        turns, start = sent["messages"], ""
        if self._style == "vllm" and sent.get("continue_final_message"):
            turns, start = turns[:-1], turns[-1]["content"]
        begun = self._llama.rendered(turns)
        ids = self._llama.tokenize(begun + start)
        choices = []
        for index in range(sent.get("n", 1)):
            drawn, rows = self._drawn(ids, {"max_tokens": sent.get("max_completion_tokens"), **sent})
            message = {"role": "assistant", "content": self._text(drawn)}
            choice = {"index": index, "message": message, "finish_reason": "length"}
            if sent.get("logprobs"):
                first, row = drawn[0], rows[0]
                if self._prefill_repeated and start:
                    own = self._llama.tokenize(begun)
                    first, row = ids[len(own)], self._llama.rows(own)[-1]
                tops = [self._entry(t, row) for t in _likeliest(row, k)]
                choice["logprobs"] = {"content": [{**self._entry(first, row), "top_logprobs": tops}]}
            choices.append(choice)
        return self._answer(choices, len(ids), len(drawn))

    def _drawn(self, ids: Sequence[int], sent: dict[str, Any]) -> tuple[list[int], list[np.ndarray]]:
        random = np.random.default_rng(sent.get("seed"))
        drawn: list[int] = []
        rows = []
        for _ in range(sent["max_tokens"]):
            row = self._llama.rows([*ids, *drawn])[-1]
            wished = row.copy()
            for token, bias in sent.get("logit_bias", {}).items():
                wished[int(token)] += bias
            weights = np.exp(wished / (sent["temperature"] or 1))
            greedy = sent["temperature"] == 0
            drawn.append(int(wished.argmax() if greedy else random.choice(len(row), p=weights / weights.sum())))
            rows.append(row)
        return drawn, rows

    def _legacy(self, drawn: Sequence[int], row: np.ndarray, k: int, sent: dict[str, Any]) -> dict[str, Any]:
        named = sent.get("logprob_token_ids") or _likeliest(row, k)
        by_id = sent.get("return_tokens_as_token_ids")
        top = {(f"token_id:{t}" if by_id else self._text([t])): float(row[t]) for t in [*drawn, *named]}
        tokens = [f"token_id:{t}" if by_id else self._text([t]) for t in drawn]
        return {"tokens": tokens, "token_logprobs": [float(row[drawn[0]])], "top_logprobs": [top], "text_offset": [0]}

    def _of_prompt(self, ids: Sequence[int]) -> list[dict[str, Any] | None]:
        rows = self._llama.rows(ids)
        rows_of_ids = [{str(t): {"logprob": float(row[t])}} for row, t in zip(rows, ids[1:], strict=False)]
        return [None, *rows_of_ids]

    def _entry(self, token: int, row: np.ndarray) -> dict[str, Any]:
        data = self._llama.piece(token)
        return {"token": data.decode("utf-8", "replace"), "bytes": list(data), "logprob": float(row[token])}

    def _text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self._llama.piece, tokens)).decode("utf-8", "replace")

    def _answer(self, choices: list[dict[str, Any]], prompt: int, completion: int) -> Reply:
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return Reply({"id": f"cmpl-{next(self._numbers)}", "model": MODEL, "choices": choices, "usage": usage})


def _likeliest(row: np.ndarray, k: int) -> list[int]:
    return [int(t) for t in np.argsort(-row)[:k]]


def _refusal(status: int, message: str) -> Reply:
    return Reply({"error": {"message": message, "type": "invalid_request_error"}}, status)
