"""Score token paths on vLLM, by what it says about the next token.

vLLM's prompt log-probabilities read each whole text anew: where they are asked for, the prefix cache is not read. So
each position that is asked about is a request of its own, with the text up to there as its prompt and one token to
draw, whose log-probabilities are those wanted. In the order of the trie each request begins as the one before it, and
all but its last few tokens come from the cache:

    "The nurse said that"          log P(" he"), log P(" she"), log P(" the")
    "The nurse said that the"      log P(" woman"), log P(" man")       read: " the"
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.local.scoring import Known
from backends.local.trie import Trie
from backends.vllm.engine import VLLMEngine

#: vLLM gives the log-probabilities of at most this many chosen tokens in one request.
MOST_CHOSEN = 128
#: Tokens of one call of the engine, which makes its own forward passes of them.
PACK_TOKENS = {"cpu": 512, "cuda": 8192}


class NextTokenScorer:
    """Scores paths on one loaded model.

    Parameters
    ----------
    engine : VLLMEngine
    beginning_with : callable
        Returns the token ids of a set, given its name.

    Attributes
    ----------
    reads_cache : bool
        Whether prompts are continued from vLLM's prefix cache.
    """

    route = "next tokens"

    def __init__(
        self,
        engine: VLLMEngine,
        beginning_with: Callable[[Any], npt.NDArray[np.int64]],
        *,
        pack_tokens: int,
    ) -> None:
        self._engine, self._beginning_with = engine, beginning_with
        self.context, self.vocabulary, self.pack_tokens = engine.context, engine.vocabulary, pack_tokens
        self.reads_cache = True

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        """As in `backends.local.scoring.Scorer`: all in one call of the engine, which makes passes of its own."""
        tokens_of = self._tokens_of(trie)
        questions = [
            question for node in np.unique(trie.ask_nodes) for question in self._questions(trie, node, tokens_of)
        ]
        # An empty set's probability is 0, and it is in no question.
        answers = np.array([np.nan if tokens_of(ask) else -np.inf for ask in range(len(trie.ask_nodes))])
        failed: dict[int, BackendError] = {}
        # Apart: beside requests for chosen tokens, vLLM gives one for all tokens no list of its own.
        for whole in (False, True):
            alike = [question for question in questions if (question.chosen is None) == whole]
            outputs = self._engine.run([(question.line, self._params(question)) for question in alike])
            for question, output in zip(alike, outputs, strict=True):
                try:
                    if isinstance(output, BackendError):
                        raise output
                    value = self._listed(question, output)
                    for ask in question.asks:
                        answers[ask] = _log_sum(value, tokens_of(ask))
                except BackendError as error:
                    failed.update(dict.fromkeys(question.asks, error))
        for ask, reason in failed.items():
            yield Known(np.array([ask]), reason)
        known = np.array([ask for ask in range(len(answers)) if ask not in failed], dtype=np.int64)
        yield Known(known, answers[known])

    def _tokens_of(self, trie: Trie) -> Callable[[int], list[int]]:
        """What gives the tokens whose total probability an ask wants."""
        # A tokenizer may have more tokens than the model, which never predicts the rest.
        sets = [[i for i in self._beginning_with(name).tolist() if i < self.vocabulary] for name in trie.sets]
        targets = trie.ask_targets.tolist()
        return lambda ask: [targets[ask]] if targets[ask] >= 0 else sets[-1 - targets[ask]]

    def _questions(self, trie: Trie, node: int, tokens_of: Callable[[int], list[int]]) -> Iterator[_Question]:
        """A node's asks, shared out over requests: chosen tokens, as many as fit, and large sets of all tokens."""
        at_node = trie.asks(node, node + 1)
        line = trie.tokens[[*trie.ancestors(int(node)), int(node)]].tolist()
        asks = range(at_node.start, at_node.stop)
        large = [ask for ask in asks if len(tokens_of(ask)) > MOST_CHOSEN]
        if large:
            yield _Question(line, large, None)
        share = _Question(line, [], [])
        for ask in asks:
            if (more := len(tokens := tokens_of(ask))) > MOST_CHOSEN or not more:
                continue
            assert share.chosen is not None
            if len(share.chosen) + more > MOST_CHOSEN:
                yield share
                share = _Question(line, [], [])
            share = _Question(line, [*share.asks, ask], [*(share.chosen or ()), *tokens])
        if share.asks:
            yield share

    def _params(self, question: _Question) -> Any:
        from vllm import SamplingParams

        return SamplingParams(
            max_tokens=1,
            temperature=0.0,
            detokenize=False,
            flat_logprobs=True,
            skip_reading_prefix_cache=not self.reads_cache,
            **({"logprobs": -1} if question.chosen is None else {"logprob_token_ids": question.chosen}),
        )

    def _listed(self, question: _Question, output: Any) -> dict[int, float]:
        """The log-probabilities of the tokens that a question is about. Raises `BackendError` if any is not there."""
        found = output.outputs[0].logprobs
        # The drawn token comes first, then those asked for; a shorter list is filled up with token 0.
        count = self.vocabulary if question.chosen is None else len(question.chosen)
        ids, values = found.token_ids[1 : count + 1], found.logprobs[1 : count + 1]
        value = dict(zip(ids, values, strict=True))
        if len(value) != count if question.chosen is None else ids != question.chosen:
            raise BackendError("malformed", "vLLM listed other tokens than those asked for", hint="update vLLM")
        return value


@dataclass(frozen=True, slots=True)
class _Question:
    """One request: the asks that it answers, and the tokens that it lists; all of them if None."""

    line: list[int]
    asks: list[int]
    chosen: list[int] | None


def _log_sum(value: dict[int, float], tokens: list[int]) -> float:
    return value[tokens[0]] if len(tokens) == 1 else float(np.logaddexp.reduce([value[token] for token in tokens]))


def prompt_logprobs(engine: VLLMEngine, lines: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float64]]:
    """Log-probabilities (nats) of all tokens of each text but the first, each text read whole and on its own."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False, prompt_logprobs=0)
    found = []
    for line in lines:
        (output,) = engine.run([(line, params)])
        if isinstance(output, BackendError):
            raise output
        places = list(output.prompt_logprobs)[1:]
        found.append(np.array([place[token].logprob for token, place in zip(line[1:], places, strict=True)]))
    return found
