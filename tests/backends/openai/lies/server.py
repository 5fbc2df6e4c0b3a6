"""A server of the word model in several styles, honest but for the one lie that it is given.

========  =====================================================================================
echo      texts, lists of 20 by string, echoed prompts (OpenAI's completions)
ids       a tokenizer, prompts as ids, ``prompt_logprobs``, lists of 20 (vLLM)
lists     texts and lists of 20 by string, nothing else
whole     a tokenizer, prompts as ids, the whole vocabulary by id (llama.cpp)
chat      chats alone, lists of 20 with bytes (OpenAI's chats)
drawn     texts without any log-probability
========  =====================================================================================

Servers of an odd seed give one draw a request: they ignore ``n``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tests.backends.openai.lies.word_model import BOS, VOCABULARY, WordModel, tokens_of, unknown_value, word_model
from tests.backends.openai.raw_server import RawServer, Reply

MODEL = "word-model"
Style = Literal["echo", "ids", "lists", "whole", "chat", "drawn"]
STYLES: tuple[Style, ...] = get_args(Style)
LONGEST = 20
LONGEST_ANSWER = 100  # tokens; where a thought may take thousands, the model ends by itself
#: They have a tokenizer, take prompts as token ids, and their texts begin with a BOS token.
WITH_IDS = ("ids", "whole")
#: The kinds of question that each style answers besides lists and draws.
KINDS = {"echo": {"echo"}, "ids": {"prompt_logprobs"}}
Tokens = tuple[str, ...]
Listed = list[tuple[str, float]]


@dataclass(frozen=True)
class Asked:
    """One question as it reached the server.

    ``text`` is its prompt, ``number`` how many came since the probe (0 in it).
    """

    path: str
    sent: dict[str, Any]
    text: str
    tokens: Tokens
    number: int

    @property
    def probed(self) -> bool:
        """Whether the probe is over."""
        return self.number > 0

    @property
    def tokens_wanted(self) -> int:
        """How long the answer may be."""
        return int(self.sent.get("max_tokens") or self.sent.get("max_completion_tokens") or 16)

    @property
    def kind(self) -> str:
        """What is wanted: echo, prompt_logprobs, list or draw."""
        if self.sent.get("echo"):
            return "echo"
        if "prompt_logprobs" in self.sent:
            return "prompt_logprobs"
        return "draw" if not self.sent.get("logprobs") else "list"


@dataclass(frozen=True)
class Lie:
    """Where the truth is bent, from the question to the reply; what is left out stays honest.

    Attributes
    ----------
    styles : tuple of str
        The styles of server that can tell it.
    hears : callable
        ``(tokens, asked) → tokens`` that the model is really run on.
    model : callable
        ``(model, asked) → model`` that answers.
    lists : callable
        ``(log-probabilities over the vocabulary, asked) → ``those that are reported.
    turns : callable
        ``messages → messages`` of a chat that are read.
    names : callable
        ``(list, likeliest first, cut to k) → list`` that is sent.
    draws : callable
        ``(log-probabilities, temperature, asked) → `` those that are drawn from.
    says : callable
        ``(reply, asked)``: changes the finished reply.
    """

    styles: tuple[Style, ...] = STYLES
    hears: Callable[[Tokens, Asked], Tokens] = lambda tokens, asked: tokens
    model: Callable[[WordModel, Asked], WordModel] = lambda model, asked: model
    lists: Callable[[np.ndarray, Asked], np.ndarray] = lambda values, asked: values
    turns: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda messages: messages
    names: Callable[[Listed], Listed] = lambda listed: listed
    draws: Callable[[np.ndarray, float, Asked], np.ndarray] = lambda values, temperature, asked: (
        values / temperature if temperature else np.where(values == values.max(), 0.0, -np.inf)
    )
    says: Callable[[Reply, Asked], None] = lambda reply, asked: None


HONEST = Lie()


class WordServer(RawServer):
    """Serves a word model. ``probe_ended`` is the number of requests after which a trial's probe was over."""

    served = MODEL

    def __init__(self, style: Style, seed: int, lie: Lie = HONEST) -> None:
        super().__init__()
        self.style, self.lie, self.model = style, lie, word_model(seed)
        self.probe_ended: int | None = None
        self._ignores_n = seed % 2 == 1
        self._vocabulary: list[str] = [BOS, *VOCABULARY]
        self._ids = {word: at for at, word in enumerate(self._vocabulary)}
        self._random = np.random.default_rng([seed, 3])
        self._numbers = itertools.count()

    def truth(self, prompt: Any, continuation: str) -> float:
        """log P(continuation | prompt) of the model."""
        tokens = self.tokens(prompt if isinstance(prompt, str) else rendered_chat(prompt))
        return self.model.logprob(tokens, tokens_of(continuation))

    def tokens(self, text: str) -> Tokens:
        """The text's tokens, BOS included."""
        return (BOS,) * (self.style in WITH_IDS) + tokens_of(text)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if "tokenize" in path:
            return self._tokenizer(path, sent)
        if sent.get("model") != MODEL:
            return refusal(404, "no such model")
        asked = self._asked(path, sent)
        if asked is None:
            return refusal(404, "no such route")
        if asked.kind not in {"list", "draw", *KINDS.get(self.style, ())}:
            return refusal(400, f"{asked.kind} is not supported")
        if self._longest(sent) > (len(VOCABULARY) if self.style == "whole" else LONGEST):
            if self.style != "whole":
                return refusal(400, f"at most {LONGEST} log-probabilities")
            sent = {**sent, "logprobs": len(VOCABULARY)}
        reply = self._answer(asked, sent)
        self.lie.says(reply, asked)
        return reply

    def _longest(self, sent: dict[str, Any]) -> int:
        return int(sent.get("top_logprobs") or 0) if "messages" in sent else int(sent.get("logprobs") or 0)

    def _asked(self, path: str, sent: dict[str, Any]) -> Asked | None:
        is_chat = path == "/v1/chat/completions"
        if is_chat != (self.style == "chat") or not path.endswith("completions"):
            return None
        number = 0 if self.probe_ended is None else self.requests - self.probe_ended
        prompt = sent.get("prompt")
        if is_chat:
            text = rendered_chat(self.lie.turns(sent["messages"]))
        elif isinstance(prompt, str):
            text = prompt
        elif self.style in WITH_IDS and isinstance(prompt, list) and all(isinstance(i, int) for i in prompt):
            tokens = tuple(self._vocabulary[i] for i in prompt)
            return Asked(path, sent, "".join(tokens), tokens, number)
        else:
            return None
        return Asked(path, sent, text, self.tokens(text), number)

    def _answer(self, asked: Asked, sent: dict[str, Any]) -> Reply:
        lie = self.lie
        heard, model = lie.hears(asked.tokens, asked), lie.model(self.model, asked)
        allowed = asked.tokens_wanted
        wanted = min(allowed, LONGEST_ANSWER)
        finish = "length" if wanted == allowed else "stop"
        seed = sent.get("seed")
        random = self._random if seed is None else np.random.default_rng([seed, len(asked.text)])
        choices = []
        for index in range(1 if self._ignores_n else int(sent.get("n") or 1)):
            drawn: list[str] = []
            for _ in range(wanted):
                values = model.logprobs((*heard, *drawn))
                weights = lie.draws(values, sent.get("temperature", 1.0), asked)
                chances = np.exp(weights - weights.max())
                drawn.append(VOCABULARY[int(random.choice(len(chances), p=chances / chances.sum()))])
            choices.append({"index": index, "finish_reason": finish, **self._said(asked, sent, heard, drawn, model)})
        count, written = len(heard), wanted * len(choices)
        usage = {"prompt_tokens": count, "completion_tokens": written, "total_tokens": count + written}
        return Reply({"id": f"cmpl-{next(self._numbers)}", "model": MODEL, "choices": choices, "usage": usage})

    def _said(
        self, asked: Asked, sent: dict[str, Any], heard: Tokens, drawn: Sequence[str], model: WordModel
    ) -> dict[str, Any]:
        text = "".join(drawn)
        k = self._longest(sent)
        values = [self.lie.lists(model.logprobs((*heard, *drawn[:at])), asked) for at in range(len(drawn) if k else 0)]
        own = [
            (word, float(of[model.index[word]]), self._listed(of, k)) for word, of in zip(drawn, values, strict=False)
        ]
        if self.style == "chat":
            choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}, "logprobs": None}
            if k:
                content = [{**_entry(word, value), "top_logprobs": _entries(listed)} for word, value, listed in own]
                choice["logprobs"] = {"content": content}
            return choice
        choice = {"text": (asked.text if sent.get("echo") else "") + text, "logprobs": None}
        if self.style == "drawn" or not sent.get("logprobs"):
            pass
        elif self.style == "whole":
            content = [{**self._by_id(w, v), "top_logprobs": [self._by_id(*e) for e in es]} for w, v, es in own]
            choice["logprobs"] = {"content": content}
        else:
            choice["logprobs"] = self._legacy(asked, sent, heard, own, model)
        if asked.kind == "prompt_logprobs":
            rows = self._rows(asked, heard, model)[1:]
            named = zip(map(self._id, asked.tokens[1:]), rows, strict=False)
            choice["prompt_logprobs"] = [None, *({str(i): {"logprob": value}} for i, value in named)]
        return choice

    def _by_id(self, word: str, value: float) -> dict[str, Any]:
        return {**_entry(word, value), "id": self._id(word)}

    def _legacy(
        self,
        asked: Asked,
        sent: dict[str, Any],
        heard: Tokens,
        own: Sequence[tuple[str, float, Listed]],
        model: WordModel,
    ) -> dict[str, Any]:
        tokens, values, tops = ([*part] for part in zip(*own, strict=True))
        tops = [dict(listed) for listed in tops]
        offsets = [len(asked.text) + sum(map(len, tokens[:at])) for at in range(len(tokens))]
        if asked.kind == "echo":
            words = tokens_of(asked.text)
            starts = [0, *itertools.accumulate(map(len, words))][: len(words)]
            rows = self._rows(asked, heard, model)
            tokens, offsets = [*words, *tokens], [*starts, *offsets]
            values, tops = [*rows, *values], [None, *({} for _ in words[1:]), *tops]  # type: ignore[list-item]
        return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _rows(self, asked: Asked, heard: Tokens, model: WordModel) -> list[Any]:
        """The value of each token that was asked for, at the place where the model hears it."""
        rows: list[Any] = [None]
        for at, token in enumerate(asked.tokens[1:], 1 + len(heard) - len(asked.tokens)):
            known = model.index.get(token)
            before = heard[: max(at, 0)]
            values = self.lie.lists(model.logprobs(before), asked)
            rows.append(unknown_value(token, "".join(before)) if known is None else float(max(values[known], -1e9)))
        return rows

    def _listed(self, values: np.ndarray, k: int) -> Listed:
        best = [int(i) for i in np.argsort(-values, kind="stable")[:k] if np.isfinite(values[i])]
        return self.lie.names([(VOCABULARY[i], float(values[i])) for i in best])

    def _tokenizer(self, path: str, sent: dict[str, Any]) -> Reply:
        if self.style == "whole" and path == "/tokenize" and "content" in sent:
            pieces = [{"id": self._id(t), "piece": t} for t in self.tokens(sent["content"])]
            return Reply({"tokens": pieces})
        if self.style == "ids" and path == "/tokenize" and "prompt" in sent:
            return Reply({"tokens": [self._id(t) for t in self.tokens(sent["prompt"])]})
        if self.style == "ids" and path == "/detokenize":
            text = "".join(self._vocabulary[i] for i in sent["tokens"])
            return Reply({"prompt": text})
        return refusal(404, "no such route")

    def _id(self, token: str) -> int:
        if token not in self._ids:
            self._ids[token] = len(self._vocabulary)
            self._vocabulary.append(token)
        return self._ids[token]


def rendered_chat(messages: Any) -> str:
    """The text that the model reads of a chat."""
    turns = [(m["role"], m["content"]) if isinstance(m, dict) else (m.role, m.content) for m in messages]
    return "".join(f"{role}\n{content}\n" for role, content in turns) + "assistant\n"


def refusal(status: int, message: str) -> Reply:
    """An error in OpenAI's form."""
    return Reply({"error": {"message": message, "type": "invalid_request_error"}}, status)


def _entry(token: str, value: float) -> dict[str, Any]:
    return {"token": token, "bytes": list(token.encode()), "logprob": float(value)}


def _entries(listed: Listed) -> list[dict[str, Any]]:
    return [_entry(token, value) for token, value in listed]
