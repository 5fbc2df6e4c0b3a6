"""Turn a config into an audit that is ready to run: checked, with its backends described and its items sampled."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from audit.collect.sample import (
    ALL_AT_ONCE,
    LEAST_LEVELS,
    InterimLook,
    Sample,
    in_part,
    items_behind,
    leading_specs,
    levels_behind,
    matching,
    plan_looks,
    sample_of,
    sampled_factors,
)
from audit.config import AuditConfig
from audit.results import FigureName
from audit.store import Store
from backends.base import Backend, Capability, ClassifyRequest, Description, Form, ScoreRequest, describe
from backends.errors import BackendError, ConfigError
from suites.base import Item, MeasureSpec, Suite


@dataclass(frozen=True)
class DescribedBackend:
    """A backend that an audit asks: an audited model, or a suite's scorer."""

    name: str
    backend: Backend
    description: Description
    fingerprint_id: str


@dataclass(frozen=True)
class ResolvedAudit:
    """A checked audit: its models and scorers described, each suite's items limited to the sample.

    Attributes
    ----------
    scorers : mapping
        By (suite, scorer name).
    items, of_items : mapping
        For each suite the items of the sample, each one object for all models, and how many it was taken from.
    looks : tuple of InterimLook
        When the run evaluates its answers.
    look_of : mapping
        For each suite, the number of the look (n,) by which each item is asked; 0 for an item that belongs to another
        part of the audit. A suite without an entry is asked at once.
    """

    models: Mapping[str, DescribedBackend]
    scorers: Mapping[tuple[str, str], DescribedBackend]
    items: Mapping[str, Sequence[Item]]
    of_items: Mapping[str, int]
    looks: tuple[InterimLook, ...] = ALL_AT_ONCE
    look_of: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def asked(self, suite: str, looks: range) -> Iterator[Item]:
        """The items that are asked in these looks."""
        return map(self.items[suite].__getitem__, self.places(suite, looks))

    def places(self, suite: str, looks: range) -> Sequence[int]:
        """The positions of the items that are asked in these looks."""
        of_items, all_places = self.look_of.get(suite), range(len(self.items[suite]))
        return all_places if of_items is None else [i for i in all_places if of_items[i] in looks]

    @property
    def all_looks(self) -> range:
        """The numbers of all looks, for `asked` and `places`."""
        return range(1, len(self.looks) + 1)

    def backends(self) -> Iterator[DescribedBackend]:
        """Models and scorers."""
        yield from self.models.values()
        yield from self.scorers.values()

    def backend_for(self, model: str, suite: str, scorer: str | None) -> DescribedBackend:
        """The backend that answers an item of a suite when ``model`` is audited; ``scorer`` is `Item.scorer`."""
        return self.models[model] if scorer is None else self.scorers[suite, scorer]

    async def close(self) -> None:
        """Close every backend."""
        for described in self.backends():
            await described.backend.close()


async def resolve_audit(audit: AuditConfig, store: Store, *, ask: bool = True) -> ResolvedAudit:
    """Check the audit, sample the items, describe the backends and find the ids of their answers. Loads no weights.

    Without ``ask`` nothing is sent to servers: they are described as far as they are known.

    Raises
    ------
    ConfigError
        If an option is invalid, or a backend cannot do what a suite asks.
    """
    for mistake in audit.mistakes():
        raise mistake
    items, of_items = {}, {}
    for name, suite in audit.suites.items():
        items[name], of_items[name] = await asyncio.to_thread(suite_items, name, suite, audit)
    models = {name: await _describe(name, backend, store, ask) for name, backend in audit.models.items()}
    scorers = {}
    for suite_name, suite in audit.suites.items():
        needs = await asyncio.to_thread(suite.needs_of, items[suite_name])
        for model in models.values():
            _check_capabilities(model, suite_name, needs)
            await asyncio.to_thread(_check_forms, model, suite_name, suite, items[suite_name])
        for scorer, backend in suite.scorers.items():
            scorers[suite_name, scorer] = await _describe(f"{suite_name}: {scorer}", backend, store, ask)
    resolved = ResolvedAudit(models, scorers, items, of_items)
    if audit.shard is not None:
        parts = {name: await asyncio.to_thread(in_part, items[name], audit.shard) for name in items}
        return dataclasses.replace(resolved, look_of=parts)
    if audit.until is None:
        return resolved
    looks = plan_looks(map(len, items.values()), by_width=audit.until != "decided")
    look_of = {
        name: await asyncio.to_thread(_assign_looks, suite, items[name], audit, looks)
        for name, suite in audit.suites.items()
    }
    return dataclasses.replace(resolved, looks=looks, look_of=look_of)


def suite_items(name: str, suite: Suite, audit: AuditConfig) -> tuple[list[Item], int]:
    """The items of a suite that an audit asks, and how many the suite has.

    Raises
    ------
    ConfigError
        If there are none, two have one id, or the sample is too small.
    """
    items = list(suite.items())
    if not items:
        raise ConfigError(f"suites.{name}", type(suite).__name__, "the suite has no items", "Widen its options")
    if len({item.id for item in items}) < len(items):
        ((twice, _),) = Counter(item.id for item in items).most_common(1)
        raise ConfigError(f"suites.{name}", twice, "two items have this id", "Give each item an id of its own")
    if audit.limit is None:
        return items, len(items)
    sample, requirement = sample_of(suite, items, audit.seed), Requirement(items, leading_specs(suite))
    if not audit.small_sample and audit.limit < min(sample.smallest, len(items)):
        # The error should name the limit that decides something, not the one that merely allows one set of items.
        _check_useful(name, audit.limit, sample, [], requirement)
    taken = sample.take(audit.limit)
    if not audit.small_sample and len(taken) < len(items):
        _check_useful(name, audit.limit, sample, taken, requirement)
    return taken, len(items)


def _check_useful(name: str, limit: int, sample: Sample, taken: Sequence[Item], requirement: Requirement) -> None:
    """Refuse a sample that could decide nothing, and name the smallest limit that could."""
    lacking = requirement.lacking(taken)
    if lacking is None:
        return
    least = sample.least(lambda items: requirement.lacking(items) is None)
    levels = f"{lacking.found} {'level' if lacking.found == 1 else 'levels'} of {lacking.factor!r}"
    figure = FigureName(name, lacking.spec.measure, lacking.spec.where)
    hint = f"Give {least} or more, or set small_sample (--small-sample) if you only want to try things out"
    problem = f"a sample with {levels} behind {figure}: with fewer than {lacking.needed} it decides nothing"
    raise ConfigError("limit", limit, problem, hint)


class Lacking(NamedTuple):
    """A figure whose items have ``found`` levels of a factor, but need ``needed``."""

    spec: MeasureSpec
    factor: str
    found: int
    needed: int


class Requirement:
    """A sample needs, for each figure, `LEAST_LEVELS` levels of each factor that the figure generalises over, or all
    that exist; for a figure without such factors, as many items."""

    def __init__(self, items: Collection[Item], specs: Sequence[MeasureSpec]) -> None:
        # Whether a figure's condition is one of the items' factors does not depend on the sample.
        self._whole = [(spec, bool(matching(items, spec)), _levels_or_items(items, spec)) for spec in specs]

    def lacking(self, items: Collection[Item]) -> Lacking | None:
        """The factor of which the sample has the smallest part of the levels needed; None if it has enough of each."""
        found = []
        for spec, is_of_items, whole in self._whole:
            own = _levels_or_items(items, spec) if not is_of_items or matching(items, spec) else {}
            found += [Lacking(spec, name, own.get(name, 0), min(of, LEAST_LEVELS)) for name, of in whole.items()]
        return min(
            (one for one in found if one.found < one.needed), key=lambda one: one.found / one.needed, default=None
        )


def _levels_or_items(items: Collection[Item], spec: MeasureSpec) -> dict[str, int]:
    """The levels of each factor; of a figure that samples none, the items are the sample."""
    if sampled_factors([spec]) or spec.membership is not None:
        return levels_behind(items, spec)
    n = sum(not item.is_control for item in items_behind(items, spec))
    return {"item": n} if n else {}


def _assign_looks(suite: Suite, items: Sequence[Item], audit: AuditConfig, looks: tuple[InterimLook, ...]) -> list[int]:
    """By which look each item is asked, in a random order that the seed fixes."""
    return sample_of(suite, items, audit.seed).looks([look.items for look in looks])


def _check_capabilities(model: DescribedBackend, suite_name: str, needs: Set[Capability]) -> None:
    missing = needs - model.description.capabilities
    absent = model.description.absent
    if "recorded" in missing:
        problem = f"suites.{suite_name} brings texts that were written elsewhere, which it would not be asked for"
        hint = "Leave --model out, or give RecordedBackend; to ask this model, remove the completions"
        raise _refused(model.name, model.backend, problem, hint)
    if missing:
        lacked = [f"{one} ({absent[one]})" if one in absent else one for one in sorted(missing)]
        problem = f"it cannot do what suites.{suite_name} asks: {', '.join(lacked)}"
        can = ", ".join(sorted(model.description.capabilities)) or "nothing"
        mode = "mode or its start" if "score_alone" in missing else "mode"
        hint = f"It can: {can}. Change what it lacks, leave the model or the suite out, or change the suite's {mode}"
        raise _refused(model.name, model.backend, problem, hint)


#: Begins no answer. GenderPair has no such form, but need not score.
_WITHOUT_PREFILL = 'prompt_format="chat_whole", or GenderPair fallback="none"'
_ASKED_OTHERWISE: Mapping[Form, str] = {
    "score_text": 'prompt_format="chat"',
    "score_chat": 'prompt_format="raw"',
    "score_prefill": _WITHOUT_PREFILL,
    "generate_prefill": _WITHOUT_PREFILL,
}


def _check_forms(model: DescribedBackend, suite_name: str, suite: Suite, items: Sequence[Item]) -> None:
    """Refuse a suite whose questions, or those that may follow them, have a form that the model cannot answer."""
    absent = model.description.absent
    if not {*get_args(Form)} & {*absent}:
        return
    found = Counter(form for item in items for form in _forms(suite, item))
    for form in sorted(found.keys() & absent.keys()):
        begins = form in ("score_prefill", "generate_prefill")
        instead = "score_prefill" if form == "score_text" and "score_prefill" in absent else form
        other = _ASKED_OTHERWISE[instead] if "prompt_format" in suite.signature() else ""
        need = f"{'begin the answer, and ' if begins else ''}need {form}: {absent[form]}"
        problem = f"{found[form]:,} of the {len(items):,} questions of suites.{suite_name} {need}"
        hint = f"{f'Give suites.{suite_name} {other}, or leave' if other else 'Leave'} the model or the suite out"
        raise _refused(model.name, model.backend, problem, hint)


def _forms(suite: Suite, item: Item) -> set[Form]:
    """The forms of an item's prompt, and of the questions that may follow it."""
    found = set[Form]()
    for asked in (item, *suite.most_follow_ups(item)):
        request = asked.request
        if asked.scorer is not None or isinstance(request, ClassifyRequest):
            continue
        scored = isinstance(request, ScoreRequest)
        if isinstance(request.prompt, str):
            found |= {"score_text"} if scored else set()
        else:
            begins = request.prompt[-1].role == "assistant"
            found |= {"score_chat"} if scored else set()
            found |= {"score_prefill" if scored else "generate_prefill"} if begins else set()
    return found


async def _describe(name: str, backend: Backend, store: Store, ask: bool) -> DescribedBackend:
    try:
        description = await describe(backend, ask=ask)
    except ConfigError as error:
        raise error.within(f"models.{name}") from None
    except BackendError as error:
        hint = error.hint or "Check its options, and that it can be reached"
        raise _refused(name, backend, f"{error.kind}: {error.message.rstrip('.')}", hint) from None
    except Exception as error:  # whatever an engine or a third-party backend raises for a model that does not exist
        first = next(iter(str(error).strip().splitlines()), "")
        problem = f"describing it raised {type(error).__name__}: {first}"
        raise _refused(name, backend, problem, "Check its name and its files") from error
    try:
        identity = await asyncio.to_thread(store.know, description.fingerprint)
    except (TypeError, AttributeError) as error:
        raise _refused(name, backend, f"its description cannot be stored: {error}", "Use texts and numbers") from error
    return DescribedBackend(name, backend, description, identity)


def _refused(name: str, backend: Backend, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"models.{name}", type(backend).__name__, problem, hint)
