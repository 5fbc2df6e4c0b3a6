"""Mistakes in a suite that made-up answers reveal, each with the file and line of the method responsible."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from audit.analysis.figures import undefined_strata, usable
from audit.analysis.rows.responses import ParsedResponses
from audit.analysis.table import Table
from audit.results import level_key, where_key
from backends.base import ClassifyRequest, GenerateRequest, Request, ScoreRequest
from backends.checked_fields import matches, wrong_value
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec, Row, Suite
from suites.own_attributes import refuse_descriptions
from suites.own_code import is_own, misfit, placed

#: Tolerance for rounding at the ends of a quantity's range.
_ROUNDING = 1e-9
#: What is wrong with a name that has a lone surrogate, and the hint. In prompts and answers they do no harm.
_HALF = "half a character (a lone surrogate), which no file can hold", "Remove it"


def of_items(suite: Suite, items: Collection[Item]) -> Iterator[ConfigError]:
    """No items, ids that are used twice, levels that are no names, and factors that the suite names but no item has."""
    if not items:
        yield placed(suite, "items", suite.name, "it has no items", "Yield at least one")
        return
    is_right = matches(Item)
    for item in items:
        if not is_right(item):  # those that the suite made first were checked where they were made
            wrong = wrong_value(item, Item, "Item")
            assert wrong is not None
            yield misfit(suite, "items", wrong)
            return
        if broken := _broken(item.id, *item.factors, *item.factors.values()):
            yield placed(suite, "items", broken, *_HALF)
            return
    twice = _repeated(item.id for item in items)
    ids = Counter(item.id for item in items if hash(item.id) in twice) if twice else Counter[str]()
    for item_id, n in ids.items():
        if n > 1:
            yield placed(
                suite, "items", item_id, f"{n} items have this id: one answer would count for all", "Make it unique"
            )
    factors = {factor for item in items for factor in item.factors}
    named = {"strata": suite.strata, "sampled_together": suite.sampled_together}
    for option, names in {**named, "failures_factor": (suite.failures_factor,)}.items():
        for name in names:
            if name is not None and name not in factors:
                yield placed(suite, None, name, f"{option}: no item has this factor", _close(name, factors))


def _repeated(values: Iterable[Hashable]) -> set[int]:
    """The hashes that two of the values have: a million values need not be held to see that all differ."""
    hashes = np.sort(np.fromiter(map(hash, values), np.int64))
    return set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())


def of_descriptions(suite: Suite) -> Iterator[ConfigError]:
    """What a suite says of itself: a signature that cannot be stored, and a character that no report can hold."""
    said = refuse_descriptions(suite)
    try:
        json.dumps(said["signature"])
    except (TypeError, ValueError) as error:
        problem = f"it cannot be written as JSON: {error}"
        yield placed(suite, "signature", suite.name, problem, "Use texts, numbers, lists")
    meanings = {name: dataclasses.asdict(meaning) for name, meaning in suite.meanings.items()}
    for source, texts in {"title": suite.title, "meanings": meanings, **said}.items():
        if broken := _broken(*_plain(texts)):
            yield placed(suite, source if callable(getattr(suite, source)) else None, broken, *_HALF)
            return


def _plain(said: Any) -> Iterator[object]:
    """A text, a mapping, or dataclasses as mappings."""
    yield from (
        [said]
        if isinstance(said, str | Mapping)
        else (
            dataclasses.asdict(one) if dataclasses.is_dataclass(one) and not isinstance(one, type) else one
            for one in said
        )
    )


def _broken(*said: object) -> str | None:
    """The first text with a lone surrogate, also within lists and mappings."""
    for one in said:
        if isinstance(one, str):
            if not one.isascii() and any("\ud800" <= char <= "\udfff" for char in one):
                return one
        elif isinstance(one, Mapping | Sequence):
            inner = [*one, *one.values()] if isinstance(one, Mapping) else one
            if broken := _broken(*inner):
                return broken
    return None


def of_presentation(suite: Suite, specs: Sequence[MeasureSpec]) -> Iterator[ConfigError]:
    """Measures that the suite's own class charts, tabulates or words, and no figure has."""
    measures = {spec.measure for spec in specs}
    named = {
        "charts": [measure for chart in suite.charts() for measure in chart.measures],
        "tables": [column.measure for table in suite.tables() for column in table.columns],
        "published": [figure.measure for figure in suite.published()],
        "meanings": [*suite.meanings, *(beside.measure for said in suite.meanings.values() for beside in said.beside)],
    }
    for source, names in named.items():
        for name in dict.fromkeys(names) if is_own(suite, source) else ():
            if name not in measures and not suite.may_lack(name):
                method = source if callable(getattr(suite, source)) else None
                yield placed(suite, method, name, f"{source}: no figure is called so", _close(name, measures))


def of_levels(suite: Suite, items: Collection[Item], specs: Sequence[MeasureSpec]) -> Iterator[ConfigError]:
    """Two levels of a sampled factor that ask the same: one answer would count as two independent ones."""
    twice = _repeated((item.request, item.scorer) for item in items)
    for factor in dict.fromkeys(factor for spec in specs for factor in spec.clusters) if twice else ():
        figures = [spec for spec in specs if factor in spec.clusters]
        asked: dict[object, list[Item]] = {}
        for item in items:
            if item.is_control or item.factors.get(factor) is None or hash((item.request, item.scorer)) not in twice:
                continue
            alike = asked.setdefault((item.request, item.scorer), [])
            other = next((one for one in alike if _count_as_two(one, item, factor, figures)), None)
            if other is not None:
                problem = (
                    f"this level of {factor!r} asks the same as {other.factors[factor]!r}: it would count as another"
                )
                hint = f"Is a part of the prompt of {item.id!r} missing? Or give both one level"
                yield placed(suite, "items", item.factors[factor], problem, hint)
                break
            alike.append(item)


def of_conditions(
    suite: Suite, items: Collection[Item], rows: Sequence[Row], specs: Sequence[MeasureSpec]
) -> Iterator[ConfigError]:
    """Figures of levels that no item has, or weights of such, if rows take these factors over from their items."""
    if type(suite).derive is not Suite.derive:
        return
    levels: dict[str, set[Any]] = {}
    for item in items:
        for name, level in item.factors.items():
            levels.setdefault(name, set()).add(level)
    taken_over = {name for name in levels if all(row.factors.get(name) in {None, *levels[name]} for row in rows)}
    for spec in specs:
        for name, level in spec.where.items():
            if name in taken_over and level is not None and level not in levels[name]:
                problem = f"where of {_named(spec)} matches no row"
                yield placed(
                    suite, "measures", level, problem, _close(str(level), [str(one) for one in levels[name]][:8])
                )
                return
        for level in spec.weights or () if spec.stratum in taken_over else ():
            have = levels[str(spec.stratum)]
            if level_key(level) not in map(level_key, have):
                problem = f"{_named(spec)}: this level of {spec.stratum!r} has a weight but no rows"
                yield placed(suite, "measures", level, problem, _close(str(level), [str(one) for one in have][:8]))
                return


def _count_as_two(one: Item, other: Item, factor: str, figures: Iterable[MeasureSpec]) -> bool:
    """Whether two items with one request are different levels of a factor in the same figure."""
    if one.factors[factor] == other.factors[factor]:
        return False
    both = (one.factors, other.factors)
    return any(all(have.get(name) == level for have in both for name, level in spec.where.items()) for spec in figures)


def of_repetition(suite: Suite, items: Collection[Item], again: Iterable[Item]) -> Iterator[ConfigError]:
    """Items that differ when they are made again: each run would ask, and report, something else."""
    for before, now in zip_longest(items, again):
        if before != now:
            item_id = (before or now).id
            hint = "Draw from random.Random(seed), and sort what comes from a set"
            yield placed(suite, "items", item_id, "another question each time that items are made", hint)
            return


def of_rows(suite: Suite, parsed: ParsedResponses, *, is_scored: bool) -> Iterator[ConfigError]:
    """Rows with an id other than their item's, several with the same id, and scores of which none can be read."""
    for item_id, found in parsed.by_item.items():
        if found.row.item_id != item_id:
            problem = f"read gave the answer to {item_id!r} a row with this id"
            yield placed(suite, "read", found.row.item_id, problem, "Use the item's id")
            return
    for row_id, n in Counter(row.item_id for row in parsed.rows).items():
        if n > 1:
            yield placed(suite, "derive", row_id, f"{n} rows have this id", "Give each row its own")
            return
    reasons = Counter(found.row.missing for found in parsed.by_item.values())
    if is_scored and None not in reasons:
        named = ", ".join(str(reason) for reason, _ in reasons.most_common(3))
        yield placed(suite, "read", suite.name, f"no answer could be read: {named}", "Exact scores can be read")


def of_measures(
    suite: Suite, rows: Sequence[Row], specs: Sequence[MeasureSpec], *, of_all: bool, is_scored: bool
) -> Iterator[ConfigError]:
    """Figures that no row can give a value, and values outside the range of a figure's kind.

    With ``of_all`` (the rows are those of all items) everything that looks wrong is reported. Otherwise only certain
    mistakes are, which do not depend on what other items there are, and only if the suite derives no rows, since
    derived rows may need other answers than these. Quantities that depend on what a model writes are checked only
    with ``is_scored`` (all requests ask for probabilities).
    """
    if not specs:
        yield placed(suite, "measures", suite.name, "it reports no figure", "Yield at least one MeasureSpec")
    seen: set[object] = set()
    table = Table.of(rows)
    quantities = {name for row in rows for name in row.values}
    factors = {name for row in rows for name in row.factors} | {name for row in rows for name in row.memberships}
    for spec in specs:
        if broken := _broken(spec.measure, spec.quantity, spec.unit, spec.family, spec.population, spec.where):
            yield placed(suite, "measures", broken, *_HALF)
            return
        name = (spec.measure, where_key(spec.where))
        if name in seen:
            yield placed(suite, "measures", _named(spec), "the same figure twice", "Give it another name or where")
        seen.add(name)
        if not of_all and type(suite).derive is not Suite.derive:
            continue
        unknown = [*_unknown_factors(suite, spec, factors)]
        if not unknown:
            unused = quantities if is_scored else quantities - _quantities_of(specs)
            unknown = [*_unknown_quantities(suite, spec, quantities, unused, is_certain=is_scored)]
        yield from unknown or _of_measure(suite, spec, table, of_all)


def _unknown_factors(suite: Suite, spec: MeasureSpec, factors: Collection[str]) -> Iterator[ConfigError]:
    figure = _named(spec)
    fields = {"where": [*spec.where], "clusters": spec.clusters, "stratum": [spec.stratum]}
    fields |= {"covariate": [spec.covariate], "membership": [spec.membership]}
    for field, names in fields.items():
        for name in names:
            if name and name not in factors:
                yield placed(
                    suite, "measures", name, f"{field} of {figure}: no row has this factor", _close(name, factors)
                )


def _unknown_quantities(
    suite: Suite, spec: MeasureSpec, quantities: Collection[str], unused: Collection[str], *, is_certain: bool
) -> Iterator[ConfigError]:
    """Quantities that no row has. What a model writes may bring them: unless ``is_certain``, those that are nearly the
    name of one that rows have and that no figure is of (``unused``)."""
    for quantity in (spec.quantity, spec.probability_mass):
        if quantity is not None and quantities and quantity not in quantities and not suite.may_lack(quantity):
            if not is_certain and not (
                is_own(suite, "measures") and difflib.get_close_matches(quantity, unused, 1, 0.8)
            ):
                continue
            problem = f"{_named(spec)}: no row has this quantity"
            yield placed(suite, "measures", quantity, problem, _close(quantity, quantities))


def _of_measure(suite: Suite, spec: MeasureSpec, table: Table, of_all: bool) -> Iterator[ConfigError]:
    matching = table.matching(spec.where)
    if of_all and not matching.any():
        yield _matches_no_row(suite, spec, table)
        return
    readable = matching & table.answered
    if not readable.any():  # made-up answers that cannot be read are reported separately
        return
    if (readable & table.has(spec.quantity)).any():
        yield from _of_values(suite, spec, table, of_all)


def _matches_no_row(suite: Suite, spec: MeasureSpec, table: Table) -> ConfigError:
    levels = [dict(spec.where)] if len(spec.where) > 1 else [*spec.where.values()]
    known = {name: table.levels.names(name)[:8] for name in spec.where}
    problem = f"where of {_named(spec)} matches no row"
    return placed(suite, "measures", levels[0] if levels else "", problem, f"Levels: {known}")


def _of_values(suite: Suite, spec: MeasureSpec, table: Table, of_all: bool) -> Iterator[ConfigError]:
    figure = _named(spec)
    if spec.covariate is not None and not all(map(_is_number, table.levels.names(spec.covariate))):
        problem = f"{figure}: not all levels of this covariate are numbers"
        yield placed(suite, "measures", spec.covariate, problem, "Use numbers as its levels")
        return
    used = usable(table, spec)
    for factor in spec.clusters:
        lacking = table.codes(factor)[used] < 0
        if lacking.any() and not lacking.all():
            problem = f"{figure}: {int(lacking.sum())} of {lacking.size} rows lack this sampled factor"
            yield placed(suite, "items", factor, problem, "Give it to every item of the figure")
            return
    quantity = table.quantity(spec.quantity)
    low, high = float(np.nanmin(quantity.low[used])), float(np.nanmax(quantity.high[used]))
    least, most = spec.limits
    if spec.neutral is not None and spec.estimator == "mean" and not least <= spec.neutral <= most:
        problem = f"neutral value of {figure}, of kind {spec.kind!r}: outside {least:g} to {most:g}"
        yield placed(suite, "measures", spec.neutral, problem, "Give it in the unit of the rows")
    if low < least - _ROUNDING or high > most + _ROUNDING:
        problem = (
            f"{figure} is of kind {spec.kind!r}, {least:g} to {most:g}, but its rows range from {low:g} to {high:g}"
        )
        yield placed(suite, "measures", spec.quantity, problem, "Give another kind, or its range")
    yield from _of_weights(suite, spec, table, of_all=of_all)


def of_derived(
    suite: Suite, rows: Sequence[Row], specs: Sequence[MeasureSpec], *, is_scored: bool
) -> Iterator[ConfigError]:
    """Names and levels that no row has, and levels with rows but no weight, of a suite that derives rows.

    The rows are those of all items. What a model writes decides which rows are derived: unless ``is_scored``, a name
    is taken for a mistake only where rows have one that is nearly the same.
    """
    table = Table.of(rows)
    quantities = {name for row in rows for name in row.values}
    factors = {name for row in rows for name in row.factors} | {name for row in rows for name in row.memberships}
    unused = quantities if is_scored else quantities - _quantities_of(specs)
    for spec in specs:
        unknown = [
            mistake
            for mistake in _unknown_factors(suite, spec, factors)
            if is_scored or difflib.get_close_matches(str(mistake.value), factors, 1, 0.8)
        ]
        unknown = unknown or [*_unknown_quantities(suite, spec, quantities, unused, is_certain=is_scored)]
        yield from unknown
        if unknown:
            continue
        if is_scored and not table.matching(spec.where).any():
            yield _matches_no_row(suite, spec, table)
        elif spec.weights is not None and usable(table, spec).any():
            yield from _of_weights(suite, spec, table, of_all=True)


def _quantities_of(specs: Iterable[MeasureSpec]) -> set[str]:
    return {name for spec in specs for name in (spec.quantity, spec.probability_mass) if name is not None}


def _of_weights(suite: Suite, spec: MeasureSpec, table: Table, *, of_all: bool) -> Iterator[ConfigError]:
    weighted = {level_key(level) for level in spec.weights or ()}
    undefined = undefined_strata(table, spec, usable(table, spec))
    if not of_all:  # other items may have the levels that these lack
        undefined = [level for level in undefined if level_key(level) not in weighted]
    if undefined:
        side = "a weight but no rows" if level_key(undefined[0]) in weighted else "rows but no weight"
        problem = f"{_named(spec)}: this level of {spec.stratum!r} has {side}"
        yield placed(suite, "measures", undefined[0], problem, "Give weights to exactly the levels that rows have")


def _is_number(level: object) -> bool:
    return level is None or (isinstance(level, int | float) and not isinstance(level, bool))


def without_value(spec: MeasureSpec, table: Table) -> bool:
    """Whether some of a figure's rows could be read, but none has its quantity; other answers might give one."""
    readable = table.matching(spec.where) & table.answered
    return bool(readable.any()) and not bool((readable & table.has(spec.quantity)).any())


def of_needs(suite: Suite, items: Collection[Item]) -> Iterator[ConfigError]:
    """Scorers that the suite lacks, and questions that ask for an ability which its ``needs`` leave out."""
    for name in sorted({item.scorer for item in items if item.scorer is not None} - set(suite.scorers)):
        yield placed(suite, "items", name, "asked of a scorer that the suite lacks", _close(name, suite.scorers))
    asked: set[str] = set()
    for item in items:
        asked |= _abilities(item.request) if item.scorer is None else set()
    for name in sorted(asked - suite.needs) if "recorded" not in suite.needs else ():
        problem = "its items ask for this ability of a model, and its needs leave it out"
        yield placed(suite, None, name, problem, "Add it to needs")


def _abilities(request: Request) -> set[str]:
    match request:
        case ClassifyRequest():
            return {"classify"}
        case ScoreRequest():
            own = {"score_alone"} if request.first_given else {"score"}
        case GenerateRequest():
            own = {"generate"}
    return own if isinstance(request.prompt, str) else own | {"chat"}


def _named(spec: MeasureSpec) -> str:
    return spec.measure + (f" {dict(spec.where)}" if spec.where else "")


def _close(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), [str(one) for one in names], n=1)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(sorted(map(str, names))) or 'none'}"
