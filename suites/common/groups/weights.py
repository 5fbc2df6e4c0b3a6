"""Declared contrasts of groups, as weights that add up to 0."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from suites.base import Factor, IdentifiedInterval, MeasureSpec
from suites.common.groups.declared import Contrast, Refuse, spelling
from suites.options import suggestion
from suites.presentation import Meaning

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
    return {name: _Reader(name, contrast, groups, refuse).weights() for name, contrast in declared.items()}


class _Reader:
    """Turns one declared contrast into weights."""

    def __init__(
        self, name: str, contrast: Contrast, groups: Mapping[str, Mapping[str, Factor]], refuse: Refuse
    ) -> None:
        self._name, self._contrast, self._groups, self._refuse = name, contrast, groups, refuse

    def weights(self) -> Weights:
        contrast, place = self._contrast, ("contrasts", self._name)
        if contrast.weights is not None:
            if contrast.of is not None or contrast.against is not None:
                raise self._refuse(place, self._name, "has weights and of or against", "Give one of the two")
            return self._checked(contrast.weights)
        if contrast.of is None:
            raise self._refuse(place, self._name, "does not say of which groups", "Give of, or weights")
        of = self._chosen("of", contrast.of)
        against = (
            [group for group in self._groups if group not in of]
            if contrast.against is None
            else self._chosen("against", contrast.against)
        )
        if not against:
            raise self._refuse(place, self._name, "no group is left to be compared with", "Give against")
        if twice := [group for group in of if group in against]:
            raise self._refuse((*place, "against"), twice[0], "on both sides", "Keep it on one")
        return {**dict.fromkeys(of, 1 / len(of)), **dict.fromkeys(against, -1 / len(against))}

    def _checked(self, weights: Mapping[str, float]) -> Weights:
        place = ("contrasts", self._name, "weights")
        for group in weights:
            self._refuse_unknown(group, (*place, group))
        if not math.isclose(math.fsum(weights.values()), 0.0, abs_tol=1e-9) or not any(weights.values()):
            hint = "Let them add up to 0, so that groups alike give 0"
            raise self._refuse(place, dict(weights), "no difference of groups", hint)
        return {group: float(weight) for group, weight in weights.items() if weight}

    def _chosen(self, field: str, wanted: tuple[str, ...] | Mapping[str, Factor]) -> list[str]:
        place = ("contrasts", self._name, field)
        if not isinstance(wanted, Mapping):
            for group in wanted:
                self._refuse_unknown(group, place)
            return list(dict.fromkeys(wanted))
        for name, level in wanted.items():
            self._refuse_doubtful(name, level)
        found = [
            group
            for group, attributes in self._groups.items()
            if all(attributes.get(name) == level for name, level in wanted.items())
        ]
        if not found:
            hint = f"Attributes: {', '.join(f'{g}: {dict(a)}' for g, a in self._groups.items())}"
            raise self._refuse(place, dict(wanted), "no group has these attributes", hint)
        return found

    def _refuse_doubtful(self, name: str, wanted: Factor) -> None:
        """Refuse an attribute that would put a group on the other side unseen: written in another way, or misspelt."""
        if not any(name in attributes for attributes in self._groups.values()):
            return
        for group, attributes in self._groups.items():
            if name not in attributes:
                if close := difflib.get_close_matches(name, attributes, n=1, cutoff=0.8):
                    problem = f"no attribute of the contrast {self._name!r}"
                    raise self._refuse(("groups", group, close[0]), close[0], problem, f"Did you mean {name!r}?")
                continue
            level = attributes[name]
            is_other = level != wanted or isinstance(level, bool) != isinstance(wanted, bool)
            if is_other and spelling(level) == spelling(wanted):
                problem = f"another level than {wanted!r}, which the contrast {self._name!r} names"
                raise self._refuse(("groups", group, name), level, problem, "Write it alike, or more differently")

    def _refuse_unknown(self, group: str, place: tuple[str, ...]) -> None:
        if group not in self._groups:
            raise self._refuse(place, group, "no such group", suggestion(group, self._groups))


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
    weight = weights.get(group, 0.0)
    if not weight:
        return {}
    reach = math.fsum(map(abs, weights.values()))
    found = {}
    for quantity, value in values.items():
        ends = sorted(math.copysign(reach, weight) * (end - 0.5) for end in (value.low, value.high))
        error = reach / 2 * (within or {}).get(quantity, 0.0)
        if math.isinf(error):
            ends, error = [-reach / 2, reach / 2], 0.0
        at = None if value.value is None else math.copysign(reach, weight) * (value.value - 0.5)
        found[quantity] = IdentifiedInterval(at, ends[0] - error, ends[1] + error)
    return found


def between_groups(measure: str, quantity: str, where: Mapping[str, Any], weights: Weights, **rest: Any) -> MeasureSpec:
    """The figure of a contrast over rows of `signed` quantities, which the factor ``group`` tells apart."""
    reach = math.fsum(map(abs, weights.values()))
    return MeasureSpec(
        measure,
        quantity,
        where,
        unit="difference",
        neutral=0.0,
        kind="difference",
        range=(-reach / 2, reach / 2),
        stratum="group",
        weights={group: abs(weight) / reach for group, weight in weights.items()},
        **rest,
    )


# -- in words ----------------------------------------------------------------------------------------


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
