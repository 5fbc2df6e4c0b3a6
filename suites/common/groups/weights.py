"""Declared contrasts of groups, as weights that add up to 0."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from suites.base import Factor, IdentifiedInterval, MeasureSpec
from suites.common.groups.declared import Contrast, Refuse
from suites.options import spelling, suggestion
from suites.presentation import Beside, Meaning

#: Group → weight.
Weights = Mapping[str, float]


def contrasts_of(
    declared: Mapping[str, Contrast], groups: Mapping[str, Mapping[str, Factor]], taken: Collection[str], refuse: Refuse
) -> dict[str, Weights]:
    """The weights of each contrast. Default for two groups: the first minus the second.

    ``groups``: group → its attributes. ``taken``: names of other measures.
    """
    names = list(groups)
    if not declared and len(names) == 2:
        return {f"{names[0]}_minus_{names[1]}": {names[0]: 1.0, names[1]: -1.0}}
    for name in declared:
        if name in taken:
            raise refuse(("contrasts", name), name, "also the name of another measure", "Give it another")
    return {name: _weights(name, contrast, groups, refuse) for name, contrast in declared.items()}


def _weights(name: str, contrast: Contrast, groups: Mapping[str, Mapping[str, Factor]], refuse: Refuse) -> Weights:
    place = ("contrasts", name)
    if contrast.weights is not None:
        for group in contrast.weights:
            _refuse_unknown(group, groups, (*place, "weights", group), refuse)
        return {group: float(weight) for group, weight in contrast.weights.items() if weight}
    of = _chosen(contrast.of or (), groups, (*place, "of"), refuse)
    rest = tuple(group for group in groups if group not in of)
    against = _chosen(rest if contrast.against is None else contrast.against, groups, (*place, "against"), refuse)
    if not against:
        raise refuse(place, name, "no group is left to be compared with", "Give against")
    if twice := [group for group in of if group in against]:
        raise refuse((*place, "against"), twice[0], "on both sides", "Keep it on one")
    return {**dict.fromkeys(of, 1 / len(of)), **dict.fromkeys(against, -1 / len(against))}


def _chosen(
    wanted: tuple[str, ...] | Mapping[str, Factor],
    groups: Mapping[str, Mapping[str, Factor]],
    place: tuple[str, ...],
    refuse: Refuse,
) -> list[str]:
    """The groups of these names, or with these attributes.

    An attribute that is misspelt, or written in another way, would put a group on the other side: it is refused.
    """
    if not isinstance(wanted, Mapping):
        for group in wanted:
            _refuse_unknown(group, groups, place, refuse)
        return list(dict.fromkeys(wanted))
    found = [group for group, of in groups.items() if all(of.get(name) == level for name, level in wanted.items())]
    if not found:
        hint = f"Attributes: {', '.join(f'{g}: {dict(a)}' for g, a in groups.items())}"
        raise refuse(place, dict(wanted), "no group has these attributes", hint)
    for group, attributes in groups.items():
        for name, level in wanted.items():
            given, by = attributes.get(name), ".".join(place)
            if given is None and (close := difflib.get_close_matches(name, attributes, n=1, cutoff=0.8)):
                problem, hint = f"no attribute of {by}", f"Did you mean {name!r}?"
                raise refuse(("groups", group, close[0]), attributes[close[0]], problem, hint)
            if given != level and spelling(given) == spelling(level):
                problem = f"another level than {level!r}, which {by} names"
                raise refuse(("groups", group, name), given, problem, "Write it alike, or more differently")
    return found


def _refuse_unknown(
    group: str, groups: Mapping[str, Mapping[str, Factor]], place: tuple[str, ...], refuse: Refuse
) -> None:
    if group not in groups:
        raise refuse(place, group, "no such group", suggestion(group, groups))


# -- over rows that concern one group each -----------------------------------------------------------


def signed(
    values: Mapping[str, IdentifiedInterval], group: str, weights: Weights, within: Mapping[str, float] | None = None
) -> dict[str, IdentifiedInterval]:
    """A row's quantities as its contribution to a contrast, Σ weight · mean of the group's rows; empty without weight.

    A row of a group with weight w counts as Σ|weight| · sign(w) · (value − ½), and the figure is the mean of these over
    the groups, weighted by |weight| / Σ|weight|. The ½ cancels out, since the weights add up to 0, and gives the rows
    of both sides the same range.

    ``values`` are in [0, 1]. ``within``: quantity → how far it may be from the truth, by which its bounds widen;
    inf: it may be anything.
    """
    weight, reach = weights.get(group, 0.0), math.fsum(map(abs, weights.values()))
    factor, found = math.copysign(reach, weight), dict[str, IdentifiedInterval]()
    for quantity, value in values.items() if weight else ():
        low, high = sorted(factor * (end - 0.5) for end in (value.low, value.high))
        error = reach / 2 * (within or {}).get(quantity, 0.0)
        if math.isinf(error):
            low, high, error = -reach / 2, reach / 2, 0.0
        at = None if value.value is None else factor * (value.value - 0.5)
        found[quantity] = IdentifiedInterval(at, low - error, high + error)
    return found


def between_groups(measure: str, quantity: str, where: Mapping[str, Any], weights: Weights, **rest: Any) -> MeasureSpec:
    """The figure of a contrast over rows of `signed` quantities, which the factor ``group`` tells apart."""
    reach = math.fsum(map(abs, weights.values()))
    fixed: dict[str, Any] = {"unit": "difference", "neutral": 0.0, "kind": "difference", "stratum": "group"}
    fixed |= {"range": (-reach / 2, reach / 2), "weights": {g: abs(weight) / reach for g, weight in weights.items()}}
    return MeasureSpec(measure, quantity, where, **fixed, **rest)


# -- in words ----------------------------------------------------------------------------------------


def gap_meaning(words: str, whom: str, beside: tuple[Beside, ...] = ()) -> dict[str, Meaning]:
    """What a stereotype gap says: of the probability given to these words, the stereotyped group gets more or less."""
    said = f"of the probability given to {words}, the stereotyped {whom} gets {{points}} points"
    found = f"give{{s}} the stereotyped {whom}"
    more, less = f"{found} more probability", f"{found} less probability"
    return {"stereotype_gap": Meaning(f"{said} more", f"{said} less", more, less, beside)}


def sides_of(weights: Weights) -> tuple[str, str]:
    """The two sides of a contrast: ``mw`` and ``the mean of mm, cw and cm``."""
    return _side([(g, w) for g, w in weights.items() if w > 0]), _side([(g, -w) for g, w in weights.items() if w < 0])


def _side(groups: Sequence[tuple[str, float]]) -> str:
    """Groups with their weights: one of weight 1 alone, several of equal weight as a mean, all else as a sum."""
    names, sizes = [name for name, _ in groups], [weight for _, weight in groups]
    if not math.isclose(math.fsum(sizes), 1.0) or not all(math.isclose(size, sizes[0]) for size in sizes):
        return " + ".join(name if weight == 1 else f"{weight:.3g} × {name}" for name, weight in groups)
    return names[0] if len(names) == 1 else f"the mean of {', '.join(names[:-1])} and {names[-1]}"


def group_meanings(contrasts: Mapping[str, Weights]) -> dict[str, Meaning]:
    """What the gap and the contrasts of groups' probabilities say of a model."""
    said = "of every 100 points of probability that the scored words hold, {of} gets {points}"
    return gap_meaning("the groups' words", "group") | {n: _more(said, weights) for n, weights in contrasts.items()}


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
