"""What differs between two models: a change of the model, which is a step, or the engine alone, which is noise.

A base model and the same with an adapter, an original and its quantisation: two models that differ in one part form a
step, whose effect has a decision of its own. Transformers and llama.cpp, float32 and bfloat16 do not give the same
numbers for the same weights. That is no property of the model, so a difference between two other models that is no
larger is flagged.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from audit.results import Comparison, FigureKey
from audit.results.figures import differing
from backends.base import Description
from backends.errors import ConfigError

#: Parts that change with the quantisation: its file has different weights, and its tokenizer in another form.
_OF_QUANTISED = ("weights", "tokenizer", "settings")


class Step(NamedTuple):
    """A step from one model to another.

    ``changes`` are what differs: parts of the model (`backends.base.ModelPart`), or another field of the fingerprint.
    It is empty if no difference is known. ``engine`` are fields of the engine that differ too: the step then includes
    the engines' noise.
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
    following = _OF_QUANTISED if "quantisation" in changed else ()
    return tuple(part for part in changed if part not in following)


def _differing_fields(a: Description, b: Description, *, of_engine: bool) -> tuple[str, ...]:
    """The fields of the fingerprints that differ, and belong to an engine or do not."""
    engine = a.engine_fields | b.engine_fields
    return tuple(name for name in differing(a.fingerprint, b.fingerprint) if (name in engine) == of_engine)


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
    """Pairs of models that are the same on different engines: their parts are known and equal, and their fingerprints
    differ only in engine fields.

    ``declared``: groups of models with the same weights although no hash shows it: another file format, or a server.
    Names of models left out of the run are ignored.

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
        others = ["adapter"] if "adapter" in (changed or ()) else _untold_fields(descriptions[a], descriptions[b])
        if together and changed and others:
            hint = f"Leave one of them out: a different {others[0]} is not engine noise"
            raise ConfigError("same_weights", f"{a}, {b}", f"they differ in their {others[0]}", hint)
        if together or changed == ():
            pairs.append((a, b))
    return pairs


def model_steps(descriptions: Mapping[str, Description], declared: Iterable[Sequence[str]] = ()) -> list[Step]:
    """The steps between models, at most one leading to each.

    There is a step to a model from another with the same weights that differs in some other part: from the one most
    like it, in model and engine. There is no step from a model with an adapter to one without. ``declared``: chains of
    models, each made from the one before. Names of models left out of the run are skipped.
    """
    steps: dict[str, Step] = {}
    for chain in declared:
        for a, b in itertools.pairwise(name for name in chain if name in descriptions):
            pair = descriptions[a], descriptions[b]
            steps[b] = Step(a, b, changed_parts(*pair) or (), _differing_fields(*pair, of_engine=True))
    names = list(descriptions)
    for b in names:
        candidates = {}
        for a in names:
            before, after = descriptions[a], descriptions[b]
            of_a, of_b = (
                (of.parts.get("adapter") is not None, names.index(to)) for of, to in ((before, a), (after, b))
            )
            is_same = before.parts.get("weights") == after.parts.get("weights") is not None
            if is_same and of_a < of_b and (changed := changed_parts(before, after)):
                engine = _differing_fields(before, after, of_engine=True)
                candidates[of_a[0], len(changed), len(engine), of_a[1]] = Step(a, b, changed, engine)
        if candidates:
            steps.setdefault(b, candidates[min(candidates)])
    return [steps[name] for name in names if name in steps]


def lineage(steps: Iterable[Step]) -> frozenset[frozenset[str]]:
    """Pairs of models connected by steps, directly or indirectly."""
    groups: dict[str, set[str]] = {}
    for step in steps:
        joined = groups.get(step.a, {step.a}) | groups.get(step.b, {step.b})
        groups |= dict.fromkeys(joined, joined)
    return frozenset(frozenset((a, b)) for a, of_a in groups.items() for b in of_a if a != b)


def with_engine_noise(
    comparisons: Sequence[Comparison], pairs: Collection[tuple[str, str]], steps: Iterable[Step] = ()
) -> list[Comparison]:
    """Add the engine noise of their figure to comparisons of unrelated models.

    The noise of a figure is the largest difference of one model between any two engines, those of ``pairs`` (the larger
    bound, if only bounds are known). It is set for all other pairs of models but those that ``steps`` connect: a
    derived model differs by a real change.
    """
    engines = {frozenset(pair) for pair in pairs}
    related = engines | lineage(steps)
    noise: dict[FigureKey, float] = {}
    for c in comparisons:
        if frozenset((c.a, c.b)) in engines and c.bound_low is not None and c.bound_high is not None:
            key = c.figure.key
            noise[key] = max(noise.get(key, 0.0), abs(c.bound_low), abs(c.bound_high))
    return [
        c
        if frozenset((c.a, c.b)) in related or c.figure.key not in noise
        else c.model_copy(update={"engine_noise": noise[c.figure.key]})
        for c in comparisons
    ]
