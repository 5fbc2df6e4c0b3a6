"""Score token paths on vLLM, by what it says about the next token.

vLLM's prompt log-probabilities read each whole text anew: where they are asked for, the prefix cache is not read. So
each position that is asked about is a request of its own, with the text up to there as its prompt and one token to
draw, whose log-probabilities are those wanted. In the order of the trie each request begins as the one before it, and
all but its last few tokens come from the cache:

    "The nurse said that"          log P(" he"), log P(" she"), log P(" the")
    "The nurse said that the"      log P(" woman"), log P(" man")       read: " the"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.local.trie import Path, Trie
from backends.vllm.engine import Asked, VLLMEngine

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
    pack_tokens : int
        As in `backends.local.scoring.Scorer`.

    Attributes
    ----------
    reads_cache : bool
        Whether prompts are continued from vLLM's prefix cache.
    tokens_asked, tokens_cached : int
        Tokens of all prompts so far, and how many of them came from the prefix cache.
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
        self.tokens_asked = self.tokens_cached = 0

    def logprobs(self, paths: Sequence[Path]) -> list[npt.NDArray[np.float64] | BackendError]:
        """For each path the log-probabilities (nats) of its scored tokens, then of its token set."""
        trie = Trie(paths)
        answers = np.full(len(trie.ask_nodes), np.nan)
        asked: list[Asked] = []
        asks_of: list[npt.NDArray[np.int64]] = []
        sets = {i: self._members(name) for i, name in enumerate(trie.sets)}
        for node in np.unique(trie.ask_nodes):
            low, high = np.searchsorted(trie.ask_nodes, [node, node + 1])
            line = trie.tokens[[*trie.ancestors(int(node)), int(node)]].tolist()
            for asks in self._shares(trie, np.arange(low, high), sets):
                asked.append((line, self._params(trie, asks, sets)))
                asks_of.append(asks)
        failed: dict[int, BackendError] = {}
        for asks, output in zip(asks_of, self._engine.run(asked), strict=True):
            if isinstance(output, BackendError):
                failed.update(dict.fromkeys(asks.tolist(), output))
                continue
            self.tokens_asked += len(output.prompt_token_ids)
            self.tokens_cached += output.num_cached_tokens or 0
            self._read(trie, asks, sets, output, answers)
        return [next((failed[ask] for ask in asks.tolist() if ask in failed), answers[asks]) for asks in trie.asks_of]

    def _members(self, name: Any) -> npt.NDArray[np.int64]:
        """The tokens of a set that the model knows: a tokenizer may have more, which are never predicted."""
        members = self._beginning_with(name)
        return members[members < self.vocabulary]

    def _shares(
        self, trie: Trie, asks: npt.NDArray[np.int64], sets: dict[int, npt.NDArray[np.int64]]
    ) -> list[npt.NDArray[np.int64]]:
        """A node's asks, shared out over requests: chosen tokens, and large sets from a whole distribution."""
        is_large = np.array([self._size(trie, ask, sets) > MOST_CHOSEN for ask in asks])
        shares = [asks[is_large]] if is_large.any() else []
        share: list[int] = []
        size = 0
        for ask in asks[~is_large]:
            if size + (more := self._size(trie, ask, sets)) > MOST_CHOSEN:
                shares.append(np.array(share))
                share, size = [], 0
            share.append(int(ask))
            size += more
        return [*shares, np.array(share)] if share else shares

    def _size(self, trie: Trie, ask: int, sets: dict[int, npt.NDArray[np.int64]]) -> int:
        target = int(trie.ask_targets[ask])
        return 1 if target >= 0 else len(sets[-1 - target])

    def _chosen(self, trie: Trie, asks: npt.NDArray[np.int64], sets: dict[int, npt.NDArray[np.int64]]) -> list[int]:
        targets = trie.ask_targets[asks].tolist()
        parts = [[target] if target >= 0 else sets[-1 - target].tolist() for target in targets]
        return sorted({token for part in parts for token in part})

    def _params(self, trie: Trie, asks: npt.NDArray[np.int64], sets: dict[int, npt.NDArray[np.int64]]) -> Any:
        from vllm import SamplingParams

        chosen = self._chosen(trie, asks, sets)
        # All, where there are many: a list of the whole vocabulary, sorted, which takes a while.
        wanted = {"logprobs": -1} if len(chosen) > MOST_CHOSEN else {"logprob_token_ids": chosen or [0]}
        return SamplingParams(
            max_tokens=1,
            temperature=0.0,
            detokenize=False,
            flat_logprobs=True,
            skip_reading_prefix_cache=not self.reads_cache,
            **wanted,
        )

    def _read(
        self,
        trie: Trie,
        asks: npt.NDArray[np.int64],
        sets: dict[int, npt.NDArray[np.int64]],
        output: Any,
        answers: npt.NDArray[np.float64],
    ) -> None:
        found = output.outputs[0].logprobs
        value = dict(zip(found.token_ids, found.logprobs, strict=True))
        for ask in asks.tolist():
            target = int(trie.ask_targets[ask])
            if target >= 0:
                answers[ask] = value.get(target, np.nan)
            else:
                members = [value.get(token, np.nan) for token in sets[-1 - target].tolist()]
                # The set may be empty: its probability is then 0.
                answers[ask] = np.logaddexp.reduce(members) if members else -np.inf


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
