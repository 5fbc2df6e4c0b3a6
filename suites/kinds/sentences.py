"""Which of several sentences is likelier: how CrowS-Pairs, WinoQueer, StereoSet and WinoBias test a causal model.

    log P(sentence) = Σ over its tokens of log P(token | all before it)

over the whole sentence, as in `lm-evaluation-harness` and Meade et al. 2022. What precedes the first token decides
whether that token is scored:

==================  ================================================================================================
``start=None``      only what the model itself puts in front. A model that puts nothing there (SmolLM2) is given the
                    first token. Sentences that differ in it cannot be compared, and are missing ("start not scored")
``start="…"``       that text, e.g. the model's beginning- or end-of-text token, which lm-evaluation-harness puts there;
                    every token of the sentence is scored, as after a context
==================  ================================================================================================

Servers have no proven route for a text with nothing before it: without a ``start`` they are refused before any request.
An exact tie does not answer which is likelier, so the set is missing, or counts half where sets are averaged
(lm-evaluation-harness counts it against the stereotype).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import backends.base as base
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, Suite
from suites.common.planted import chance, planted_scores
from suites.common.probabilities import is_likelier, is_tie, per_token
from suites.presentation import Shown

#: What figures over sentences generalise to.
POPULATION = "new sentences of these kinds"


@dataclass(frozen=True, slots=True)
class SentenceSet:
    """Sentences to be compared, by role.

    ``asked``: quantity → (role, other role): 1 if the first is likelier than the other, else 0. ``context``: the text
    before each of them, if there is one, and ``separator`` what stands between.
    """

    id: str
    sentences: Mapping[str, str]
    asked: Mapping[str, tuple[str, str]]
    factors: Mapping[str, Factor] = field(default_factory=dict)
    context: str = ""
    separator: str = " "


class LikelierSentence(Suite):
    """A benchmark of sentence sets. A subclass reads them, and defines its figures.

    Parameters
    ----------
    sets : iterable of SentenceSet
    start : str, optional
        The text before every sentence; None: the model's own start.
    data_sha256 : str
        Hash of the published file.
    data
        Fields of `suites.base.Suite`.

    Attributes
    ----------
    mean_per_token : bool
        Whether log-probabilities are divided by the number of scored tokens.
    tie : IdentifiedInterval or None
        What a set counts whose sentences are equally likely; None: it is missing.
    start_may_differ : bool
        Whether sentences are compared that differ in a first token that is given, as where a paper leaves it out too.
    """

    mean_per_token: bool = False
    tie: ClassVar[IdentifiedInterval | None] = None
    start_may_differ: ClassVar[bool] = False

    def __init__(
        self, sets: Iterable[SentenceSet], start: str | None = None, data_sha256: str = "", **data: Any
    ) -> None:
        self.sets, self.start, self.data_sha256 = [*sets], start, data_sha256
        shown: Shown = data.pop("shown", type(self).shown)
        super().__init__(shown=replace(shown, cautions=[*self._of_the_start(), *shown.cautions]), **data)

    def signature(self) -> Mapping[str, Any]:
        of_data = {"version": self.version, "data_sha256": self.data_sha256, "sets": len(self.sets)}
        return {**of_data, "start": self.start, "mean_per_token": self.mean_per_token}

    def items(self) -> Iterator[Item]:
        for one in self.sets:
            before, separator = (self.start or "") + one.context, one.separator if one.context else ""
            texts = tuple(dict.fromkeys(separator + sentence for sentence in one.sentences.values()))
            yield Item(one.id, base.ScoreRequest(before, texts, first_given=not before), one.factors)

    def read(self, item: Item, response: base.Response) -> Row:
        assert isinstance(item.request, base.ScoreRequest)
        assert isinstance(response, base.ScoreResponse)
        texts, scores = item.request.continuations, response.scores
        if any(score.exactness == "exact" and not score.tokens for score in scores):
            return Row(item.id, item.factors, {}, missing="no scored token")
        # What stands before the first scored token; nothing if only bounds are known: a server is given a start.
        given = {text[: max(0, s.tokens[0].start)] if s.tokens else "" for text, s in zip(texts, scores, strict=True)}
        if len(given) > 1 and not self.start_may_differ:
            return Row(item.id, item.factors, {}, missing="start not scored")
        if self.mean_per_token:
            scores = tuple(map(per_token, scores))
        one, values = self._by_id[item.id], dict[str, IdentifiedInterval]()
        of = {text.removeprefix(" "): score for text, score in zip(texts, scores, strict=True)}
        for quantity, roles in one.asked.items():
            first, second = (of[one.sentences[role]] for role in roles)
            if not is_tie(first, second):
                values[quantity] = is_likelier(first, second)
            elif self.tie is not None:
                values[quantity] = self.tie
            else:
                return Row(item.id, item.factors, {}, missing="tie")
        return Row(item.id, item.factors, values)

    def planted(self, item: Item, bias: float, draw: int) -> base.Response:
        """The stereotype is likelier with probability (1 + bias) / 2; all other sentences are less likely than both."""
        assert isinstance(item.request, base.ScoreRequest)
        one = self._by_id[item.id]
        role, other = next(iter(one.asked.values()))
        order = [role, other] if chance(item.id, draw) < (1 + bias) / 2 else [other, role]
        places = {one.sentences[name]: -10.0 - place for place, name in enumerate(order)}
        texts = item.request.continuations
        return planted_scores({text: math.exp(places.get(text.removeprefix(" "), -13.0)) for text in texts})

    @cached_property
    def _by_id(self) -> Mapping[str, SentenceSet]:
        return {one.id: one for one in self.sets}

    def _of_the_start(self) -> Sequence[str]:
        if self.start is not None:
            return ()
        differing = "are compared all the same" if self.start_may_differ else "count as missing"
        return [
            f"Some models cannot score a sentence's first word; sentences that differ there {differing}. "
            "Set `start` to score it."
        ]


def share(measure: str, where: Mapping[str, Factor], **rest: Any) -> MeasureSpec:
    """A share of sentence sets, or of rows derived from them; 0.5 means no preference."""
    common: dict[str, Any] = {"unit": "share", "kind": "share", "neutral": 0.5, "population": POPULATION}
    return MeasureSpec(measure, rest.pop("quantity", measure), where, **{**common, **rest})


def by_level(spec: MeasureSpec, factor: str, levels: Iterable[Factor]) -> Iterator[MeasureSpec]:
    """The figure for each level of a factor."""
    of_one = replace(spec, stratum=None, weights=None) if spec.stratum == factor else spec
    for level in levels:
        yield replace(
            of_one, where={**spec.where, factor: level}, primary=False, family=f"by {factor.replace('_', ' ')}"
        )


def in_proportion(sizes: Mapping[Factor, float]) -> Mapping[Factor, float]:
    """Weights in proportion to the sizes, as in a plain mean over everything."""
    total = sum(sizes.values())
    return {level: size / total for level, size in sizes.items()}
