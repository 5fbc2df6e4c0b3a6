"""`audit check`, and the checks that every run makes before it asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from audit.analysis.gate.rules import check_rules
from audit.analysis.table import Table
from audit.collect import levels_behind
from audit.config import AuditConfig
from audit.prepare.rehearsal import mistakes
from audit.prepare.rehearsal.answers import plants, rehearse
from audit.prepare.rehearsal.boundaries import BoundaryCheck, check_boundaries
from audit.prepare.rehearsal.recovery import Recovery, recoveries
from audit.prepare.rehearsal.silence import of_silence
from audit.results import level_key
from backends.base import ScoreRequest
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec, Row, Suite
from suites.own_attributes import returned
from suites.own_code import is_own, items_of

#: Items per suite that a run rehearses before it starts; if they show a mistake, all items are rehearsed.
_SAMPLE_SIZE = 200
#: Items per suite that a run makes again, to see that they stay the same.
_AGAIN = 20


@dataclass
class SuiteCheck:
    """What the rehearsal of one suite found.

    Attributes
    ----------
    mistakes : list of ConfigError
        Each would make figures wrong, or leave them without a value.
    n_items, n_figures : int
    rater_tests : Counter
        How many of the items test a language model as a scorer, by the scorer's name.
    levels : mapping of str to mapping
        For each primary figure, the number of levels of each sampled factor.
    unreadable : Counter
        Made-up answers that could not be read, by reason.
    unseen : list of str
        Measures with figures that no made-up answer gave a value.
    unused : list of str
        Factors of the items that no figure, stratum or sample uses.
    cautions : list of str
        How its options limit the figures, as the report says.
    plants_bias : bool
        Whether the suite says what a biased model would answer.
    """

    suite: str
    mistakes: list[ConfigError] = field(default_factory=list)
    n_items: int = 0
    n_figures: int = 0
    rater_tests: Counter[str] = field(default_factory=Counter)
    levels: dict[str, dict[str, int]] = field(default_factory=dict)
    unreadable: Counter[str] = field(default_factory=Counter)
    unseen: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    plants_bias: bool = False
    recovered: list[Recovery] = field(default_factory=list)
    specs: list[MeasureSpec] = field(default_factory=list)


def check_audit(audit: AuditConfig, bias: float) -> tuple[list[SuiteCheck], list[ConfigError]]:
    """Rehearse every suite in full. Returns a check for each suite, and the mistakes in the config itself."""
    found = []
    for name, suite in audit.suites.items():
        try:
            items: Sequence[Item] = list(items_of(suite))
        except ConfigError as error:
            found.append(SuiteCheck(name, [error]))
            continue
        checked = check_items(name, suite, items)
        checked.mistakes += mistakes.of_repetition(suite, items, items_of(suite))
        if not checked.mistakes:
            checked.recovered = recoveries(suite, items, checked.specs, bias, audit.confidence)
        found.append(checked)
    return found, [*mistakes_of_config(audit), *_of_rules(audit, found)]


def tokenizer_checks(audit: AuditConfig) -> tuple[list[BoundaryCheck], list[ConfigError]]:
    """Ask every model's tokenizer about a sample of every suite. Returns what was found, and mistakes."""
    found, told = [], []
    for model, backend in audit.models.items():
        for name, suite in audit.suites.items():
            try:
                checked = check_boundaries(model, backend, name, _sample(suite, list(items_of(suite))))
            except ConfigError as error:
                told.append(error)
                break  # it would fail for every suite
            if checked is not None:
                found.append(checked)
                told += checked.mistakes()
    return found, told


def mistakes_of_config(audit: AuditConfig) -> Iterator[ConfigError]:
    """What is wrong with the models and scorers of a config, as their files and options show."""
    for name, backend in audit.models.items():  # an unset key, a proxy or certificates that cannot be used
        try:
            backend.check()
        except ConfigError as error:
            yield audit.located(error.within(f"models.{name}"))
    for mistake in audit.mistakes_of_scorers():
        yield audit.located(mistake)


def _of_rules(audit: AuditConfig, found: Sequence[SuiteCheck]) -> Iterator[ConfigError]:
    if not any(one.mistakes for one in found):
        try:
            check_rules([spec for one in found for spec in one.specs], audit.margins, audit.limits)
        except ConfigError as error:
            yield audit.located(error)


def refuse_mistakes(audit: AuditConfig, items: Mapping[str, Collection[Item]], others: Collection[str] = ()) -> None:
    """Rehearse a sample of each suite's items before a run asks them.

    Parameters
    ----------
    others : collection of str
        Measures of a baseline, which margins may name too.

    Raises
    ------
    ConfigError
        The first mistake found.
    """
    samples = {name: _sample(suite, items[name]) for name, suite in audit.suites.items()}
    specs: list[MeasureSpec] = []
    for name, suite in audit.suites.items():
        checked = check_items(name, suite, samples[name], all_items=items[name])
        if checked.mistakes:  # a limited run may lack levels that the whole suite has
            checked = _check_whole(name, suite)
        first, again = (list(islice(items_of(suite), _AGAIN)) for _ in range(2))
        for mistake in (*checked.mistakes, *mistakes.of_repetition(suite, first, again)):
            raise mistake
        specs += checked.specs
    try:
        check_rules(specs, audit.margins, audit.limits, others=others)
    except ConfigError:  # some figures may exist only for items outside the sample
        for name, suite in audit.suites.items():
            specs += _check_whole(name, suite).specs
        try:
            check_rules(specs, audit.margins, audit.limits, others=others)
        except ConfigError as error:
            raise audit.located(error) from None
    _check_width(specs, audit)


def _check_width(specs: Sequence[MeasureSpec], audit: AuditConfig) -> None:
    """Raise `ConfigError` for an ``until`` that no interval of a primary figure can exceed."""
    widths = [high - low for low, high in (spec.value_range for spec in specs if spec.primary)]
    if not isinstance(audit.until, float) or not widths or audit.until < max(widths) / 2:
        return
    hint = f"Write {audit.until:g} % as {audit.until / 100:g}" if audit.until <= 100 else "Give less"
    problem = f"every primary figure lies within ±{max(widths) / 2:g} anyway"
    raise audit.located(ConfigError("until", audit.until, problem, hint))


def _check_whole(name: str, suite: Suite) -> SuiteCheck:
    """Check for certain mistakes in the whole suite, regardless of the audit's ``limit``."""
    items = list(items_of(suite))
    return check_items(name, suite, items, all_items=items)


def _sample(suite: Suite, items: Collection[Item]) -> list[Item]:
    """About `_SAMPLE_SIZE` items from all over the suite, in complete sets of those that belong together.

    The first item of each kind is among them, however rare: an item with a misspelt factor is a kind of its own.
    """
    sets: dict[object, list[int]] = {}  # only of items that belong together: the others are sets of their own
    kinds: dict[frozenset[str], object] = {}
    order: list[object] | range = range(len(items))
    if suite.sampled_together:
        for number, item in enumerate(items):
            key = number if item.is_control else tuple(item.factors.get(name) for name in suite.sampled_together)
            sets.setdefault(key, []).append(number)
        order = list(sets)
    for number, item in enumerate(items):
        together = not item.is_control and suite.sampled_together
        key = tuple(item.factors.get(name) for name in suite.sampled_together) if together else number
        kinds.setdefault(frozenset(item.factors), key)
    step = max(1, len(items) // _SAMPLE_SIZE)
    chosen = {number for key in (*order[::step], *kinds.values()) for number in sets.get(key, [key])}
    return [item for number, item in enumerate(items) if number in chosen]


def check_items(
    name: str, suite: Suite, items: Collection[Item], *, all_items: Collection[Item] | None = None
) -> SuiteCheck:
    """Rehearse a suite on these items. If they are a sample of ``all_items``, only certain mistakes are reported."""
    found = SuiteCheck(name, n_items=len(items))
    asked = items if all_items is None else all_items
    try:
        found.mistakes += mistakes.of_descriptions(suite)
        found.mistakes += mistakes.of_items(suite, asked)
        if not found.mistakes:
            found.mistakes += mistakes.of_needs(suite, asked)
        if found.mistakes:
            return found
        is_scored = {type(item.request) for item in items} == {ScoreRequest}
        parsed = rehearse(suite, items)
        found.mistakes += mistakes.of_rows(suite, parsed, is_scored=is_scored)
        if found.mistakes:
            return found
        found.specs = returned(suite, "measures", parsed.rows)
        found.mistakes += mistakes.of_levels(suite, asked, found.specs)
        if all_items is not None:  # else the rows are those of all items
            found.mistakes += mistakes.of_conditions(suite, asked, parsed.rows, found.specs)
        found.mistakes += mistakes.of_measures(
            suite, parsed.rows, found.specs, of_all=all_items is None, is_scored=is_scored
        )
        if all_items is not None and not found.mistakes:
            found.mistakes += _of_derived(suite, asked, parsed.rows, found.specs, is_scored=is_scored)
        if not found.mistakes:
            found.mistakes += of_silence(suite, items, parsed, found.specs)
        if all_items is None:  # a sample may lack figures
            found.mistakes += mistakes.of_presentation(suite, found.specs)
        first = next(iter(items))
        returned(suite, "most_follow_ups", first)
        found.plants_bias = plants(suite, first)
        found.cautions = [*suite.cautions()]
    except ConfigError as error:
        found.mistakes.append(error)
        return found
    found.n_figures = len(found.specs)
    found.rater_tests = Counter(item.scorer for item in asked if item.is_control and item.scorer is not None)
    table = Table.of(parsed.rows)
    found.unseen = sorted({spec.measure for spec in found.specs if mistakes.without_value(spec, table)})
    found.unused = _unused_factors(suite, items, found.specs)
    reasons = [one.row.missing for one in parsed.by_item.values() if one.failure is None]
    found.unreadable = Counter(reason for reason in reasons if reason is not None)
    found.levels = {spec.measure: levels_behind(items, spec) for spec in found.specs if spec.primary}
    return found


def _of_derived(
    suite: Suite, items: Collection[Item], rows: Sequence[Row], specs: Sequence[MeasureSpec], *, is_scored: bool
) -> list[ConfigError]:
    """What is wrong with the figures of rows that a suite of one's own derives; ``rows`` are of a sample.

    Such rows may have factors and levels that no item has, and need answers that the sample lacks. So if figures and
    these rows do not agree, or weights and the levels of the items, all items are rehearsed.
    """
    if type(suite).derive is Suite.derive or not is_own(suite, "derive"):
        return []
    strata = {spec.stratum: {level_key(level) for level in spec.weights} for spec in specs if spec.weights is not None}
    of_items = {name: {level_key(item.factors.get(str(name))) for item in items} for name in strata}
    if strata == of_items and not [*mistakes.of_derived(suite, rows, specs, is_scored=is_scored)]:
        return []
    of_all = rehearse(suite, items_of(suite)).rows
    return [*mistakes.of_derived(suite, of_all, specs, is_scored=is_scored)]


def _unused_factors(suite: Suite, items: Collection[Item], specs: Sequence[MeasureSpec]) -> list[str]:
    """Factors that nothing uses. One with a different level for each item counts as a name, and is left out."""
    used = {*suite.strata, *suite.sampled_together, suite.failures_factor}
    for spec in specs:
        used |= {*spec.where, *spec.clusters, spec.stratum, spec.covariate, spec.membership}
    levels: dict[str, set[object]] = {}
    for item in items:
        for name, level in item.factors.items() if item.scorer is None else ():
            levels.setdefault(name, set()).add(level)
    return [name for name, of in levels.items() if name not in used and 1 < len(of) < len(items)]
