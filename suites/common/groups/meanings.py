"""What figures about declared groups mean, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from suites.common.groups.weights import Weights
from suites.presentation import Meaning

#: What the stereotype gap of declared groups says.
_GAP: Mapping[str, Meaning] = {
    "stereotype_gap": Meaning(
        "of the probability given to the groups' words, the stereotyped group gets {points} points more",
        "of the probability given to the groups' words, the stereotyped group gets {points} points less",
        "give{s} the stereotyped group more probability",
        "give{s} the stereotyped group less probability",
    )
}


def sides_of(weights: Weights) -> tuple[str, str]:
    """The two sides of a contrast: ``mw`` and ``the mean of mm, cw and cm``."""
    return _side([(g, w) for g, w in weights.items() if w > 0]), _side([(g, -w) for g, w in weights.items() if w < 0])


def _side(groups: Sequence[tuple[str, float]]) -> str:
    """Groups with their weights: one of weight 1 alone, several of equal weight as a mean, all else as a sum."""
    names, sizes = [name for name, _ in groups], [weight for _, weight in groups]
    if math.isclose(math.fsum(sizes), 1.0) and all(math.isclose(size, sizes[0]) for size in sizes):
        return names[0] if len(names) == 1 else f"the mean of {_listed(names)}"
    return _listed([name if weight == 1 else f"{weight:.3g} × {name}" for name, weight in groups], " + ")


def _listed(names: Sequence[str], joint: str = " and ") -> str:
    if joint != " and " or len(names) < 3:
        return joint.join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def difference_of(weights: Weights) -> str:
    """A contrast as a difference of its two sides."""
    return " minus ".join(sides_of(weights))


def group_meanings(contrasts: Mapping[str, Weights]) -> dict[str, Meaning]:
    """What the gap and the contrasts of groups' probabilities say of a model."""
    found = {
        name: _more("of every 100 points of probability that the scored words hold, {of} gets {points}", weights)
        for name, weights in contrasts.items()
    }
    return {**_GAP, **found}


def reading_meaning(reading: str, weights: Weights) -> Meaning:
    """What a contrast of the shares of texts with a reading says of a model."""
    return _more(f"texts about {{of}} have {_escaped(reading)!r} {{points}} times in 100", weights)


def score_meaning(quantity: str, weights: Weights) -> Meaning:
    """What a contrast of a scorer's quantity says of a model."""
    return _more(f"texts about {{of}} get {{points}} of 100 points of {_escaped(quantity)!r}", weights)


def _more(said: str, weights: Weights) -> Meaning:
    of, against = map(_escaped, sides_of(weights))
    said = said.replace("{of}", of)
    return Meaning(f"{said} more than {against}", f"{said} less than {against}")


def _escaped(text: str) -> str:
    """A name as it is, in a text with a placeholder."""
    return text.replace("{", "{{").replace("}", "}}")
