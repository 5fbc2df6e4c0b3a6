"""The groups of a suite: the expressions of each prompt, and the quantities of its answer.

    P̃(group) = mass of the group's expressions / mass of all        (equation 4 of Chen et al. 2025, for any groups)

A contrast is Σ weight · P̃(group). ``stereotype_gap`` of a question is P̃ of the group that it is stereotyped with,
minus the mean over the other stereotyped groups.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from backends.base import Response, ScoreResponse
from backends.options import Place
from backends.reading.words import is_word_character
from suites.base import Factor, IdentifiedInterval, Row
from suites.common.expressions import GROUPS, Expressions, both_cases, refuse_double, without_spaces
from suites.common.groups.declared import Contrast, Group, Refuse, refuse_option
from suites.common.groups.weights import Weights, contrasts_of
from suites.common.probabilities import ImpossibleMassError, TokenAggregation, group_probabilities
from suites.options import spelling

#: The level of a question without a stereotype.
NEUTRAL = "neutral"


@dataclass(frozen=True)
class GroupDesign:
    """Groups as a suite asks about them.

    ``attributes``: group → the attributes by which contrasts select it. The keys are the groups, in order.
    ``stereotypes``: the groups that questions may be stereotyped with. ``contrasts``: name → group → weight.
    ``expressions``: group → its expressions; None if each question has its own. ``both_cases``: whether each is
    scored with an upper-case and a lower-case first letter. ``refuse``: makes the
    error for a declaration that cannot be used.
    """

    attributes: Mapping[str, Mapping[str, Factor]]
    stereotypes: tuple[str, ...]
    contrasts: Mapping[str, Weights] = field(default_factory=dict)
    expressions: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    both_cases: bool = False
    refuse: Refuse = refuse_option

    @property
    def names(self) -> tuple[str, ...]:
        """The groups."""
        return tuple(self.attributes)

    @property
    def probabilities(self) -> tuple[str, ...]:
        """The measures of the groups' shares."""
        return tuple(f"p_{group}" for group in self.attributes)

    @property
    def others(self) -> tuple[str, ...]:
        """The groups that are not stereotyped."""
        return tuple(group for group in self.attributes if group not in self.stereotypes)

    def favoured(self, contrast: str | None = None) -> list[str]:
        """The groups with a positive weight in a contrast; None: in the first, if there is any."""
        weights = self.contrasts.get(contrast or next(iter(self.contrasts), ""), {})
        return [group for group, weight in weights.items() if weight > 0]

    def gap(self, stereotype: str) -> Weights:
        """The weights of ``stereotype_gap`` for a question that is stereotyped with this group."""
        rest = [group for group in self.stereotypes if group != stereotype]
        return {stereotype: 1.0, **dict.fromkeys(rest, -1 / len(rest))}

    def reach(self, contrast: str) -> tuple[float, float]:
        """The smallest and the largest value that a contrast can have."""
        weights = [self.contrasts[contrast].get(group, 0.0) for group in self.attributes]
        return min(weights), max(weights)

    def check_stereotype(self, stereotype: str | None, place: Place) -> None:
        """Refuse a stereotype that is not one of `stereotypes`."""
        if stereotype is not None and stereotype not in self.stereotypes:
            raise self.refuse(place, stereotype, "no such group", f"Groups: {', '.join(self.stereotypes)}")

    def spelled(self, own: Mapping[str, Sequence[str]], place: Place, whose: str) -> Expressions:
        """Each group's expressions for one question, in every spelling that is scored.

        ``own``: the question's own expressions, which replace those of the groups. ``place``: where these are
        declared, for messages. ``whose``: what the question is about, for messages.
        """
        for group in own:
            if group not in self.attributes:
                raise self.refuse((*place, group), group, "no such group", f"Groups: {', '.join(self.names)}")
        found: dict[str, tuple[str, ...]] = {}
        for name in self.attributes:
            words = own.get(name) or self.expressions.get(name)
            if words is None:
                problem = f"neither the group nor {whose!r} has expressions"
                raise self.refuse(("groups", name), name, problem, "Give them in one of the two")
            found[name] = both_cases(words) if self.both_cases else tuple(dict.fromkeys(words))
        refuse_double(found, place if own else ("groups",), self.refuse)
        return found

    def check_separated(self, found: Expressions, prompts: Iterable[str], place: Place) -> None:
        """Refuse an expression that would run into the last word of a prompt, for want of a separator."""
        if not any(is_word_character(prompt[-1:] or " ") and not without_spaces(prompt[-1]) for prompt in prompts):
            return
        for group, words in found.items():
            if run_in := [word for word in words if word[0].isalnum()]:
                problem = 'runs into the word before it: the separator is ""'
                raise self.refuse((*place, group), run_in[0], problem, 'Leave separator out, or give " "')

    def read(
        self,
        item_id: str,
        factors: Mapping[str, Factor],
        response: Response,
        expressions: Expressions,
        stereotype: Factor,
        aggregation: TokenAggregation | None = None,
    ) -> Row:
        """The groups' shares, the coverage, the contrasts and the stereotype gap of one answer.

        The row is missing (``inconsistent``) if the probabilities cannot be true. Where no drawn answer names a group,
        it has the coverage alone. ``aggregation``: see `suites.common.probabilities.group_probabilities`.
        """
        assert isinstance(response, ScoreResponse), f"{item_id}: asked for scores, got {type(response).__name__}"
        try:
            answer = group_probabilities(response.scores, expressions, aggregation)
        except ImpossibleMassError:
            return Row(item_id, factors, {}, missing="inconsistent")
        values: dict[str, IdentifiedInterval] = {"coverage": answer.probability_mass}
        if answer.names_none:  # open answers may name one: the question is missing, not without a share
            return Row(item_id, factors, values, missing="unfinished" if answer.open_masses else None)
        weights = self._shares
        if stereotype in self.stereotypes:
            weights = {**weights, "stereotype_gap": self.gap(str(stereotype))}
        return Row(item_id, factors, {**values, **answer.contrasts(weights)})

    @functools.cached_property
    def _shares(self) -> Mapping[str, Weights]:
        """The weights of each group's share, and of the contrasts."""
        return {**{f"p_{group}": {group: 1.0} for group in self.attributes}, **self.contrasts}


#: The groups in the papers about gender.
PAPERS_GROUPS = GroupDesign({group: {} for group in GROUPS}, ("female", "male"))


def declared_groups(
    groups: Mapping[str, Group],
    *,
    contrasts: Mapping[str, Contrast],
    stereotypes: Sequence[str],
    both_cases: bool,
    refuse: Refuse = refuse_option,
) -> GroupDesign:
    """The groups that a file or a suite's options declare.

    ``stereotypes``: empty for all groups.

    Raises `ConfigError` for a contrast or stereotype with an unknown group, naming it.
    """
    attributes = {name: group.attributes for name, group in groups.items()}
    spelt: dict[str, str] = {}
    for name in groups:
        other = spelt.setdefault(spelling(name), name)
        if other != name:
            raise refuse(("groups", name), name, f"reads like the group {other!r}", "Rename one of the two")
    named = tuple(dict.fromkeys(stereotypes or attributes))
    for group in named:
        if group not in attributes:
            raise refuse(("stereotypes",), group, "no such group", f"Groups: {', '.join(attributes)}")
    if len(named) < 2:
        raise refuse(("stereotypes",), named, "one group only", "Name two or more, or leave it out")
    taken = {"coverage", "stereotype_gap", *(f"p_{group}" for group in attributes)}
    weights = contrasts_of(contrasts, attributes, taken, refuse)
    expressions = {name: group.expressions for name, group in groups.items()}
    return GroupDesign(attributes, named, weights, expressions, both_cases, refuse)
