"""Declared contrasts of groups, as weights that add up to 0."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping

from suites.base import Factor
from suites.common.groups.declared import Contrast, Refuse, spelling

#: Group → weight.
Weights = Mapping[str, float]


def contrasts_of(
    declared: Mapping[str, Contrast], groups: Mapping[str, Mapping[str, Factor]], taken: Collection[str], refuse: Refuse
) -> dict[str, Weights]:
    """The weights of each contrast. Default for two groups: the first minus the second.

    Parameters
    ----------
    groups : mapping
        Group → its attributes.
    taken : collection of str
        Names of other measures.
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
            close = difflib.get_close_matches(group, self._groups, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Groups: {', '.join(self._groups)}"
            raise self._refuse(place, group, "no such group", hint)
