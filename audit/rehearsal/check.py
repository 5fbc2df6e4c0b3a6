"""`audit check`, and what every run checks by itself before it asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from audit.analysis.gate.rules import check_names
from audit.analysis.table import RowTable
from audit.collect import levels_behind
from audit.config import AuditConfig
from audit.rehearsal import mistakes
from audit.rehearsal.answers import rehearse
from audit.rehearsal.recovery import Recovery, recoveries
from backends.base import ScoreRequest
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec, Suite

#: Items of a suite that a run rehearses before it starts; all of them only where these show a mistake.
_A_FEW = 200


@dataclass
class SuiteCheck:
    """What the rehearsal of one suite found.

    Attributes
    ----------
    mistakes : list of ConfigError
        Each makes figures wrong, or leaves them without a value.
    n_items, n_figures : int
    levels : mapping of str to mapping
        Primary figure → how many levels of each sampled factor its items have.
    unreadable : Counter
        Made-up answers that could not be read, by reason.
    unseen : list of str
        Measures, some of whose figures no made-up answer gave a value.
    unused : list of str
        Factors of the items that no figure, stratum or sample rests on.
    plants_bias : bool
        Whether the suite says what a biased model would answer.
    """

    suite: str
    mistakes: list[ConfigError] = field(default_factory=list)
    n_items: int = 0
    n_figures: int = 0
    levels: dict[str, dict[str, int]] = field(default_factory=dict)
    unreadable: Counter[str] = field(default_factory=Counter)
    unseen: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    plants_bias: bool = False
    recovered: list[Recovery] = field(default_factory=list)
    specs: list[MeasureSpec] = field(default_factory=list)


def check_audit(audit: AuditConfig, bias: float) -> tuple[list[SuiteCheck], list[ConfigError]]:
    """Rehearse every suite in full. Returns what each shows, and mistakes of the config itself."""
    found = []
    for name, suite in audit.suites.items():
        try:
            items: Sequence[Item] = list(suite.items())
        except Exception as error:
            found.append(SuiteCheck(name, [mistakes.raised(suite, error)]))
            continue
        checked = check_items(name, suite, items)
        if not checked.mistakes:
            checked.recovered = recoveries(suite, items, checked.specs, bias, audit.confidence)
        found.append(checked)
    return found, [*_of_config(audit, found)]


def _of_config(audit: AuditConfig, found: Sequence[SuiteCheck]) -> Iterator[ConfigError]:
    if not any(one.mistakes for one in found):
        try:
            check_names({spec.measure for one in found for spec in one.specs}, audit.margins, audit.limits)
        except ConfigError as error:
            yield error


def refuse_mistakes(audit: AuditConfig, items: Mapping[str, Collection[Item]], others: Collection[str] = ()) -> None:
    """What a run checks before it asks, on a few items of each suite.

    Parameters
    ----------
    others : collection of str
        Measures of a baseline, which margins may name too.

    Raises
    ------
    ConfigError
        The first mistake.
    """
    few = {name: _a_few(suite, items[name]) for name, suite in audit.suites.items()}
    measures = set(others)
    for name, suite in audit.suites.items():
        checked = check_items(name, suite, few[name], all_items=items[name])
        if checked.mistakes:  # a limited run may lack what the whole suite has
            checked = _whole(name, suite)
        if checked.mistakes:
            raise checked.mistakes[0]
        measures |= {spec.measure for spec in checked.specs}
    try:
        check_names(measures, audit.margins, audit.limits)
    except ConfigError:  # a figure may come with items that are not among these
        for name, suite in audit.suites.items():
            measures |= {spec.measure for spec in _whole(name, suite).specs}
        check_names(measures, audit.margins, audit.limits)


def _whole(name: str, suite: Suite) -> SuiteCheck:
    """What is surely wrong with the whole suite, whatever its `limit`."""
    items = list(suite.items())
    return check_items(name, suite, items, all_items=items)


def _a_few(suite: Suite, items: Collection[Item]) -> list[Item]:
    """Some `_A_FEW` items, whole sets of those that belong together, from all over the suite."""
    sets: dict[object, list[int]] = {}
    for number, item in enumerate(items):
        together = not item.is_control and suite.sampled_together
        key = tuple(item.factors.get(name) for name in suite.sampled_together) if together else number
        sets.setdefault(key, []).append(number)
    step = max(1, len(items) // _A_FEW)
    chosen = {number for of_set in list(sets.values())[::step] for number in of_set}
    return [item for number, item in enumerate(items) if number in chosen]


def check_items(
    name: str, suite: Suite, items: Collection[Item], *, all_items: Collection[Item] | None = None
) -> SuiteCheck:
    """Rehearse a suite on these items. With ``all_items``, which they are of, only what is surely wrong is told."""
    found = SuiteCheck(name, n_items=len(items))
    try:
        found.mistakes += mistakes.of_signature(suite)
        found.mistakes += mistakes.of_items(suite, items if all_items is None else all_items)
        parsed = rehearse(suite, items)
        found.mistakes += mistakes.of_rows(suite, parsed)
        if found.mistakes:
            return found
        found.specs = list(suite.measures(parsed.rows))
        asked = {type(item.request) for item in items}
        is_scored = asked == {ScoreRequest}
        found.mistakes += mistakes.of_measures(
            suite, parsed.rows, found.specs, of_all=all_items is None, is_scored=is_scored
        )
    except Exception as error:
        found.mistakes.append(mistakes.raised(suite, error))
        return found
    first = next(iter(items), None)
    found.plants_bias = first is not None and suite.planted(first, 0.0, 0) is not None
    found.n_figures = len(found.specs)
    table = RowTable(parsed.rows)
    found.unseen = sorted({spec.measure for spec in found.specs if mistakes.without_value(spec, table)})
    found.unused = _unused_factors(suite, items, found.specs)
    reasons = [one.row.missing for one in parsed.by_item.values() if one.failure is None]
    found.unreadable = Counter(reason for reason in reasons if reason is not None)
    found.levels = {spec.measure: levels_behind(items, spec) for spec in found.specs if spec.primary}
    return found


def _unused_factors(suite: Suite, items: Collection[Item], specs: Sequence[MeasureSpec]) -> list[str]:
    """Factors that only describe: those of which each item has another level count as names."""
    used = {*suite.strata, *suite.sampled_together, suite.failures_factor}
    for spec in specs:
        used |= {*spec.where, *spec.clusters, spec.stratum, spec.covariate, spec.membership}
    levels: dict[str, set[object]] = {}
    for item in items:
        for name, level in item.factors.items():
            levels.setdefault(name, set()).add(level)
    return [name for name, of in levels.items() if name not in used and 1 < len(of) < len(items)]
