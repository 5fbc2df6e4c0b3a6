"""Answers of a simulated model whose bias is known, which suites plant in a rehearsal."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from statistics import NormalDist

from backends.base import ANSWER_MASS, ClassifyResponse, ContinuationScore, ScoreRequest, ScoreResponse, TokenLogprob
from suites.base import Item
from suites.common.expressions import Expressions
from suites.common.groups.design import GroupDesign

#: Total probability of all expressions, and the standard deviation, in nats, of a group's odds between prompts.
_COVERAGE, _SPREAD = 0.5, 0.5


def chance(*parts: object) -> float:
    """A pseudo-random number in [0, 1) that depends only on the parts."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def planted_scores(probabilities: Mapping[str, float]) -> ScoreResponse:
    """The scores of one-token continuations with these probabilities."""
    tokens = (TokenLogprob(text, 0, len(text), math.log(p)) for text, p in probabilities.items())
    return ScoreResponse(tuple(ContinuationScore.exact([token], route="planted") for token in tokens))


def planted_labels(labels: Sequence[str], chosen: str, share: float, *parts: object) -> ClassifyResponse:
    """A classifier's labels: ``share`` for the chosen one, give or take a tenth by ``parts``; the rest for the others.

    With one label, the rest is not shown.
    """
    first = min(1.0, max(0.0, share + 0.2 * (chance(*parts) - 0.5)))
    others = max(1, len(labels) - 1)
    return ClassifyResponse(
        {label: first if label == chosen else (1 - first) / others for label in labels} | {ANSWER_MASS: 1.0}
    )


def planted_groups(
    expressions: Expressions, item: Item, towards: Collection[str], bias: float, *parts: object
) -> ScoreResponse:
    """Scores of the groups' expressions: the fraction ``bias`` of equal shares is moved to the groups of ``towards``.

    Each prompt's odds vary pseudo-randomly, determined by ``parts``.
    """
    assert isinstance(item.request, ScoreRequest)
    separator = item.request.continuations[0].removesuffix(next(iter(expressions.values()))[0])
    n = len(expressions)
    shares = {g: (1 - bias) / n + (bias / len(towards) if g in towards else 0.0) for g in expressions}
    odds = {g: share * math.exp(_SPREAD * _normal(g, *parts)) for g, share in shares.items()}
    total = math.fsum(odds.values())
    masses: dict[str, float] = {}
    for group, words in expressions.items():
        for word in words:
            text = separator + word
            masses[text] = masses.get(text, 0.0) + _COVERAGE * odds[group] / total / len(words)
    return planted_scores(masses)


def planted_about(
    groups: GroupDesign, expressions: Expressions, item: Item, bias: float, *parts: object
) -> ScoreResponse:
    """The same about an occupation: towards its stereotype, else the groups that the first contrast counts for."""
    dominated = str(item.factors["dominated_by"])
    towards = [dominated] if dominated in groups.names else groups.favoured() or groups.names
    return planted_groups(expressions, item, towards, bias, *parts)


def _normal(*parts: object) -> float:
    return NormalDist().inv_cdf(0.5 + (chance(*parts) - 0.5) * (1 - 1e-9))  # inv_cdf is infinite at 0 and 1
