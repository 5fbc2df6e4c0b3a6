"""Mistakes in a suite that made-up answers reveal, each with the file and line of the method responsible."""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import json
import os
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from types import CodeType

import numpy as np

from audit.analysis.design import undefined_strata, usable
from audit.analysis.responses import ParsedResponses
from audit.analysis.table import RowTable
from audit.results import level_key, where_key
from backends.errors import ConfigError
from suites.base import Factor, Item, MeasureSpec, Row, Suite

#: Tolerance for rounding at the ends of a quantity's range.
_ROUNDING = 1e-9


def raised(suite: Suite, error: Exception) -> ConfigError:
    """An exception of the suite's own code, with its line in the suite's file."""
    if isinstance(error, ConfigError):
        return error
    own = _file_of(suite)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if os.path.realpath(f.filename) == own), None)
    if frame is None:
        return _at(suite, "measures", suite.name, f"{type(error).__name__}: {error}", "Fix its rows or figures")
    problem = f"{frame.name} raised {type(error).__name__}: {error}"
    return ConfigError(f"{_shown(frame.filename)}:{frame.lineno}", frame.line, problem, "Fix that line")


def of_items(suite: Suite, items: Collection[Item]) -> Iterator[ConfigError]:
    """Ids that are used twice, and factors that the suite names but no item has."""
    ids = Counter(item.id for item in items)
    for item_id, n in ids.items():
        if n > 1:
            yield _at(
                suite, "items", item_id, f"{n} items have this id: one answer would count for all", "Make it unique"
            )
    factors = {factor for item in items for factor in item.factors}
    named = {"strata": suite.strata, "sampled_together": suite.sampled_together}
    for option, names in {**named, "failures_factor": (suite.failures_factor,)}.items():
        for name in names:
            if name is not None and name not in factors:
                yield _at(suite, None, name, f"{option}: no item has this factor", _close(name, factors))


def of_levels(suite: Suite, items: Collection[Item], specs: Sequence[MeasureSpec]) -> Iterator[ConfigError]:
    """Two levels of a sampled factor that ask the same: one answer would count as two independent ones."""
    for factor in dict.fromkeys(factor for spec in specs for factor in spec.clusters):
        asked: dict[Factor, set[object]] = {}
        for item in items:
            if not item.is_control and item.factors.get(factor) is not None:
                asked.setdefault(item.factors[factor], set()).add((item.request, item.scorer))
        first: dict[frozenset[object], Factor] = {}
        for level, requests in asked.items():
            other = first.setdefault(frozenset(requests), level)
            if other != level:
                problem = f"this level of {factor!r} asks the same as {other!r}: it would count as a second one"
                yield _at(suite, "items", level, problem, "Is a part of the prompt missing? Or give both one level")
                break


def of_repetition(suite: Suite, items: Collection[Item], again: Iterable[Item]) -> Iterator[ConfigError]:
    """Items that differ when they are made again: each run would ask, and report, something else."""
    for before, now in zip_longest(items, again):
        if before != now:
            item_id = (before or now).id
            hint = "Draw from random.Random(seed), and sort what comes from a set"
            yield _at(suite, "items", item_id, "another question each time that items are made", hint)
            return


def of_rows(suite: Suite, parsed: ParsedResponses) -> Iterator[ConfigError]:
    """Rows with an id other than their item's, and several rows with the same id."""
    for item_id, found in parsed.by_item.items():
        if found.row.item_id != item_id:
            problem = f"read gave the answer to {item_id!r} a row with this id"
            yield _at(suite, "read", found.row.item_id, problem, "Use the item's id")
            return
    for row_id, n in Counter(row.item_id for row in parsed.rows).items():
        if n > 1:
            yield _at(suite, "derive", row_id, f"{n} rows have this id", "Give each row its own")
            return


def of_measures(
    suite: Suite, rows: Sequence[Row], specs: Sequence[MeasureSpec], *, of_all: bool, is_scored: bool
) -> Iterator[ConfigError]:
    """Figures that no row can give a value, and values outside the range of a figure's kind.

    With ``of_all`` (the rows are those of all items) everything that looks wrong is reported. Otherwise only certain
    mistakes are: names that no row has, and only if the suite derives no rows, since derived rows may need other
    answers than these. Quantities that depend on what a model writes are checked only with ``is_scored`` (all
    requests ask for probabilities).
    """
    if not specs:
        yield _at(suite, "measures", suite.name, "it reports no figure", "Yield at least one MeasureSpec")
    seen: set[object] = set()
    table = RowTable(rows)
    quantities = {name for row in rows for name in row.values}
    factors = {name for row in rows for name in row.factors} | {name for row in rows for name in row.memberships}
    for spec in specs:
        name = (spec.measure, where_key(spec.where))
        if name in seen:
            yield _at(suite, "measures", _named(spec), "the same figure twice", "Give it another name or where")
        seen.add(name)
        if not of_all and type(suite).derive is not Suite.derive:
            continue
        unknown = [*_unknown_factors(suite, spec, factors)]
        if not unknown and is_scored:
            unknown = [*_unknown_quantities(suite, spec, quantities)]
        yield from unknown or (_of_measure(suite, spec, table) if of_all else ())


def _unknown_factors(suite: Suite, spec: MeasureSpec, factors: Collection[str]) -> Iterator[ConfigError]:
    figure = _named(spec)
    fields = {"where": [*spec.where], "clusters": spec.clusters, "stratum": [spec.stratum]}
    fields |= {"covariate": [spec.covariate], "membership": [spec.membership]}
    for field, names in fields.items():
        for name in names:
            if name and name not in factors:
                yield _at(
                    suite, "measures", name, f"{field} of {figure}: no row has this factor", _close(name, factors)
                )


def _unknown_quantities(suite: Suite, spec: MeasureSpec, quantities: Collection[str]) -> Iterator[ConfigError]:
    for quantity in (spec.quantity, spec.probability_mass):
        if quantity is not None and quantities and quantity not in quantities and not suite.may_lack(quantity):
            problem = f"{_named(spec)}: no row has this quantity"
            yield _at(suite, "measures", quantity, problem, _close(quantity, quantities))


def _of_measure(suite: Suite, spec: MeasureSpec, table: RowTable) -> Iterator[ConfigError]:
    figure = _named(spec)
    matching = table.matching(spec.where)
    if not matching.any():
        levels = [dict(spec.where)] if len(spec.where) > 1 else [*spec.where.values()]
        known = {name: table.levels.names(name)[:8] for name in spec.where}
        yield _at(suite, "measures", levels[0], f"where of {figure} matches no row", f"Levels: {known}")
        return
    readable = matching & table.answered
    if not readable.any():  # made-up answers that cannot be read are reported separately
        return
    if (readable & table.has(spec.quantity)).any():
        yield from _of_values(suite, spec, table)


def _of_values(suite: Suite, spec: MeasureSpec, table: RowTable) -> Iterator[ConfigError]:
    figure = _named(spec)
    if spec.covariate is not None and not all(map(_is_number, table.levels.names(spec.covariate))):
        problem = f"{figure}: not all levels of this covariate are numbers"
        yield _at(suite, "measures", spec.covariate, problem, "Use numbers as its levels")
        return
    used = usable(table, spec)
    for factor in spec.clusters:
        lacking = table.codes(factor)[used] < 0
        if lacking.any() and not lacking.all():
            problem = f"{figure}: {int(lacking.sum())} of {lacking.size} rows lack this sampled factor"
            yield _at(suite, "items", factor, problem, "Give it to every item of the figure")
            return
    quantity = table.quantity(spec.quantity)
    low, high = float(np.nanmin(quantity.low[used])), float(np.nanmax(quantity.high[used]))
    least, most = spec.limits
    if low < least - _ROUNDING or high > most + _ROUNDING:
        problem = (
            f"{figure} is of kind {spec.kind!r}, {least:g} to {most:g}, but its rows range from {low:g} to {high:g}"
        )
        yield _at(suite, "measures", spec.quantity, problem, "Give another kind, or its range")
    if undefined := undefined_strata(table, spec, used):
        weighted = {level_key(level) for level in spec.weights or ()}
        side = "a weight but no rows" if level_key(undefined[0]) in weighted else "rows but no weight"
        problem = f"{figure}: this level of {spec.stratum!r} has {side}"
        yield _at(suite, "measures", undefined[0], problem, "Give weights to exactly the levels that rows have")


def _is_number(level: object) -> bool:
    return level is None or (isinstance(level, int | float) and not isinstance(level, bool))


def without_value(spec: MeasureSpec, table: RowTable) -> bool:
    """Whether some of a figure's rows could be read, but none has its quantity; other answers might give one."""
    readable = table.matching(spec.where) & table.answered
    return bool(readable.any()) and not bool((readable & table.has(spec.quantity)).any())


def of_signature(suite: Suite) -> Iterator[ConfigError]:
    """A signature that cannot be stored."""
    try:
        json.dumps(suite.signature())
    except (TypeError, ValueError) as error:
        yield _at(suite, "signature", suite.name, f"it cannot be written as JSON: {error}", "Use texts, numbers, lists")


def _named(spec: MeasureSpec) -> str:
    return spec.measure + (f" {dict(spec.where)}" if spec.where else "")


def _close(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), [str(one) for one in names], n=1)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(sorted(map(str, names))) or 'none'}"


def _at(suite: Suite, method: str | None, value: object, problem: str, hint: str) -> ConfigError:
    """A mistake, placed at the line where a method of the suite begins, or its class."""
    code = _code(suite, method or "items")
    if code is None:  # the method is not a Python function
        return ConfigError(f"suites.{suite.name}", value, problem, hint)
    line = code.co_firstlineno if method else _line_of_class(suite, code)
    return ConfigError(f"{_shown(code.co_filename)}:{line}: {suite.name}", value, problem, hint)


def _code(suite: Suite, method: str) -> CodeType | None:
    found = inspect.unwrap(getattr(type(suite), method))
    return getattr(found, "__code__", None)


def _line_of_class(suite: Suite, code: CodeType) -> int:
    """The line where the suite's class begins; if it is not in that method's file, the method's line."""
    with contextlib.suppress(OSError, SyntaxError):
        for node in ast.walk(ast.parse(Path(code.co_filename).read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name == type(suite).__name__:
                return node.lineno
    return code.co_firstlineno


def _file_of(suite: Suite) -> str:
    code = _code(suite, "items")
    return "" if code is None else os.path.realpath(code.co_filename)


def _shown(path: str) -> str:
    """The path relative to the working folder, if it is inside that."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path
