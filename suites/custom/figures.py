"""The figures of a suite from a file, by what the file declares: strata, levels, sampled factors, primary, neutral."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from suites.base import Factor, MeasureSpec
from suites.common.groups.declared import spelling
from suites.custom.schema import Head
from suites.custom.source import Source
from suites.kinds.sentences import in_proportion
from suites.options import suggestion

#: With fewer levels of a sampled factor nothing is decided.
LEAST_LEVELS = 5


@dataclass(frozen=True)
class Design:
    """What a file declares, and the factors of its questions.

    ``factors``: the factors of each question, in the file's order. ``sampled``: the declared factors whose levels
    are sampled; where none is declared, the kind's default.
    """

    head: Head
    source: Source
    factors: Sequence[Mapping[str, Factor]]
    sampled: tuple[str, ...] = ()

    @property
    def by(self) -> tuple[str, ...]:
        """The factors whose levels have figures of their own."""
        return self.head.levels_with_figures

    def check_factors(self, of_row: Sequence[int]) -> None:
        """Refuse a declared factor that a question lacks; ``of_row``: the index of each question's row."""
        declared = {"stratum": (self.head.stratum,), "by": self.head.by, "sampled": self.head.sampled}
        for field, names in declared.items():
            for name in names:
                if name is not None:
                    self._check_factor(field, name, of_row)
        stratum = self.head.stratum
        if stratum is None and self.head.weights != "in proportion":
            raise self.source.refuse(("weights",), self.head.weights, "there is no stratum", "Name it, or leave it out")
        if stratum is not None and stratum in self.head.sampled:
            hint = "Its levels are either fixed or sampled: name it in one of the two"
            raise self.source.refuse(("sampled",), stratum, "also the stratum", hint)
        if stratum is not None and len({one[stratum] for one in self.factors}) < 2:
            raise self.source.refuse(("stratum",), stratum, "has only one level", "Leave it out")

    def _check_factor(self, field: str, name: str, of_row: Sequence[int]) -> None:
        known = list(dict.fromkeys(factor for one in self.factors for factor in one))
        if name not in known:
            raise self.source.refuse((field,), name, "no question has this factor", suggestion(name, known))
        first: dict[str, tuple[Factor, int]] = {}
        for row, one in zip(of_row, self.factors, strict=True):
            place, level = (self.source.rows_field, row, name), one.get(name)
            if level is None or level != level or not spelling(level):  # NaN equals nothing
                raise self.source.refuse(place, level, f"missing, but {field} names it", "Give it in every row")
            spelt = spelling(level) if isinstance(level, str) else str(float(level))  # 3 is 3.0
            alike, before = first.setdefault(spelt, (level, row))
            if alike != level or type(alike) is not type(level):
                where = self.source.where((self.source.rows_field, before, name))
                problem = f"another level than {alike!r} in {where}"
                raise self.source.refuse(place, level, problem, "Write it alike, or more differently")
            kind, (earlier, before) = _kind_of(level), next(iter(first.values()))
            if kind != _kind_of(earlier):
                other = f"a {_kind_of(earlier)} in {self.source.where((self.source.rows_field, before, name))}"
                raise self.source.refuse(place, level, f"a {kind}, but {other}", "Write all of them alike")

    def figures(
        self, spec: MeasureSpec, *, all_strata: bool = False, having: Sequence[bool] | None = None
    ) -> Iterator[MeasureSpec]:
        """A figure over all questions, and one for each level of the declared factors.

        ``all_strata``: the figure compares the levels of its stratum, so a level without all of them has none.
        ``having``: which questions have the quantity, in the order of ``factors``; the others count in no
        weight. Default: all.
        """
        population = self.head.population or spec.population
        spec = replace(spec, clusters=self.sampled, population=population)
        spec = replace(spec, neutral=self.head.neutral.get(spec.measure, spec.neutral))
        questions = self.factors if having is None else [*compress(self.factors, having)]
        if spec.stratum is None:
            spec = self._stratified(spec, questions)
        yield spec
        for factor in self.by:
            for level in dict.fromkeys(one[factor] for one in questions):
                own = self._of_level(spec, [one for one in questions if one[factor] == level], all_strata)
                if own is not None:
                    of_level = {**own.where, factor: level}
                    yield replace(own, where=of_level, primary=False, family=f"by {factor.replace('_', ' ')}")

    def _of_level(
        self, spec: MeasureSpec, questions: Sequence[Mapping[str, Factor]], all_strata: bool
    ) -> MeasureSpec | None:
        if spec.stratum is None or spec.weights is None or spec.stratum == self.head.stratum:
            return self._stratified(spec, questions)
        present = {one.get(spec.stratum) for one in questions}
        weights = {level: weight for level, weight in spec.weights.items() if level in present}
        if len(weights) == len(spec.weights):
            return spec
        if all_strata or not weights:
            return None
        total = sum(weights.values())
        several = {level: weight / total for level, weight in weights.items()} if len(weights) > 1 else None
        return replace(spec, stratum=spec.stratum if several else None, weights=several)

    def shares(self, questions: Sequence[Mapping[str, Factor]]) -> Mapping[Factor, float]:
        """The stratum's levels among these questions, with their declared weights."""
        sizes = Counter(one[self.head.stratum] for one in questions) if self.head.stratum is not None else Counter()
        equal = self.head.weights == "equal"
        return in_proportion(dict.fromkeys(sizes, 1) if equal else sizes)

    def _stratified(self, spec: MeasureSpec, questions: Sequence[Mapping[str, Factor]]) -> MeasureSpec:
        """The figure averaged over the stratum's levels that these questions have."""
        weights = self.shares(questions)
        if len(weights) < 2:
            return replace(spec, stratum=None, weights=None)
        return replace(spec, stratum=self.head.stratum, weights=weights)

    def with_primary(self, specs: Sequence[MeasureSpec]) -> list[MeasureSpec]:
        """The figures, those that the file calls primary marked as such. Refuses an unknown measure."""
        names = list(dict.fromkeys(spec.measure for spec in specs))
        for field, given in (("primary", self.head.primary), ("neutral", tuple(self.head.neutral))):
            for name in given:
                if name not in names:
                    raise self.source.refuse((field,), name, "no such measure", suggestion(name, names))
        self._check_neutral(specs)
        if not self.head.primary:
            return list(specs)
        levels = set(self.by)

        def is_primary(spec: MeasureSpec) -> bool:
            return spec.measure in self.head.primary and not spec.is_subgroup and not levels & spec.where.keys()

        return [replace(spec, primary=is_primary(spec)) for spec in specs]

    def _check_neutral(self, specs: Sequence[MeasureSpec]) -> None:
        limits = {spec.measure: spec.limits for spec in specs}
        for name, value in self.head.neutral.items():
            low, high = limits[name]
            if not low <= value <= high:
                problem = f"{name} lies between {low:g} and {high:g}"
                raise self.source.refuse(("neutral", name), value, problem, "Give its value without bias")

    def cautions(self) -> Sequence[str]:
        """The file's own caution and source, and what its design cannot show."""
        said = [self.head.caution] if self.head.caution else []
        if self.head.source or self.head.licence:
            said.append(f"Source: {self.head.source or 'not named'}; licence: {self.head.licence or 'not named'}.")
        for factor in self.sampled:
            levels = len({one.get(factor) for one in self.factors})
            if levels < LEAST_LEVELS:
                said.append(f"{factor} has {levels} levels: with fewer than {LEAST_LEVELS} nothing is decided.")
        stratum = self.head.stratum
        sizes = Counter(one[stratum] for one in self.factors) if stratum is not None else {}
        few = [str(level) for level, n in sizes.items() if n < LEAST_LEVELS]
        if few:
            said.append(
                f"Strata with fewer than {LEAST_LEVELS} questions leave the overall figure undecided: {', '.join(few)}."
            )
        return said

    def signature(self) -> Mapping[str, Any]:
        """The declarations that determine how figures are made from rows, for signatures."""
        head = self.head
        return {
            "stratum": head.stratum,
            "by": list(head.by),
            "sampled": list(self.sampled),
            "weights": head.weights,
            "primary": list(head.primary),
            "neutral": dict(head.neutral),
        }


def _kind_of(level: Factor) -> str:
    """What a level is, in words."""
    return "text" if isinstance(level, str) else "truth value" if isinstance(level, bool) else "number"
