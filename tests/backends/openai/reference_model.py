"""The truth about a GGUF model, the plain way: llama.cpp, one sequence, one continuation after the other.

The same engine and settings as the server of `tests.servers.llama_cpp_python_server`, so that
nothing but the way to the number differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp.llama_chat_format import Jinja2ChatFormatter
from scipy.special import log_softmax


class ReferenceModel:
    """log P(continuation | prompt) of one model, in nats."""

    def __init__(self, model: Path) -> None:
        self._llm = llama_cpp.Llama(
            str(model), n_ctx=512, n_threads=2, n_threads_batch=2, flash_attn=True, verbose=False
        )
        self._ids: list[int] = []
        self._rows: list[np.ndarray] = []

    def tokenize(self, text: str) -> list[int]:
        """Token ids, BOS included where the model has one."""
        return self._llm.tokenize(text.encode(), add_bos=True, special=True)  # type: ignore[no-any-return]

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for."""
        return self._llm.detokenize([token], special=True)  # type: ignore[no-any-return]

    def rendered(self, messages: Sequence[dict[str, str]]) -> str:
        """A chat as text, by the model's own template, with the assistant's turn begun."""
        formatter = Jinja2ChatFormatter(self._llm.metadata["tokenizer.chat_template"], eos_token="", bos_token="")
        return formatter(messages=list(messages)).prompt  # type: ignore[no-any-return, arg-type]

    def rows(self, ids: Sequence[int]) -> list[np.ndarray]:
        """log P(next token) over the vocabulary after each of these tokens."""
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ids, self._ids, strict=False)))
        self._llm.n_tokens, self._ids, self._rows = same, self._ids[:same], self._rows[:same]
        for token in ids[same:]:
            self._llm.eval([token])
            self._ids.append(token)
            self._rows.append(self._next())
        return list(self._rows)

    def scores(self, prompt: str, continuations: Sequence[str]) -> list[float]:
        """For continuations that start with a token of their own, as " she" does."""
        prefix = self.tokenize(prompt)
        self._llm.reset()
        self._ids, self._rows = [], []
        self._llm.eval(prefix)
        first = self._next()
        totals = []
        for continuation in continuations:
            ids = self.tokenize(prompt + continuation)
            assert ids[: len(prefix)] == prefix
            total, self._llm.n_tokens = first[ids[len(prefix)]], len(prefix)
            for before, token in zip(ids[len(prefix) :], ids[len(prefix) + 1 :], strict=False):
                self._llm.eval([before])
                total += self._next()[token]
            totals.append(float(total))
        return totals

    def close(self) -> None:
        self._llm.close()

    def _next(self) -> np.ndarray:
        logits = llama_cpp.llama_get_logits_ith(self._llm.ctx, -1)
        return log_softmax(np.ctypeslib.as_array(logits, shape=(self._llm.n_vocab(),)).astype(np.float64))
