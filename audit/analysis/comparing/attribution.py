"""The attribution ladder: the effect of each change of a model.

A base model and the same with an adapter, an original and its quantisation, raw text and chat: two rungs that differ
in one part of the model, or in how it is asked, form a step. Differences between them are effects of the change, not
noise, and have a decision of their own. What only the engine changes is noise
(`audit.analysis.comparing.engine_noise`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from audit.analysis.comparing.engine_noise import (
    evenly_spread,
    quantity_gaps,
)
from audit.analysis.table import Floats, Table
from audit.results import AttributionStep, Comparison, ItemChange, Rung, where_key
from backends.base import Description
from backends.errors import ConfigError
from suites.base import MeasureSpec, Suite

#: Maximum number of single items kept for charts. The figures use all of them.
_DRAWN_ITEMS = 400
#: Parts that change along with another: a quantised file has different weights, and its tokenizer in another form.
_FOLLOWS: Mapping[str, Collection[str]] = {"quantisation": ("weights", "tokenizer", "settings")}


class Step(NamedTuple):
    """A step from one model to another, or from one suite to another that asks the same questions in another way.

    Attributes
    ----------
    changes : tuple of str
        What differs: parts of the model (`backends.base.ModelPart`, or another field of the fingerprint); or the key of
        the suite's signature. Empty if no difference is known.
    engine : tuple of str
        Fields of the engine that differ too: the step then includes the engines' noise.
    """

    a: str
    b: str
    changes: tuple[str, ...]
    engine: tuple[str, ...] = ()


def changed_parts(a: Description, b: Description) -> tuple[str, ...] | None:
    """The parts of the model that differ between two backends, except for the engine; None if not known for both.

    If no part differs, differing fields that belong to neither engine are returned: those in both fingerprints, and
    those in only one of them that no part accounts for.
    """
    if not (a.parts and b.parts):
        return None
    parts = dict.fromkeys((*a.parts, *b.parts))
    changed: list[str] = [part for part in parts if _differ(a.parts.get(part), b.parts.get(part))]
    if not changed:
        both = a.fingerprint.keys() & b.fingerprint.keys()
        untold = _untold_fields(a, b)
        changed = [name for name in _differing_fields(a, b, of_engine=False) if name in both or name in untold]
    following = {part for cause in changed for part in _FOLLOWS.get(cause, ())}
    return tuple(part for part in changed if part not in following)


def _differing_fields(a: Description, b: Description, *, of_engine: bool) -> tuple[str, ...]:
    """The fields of the fingerprints that differ, and belong to an engine or do not."""
    engine = a.engine_fields | b.engine_fields
    names = dict.fromkeys((*a.fingerprint, *b.fingerprint))
    return tuple(
        name for name in names if (name in engine) == of_engine and a.fingerprint.get(name) != b.fingerprint.get(name)
    )


def _untold_fields(a: Description, b: Description) -> list[str]:
    """The differing fields that no known part accounts for: by its value, or by its name at the start of theirs."""

    def is_told(name: str, of: Description) -> bool:
        value = of.fingerprint.get(name)
        parts = ((part, held) for part, held in of.parts.items() if held is not None)
        return value is None or any(name.startswith(part) or str(value) in str(held) for part, held in parts)

    differing = _differing_fields(a, b, of_engine=False)
    return [name for name in differing if not (is_told(name, a) and is_told(name, b))]


def _differ(a: object, b: object) -> bool:
    """Whether two values of a part are known to differ, which is not so in different forms (``gguf:``, ``json:``)."""
    forms = [str(value).partition(":") for value in (a, b)]
    return a != b and (forms[0][0] == forms[1][0] or not all(colon for _, colon, _ in forms))


def engine_pairs(
    descriptions: Mapping[str, Description], declared: Iterable[Collection[str]] = ()
) -> list[tuple[str, str]]:
    """Pairs of models that are the same model on different engines.

    Parameters
    ----------
    descriptions : mapping of model name to Description
        Two models with known and equal parts, whose fingerprints differ only in engine fields, are a pair.
    declared : iterable of collections of names
        Groups of models with the same weights although no hash shows it: another file format, or a server. Names of
        models left out of the run are ignored.

    Raises
    ------
    ConfigError
        If models of a declared group differ in their adapter, or in a field of the fingerprint that belongs to neither
        the engine nor a part.
    """
    groups = [set(group) for group in declared]
    pairs = []
    for a, b in itertools.combinations(descriptions, 2):
        changed = changed_parts(descriptions[a], descriptions[b])
        together = any({a, b} <= group for group in groups)
        if together and changed:
            untold = _untold_fields(descriptions[a], descriptions[b])
            other = ["adapter"] if "adapter" in changed else untold
            if other:
                hint = f"Leave one of them out: a different {other[0]} is not engine noise"
                raise ConfigError("same_weights", f"{a}, {b}", f"they differ in their {other[0]}", hint)
        if together or changed == ():
            pairs.append((a, b))
    return pairs


def model_steps(descriptions: Mapping[str, Description], declared: Iterable[Sequence[str]] = ()) -> list[Step]:
    """The steps between models, at most one leading to each.

    Parameters
    ----------
    descriptions : mapping of model name to Description
        There is a step to a model from another with the same weights that differs in some other part: from the one most
        like it, in model and engine. There is no step from a model with an adapter to one without.
    declared : iterable of sequences of names
        Chains of models, each made from the one before. Names of models left out of the run are skipped.
    """
    steps: dict[str, Step] = {}
    for chain in declared:
        for a, b in itertools.pairwise(name for name in chain if name in descriptions):
            pair = descriptions[a], descriptions[b]
            steps[b] = Step(a, b, changed_parts(*pair) or (), _differing_fields(*pair, of_engine=True))
    names = list(descriptions)
    for b in names:
        candidates = [step for a in names if (step := _step(a, b, descriptions)) is not None]
        candidates = [step for step in candidates if not _is_adapted(descriptions[step.a])] or candidates
        if b not in steps and candidates:
            steps[b] = min(candidates, key=lambda step: (len(step.changes), len(step.engine), names.index(step.a)))
    return [steps[name] for name in names if name in steps]


def _step(a: str, b: str, descriptions: Mapping[str, Description]) -> Step | None:
    """The step from a to b, if b has the same weights with something else changed; else None."""
    before, after = descriptions[a], descriptions[b]
    weights = before.parts.get("weights")
    changed = changed_parts(before, after)
    if not changed or weights is None or weights != after.parts.get("weights"):
        return None
    names = list(descriptions)
    rising = (_is_adapted(before), names.index(a)) < (_is_adapted(after), names.index(b))
    return Step(a, b, changed, _differing_fields(before, after, of_engine=True)) if rising else None


def _is_adapted(description: Description) -> bool:
    return description.parts.get("adapter") is not None


def asking_steps(suites: Mapping[str, Suite]) -> list[Step]:
    """Pairs of suites of the same class whose signatures differ only in `Suite.prompting`."""
    steps = []
    for at, (b, after) in enumerate(suites.items()):
        for a, before in itertools.islice(suites.items(), at):
            ours, theirs = before.signature(), after.signature()
            differing = [key for key in dict.fromkeys((*ours, *theirs)) if ours.get(key) != theirs.get(key)]
            if type(before) is type(after) and differing and set(differing) <= set(after.prompting):
                steps.append(Step(a, b, (differing[0],)))
                break
    return steps


@dataclass
class Ladder:
    """The steps of a run, and the tables that they need, which are added suite by suite."""

    models: Sequence[Step]
    suites: Sequence[Step]
    _tables: dict[Rung, Table] = field(default_factory=dict)
    _specs: dict[str, Sequence[MeasureSpec]] = field(default_factory=dict)

    @property
    def lineage(self) -> frozenset[frozenset[str]]:
        """Pairs of models connected by steps, directly or indirectly."""
        groups: dict[str, set[str]] = {}
        for step in self.models:
            joined = groups.get(step.a, {step.a}) | groups.get(step.b, {step.b})
            groups |= dict.fromkeys(joined, joined)
        return frozenset(frozenset((a, b)) for a, of_a in groups.items() for b in of_a if a != b)

    def add(self, suite: str, tables: Mapping[str, Table], specs: Sequence[MeasureSpec]) -> None:
        """Keep a suite's tables by model, and its figures, if a step needs them."""
        climbed = {name for step in self.models for name in (step.a, step.b)}
        across = any(suite in (step.a, step.b) for step in self.suites)
        kept = {Rung(model=name, suite=suite): of for name, of in tables.items() if across or name in climbed}
        if kept:
            self._tables |= kept
            self._specs[suite] = specs

    def evaluate(self, compare: Callable[..., list[Comparison]]) -> list[AttributionStep]:
        """The effect of each step, decided independently of other steps and other pairs of models.

        ``compare`` is `compare_models` with the audit's margins and confidence.
        """
        between_models = [
            (Rung(model=step.a, suite=suite), Rung(model=step.b, suite=suite), step)
            for suite in self._specs
            for step in self.models
        ]
        models = dict.fromkeys(rung.model for rung in self._tables)
        between_suites = [
            (Rung(model=model, suite=step.a), Rung(model=model, suite=step.b), step)
            for step in self.suites
            for model in models
            if Rung(model=model, suite=step.b) in self._tables
        ]
        return [
            self._evaluated(a, b, step, compare)
            for a, b, step in between_models + between_suites
            if self._tables[a].index.keys() & self._tables[b].index.keys()
        ]

    def _evaluated(self, a: Rung, b: Rung, step: Step, compare: Callable[..., list[Comparison]]) -> AttributionStep:
        ours, theirs = self._tables[a], self._tables[b]
        known = {(spec.measure, where_key(spec.where)) for spec in self._specs[a.suite]}
        specs = [
            spec
            for spec in self._specs[b.suite]
            if (spec.measure, where_key(spec.where)) in known and not spec.is_subgroup
        ]
        compared = {spec.quantity for spec in specs}  # not those that only figures of single levels use
        index, gaps = quantity_gaps(ours, theirs, [name for name in ours.named("value") if name in compared])
        exact = np.any([np.isfinite(gap) for gap in gaps.values()], axis=0) if gaps else np.zeros(len(index))
        both = [item for item, at in index.items() if exact[at]]
        return AttributionStep(
            a=a,
            b=b,
            changes=list(step.changes),
            engine=list(step.engine),
            comparisons=compare({a.title_beside(b): ours, b.title_beside(a): theirs}, specs, suite=b.suite),
            items=[
                ItemChange(item=item, factors=theirs.factors_of(item), quantities=_gaps_at(gaps, index[item]))
                for item in evenly_spread(both, _DRAWN_ITEMS)
            ],
        )


def _gaps_at(gaps: Mapping[str, Floats], at: int) -> dict[str, float]:
    """The differences of one item, where they are known."""
    return {name: float(gap[at]) for name, gap in gaps.items() if np.isfinite(gap[at])}
