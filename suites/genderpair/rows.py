"""Rows derived from several answers: picks with their fallback, contrasts of the two orders, spreads."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from suites.base import Factor, IdentifiedInterval, Row
from suites.common.gender_figures import contrast
from suites.common.groups.weights import signed
from suites.common.raters import Trust, tested
from suites.genderpair.design import Design, contrast_kind, deviation_kind, figure_of

_RowsByKind = Mapping[str, Sequence[Row]]


def derived_rows(design: Design, rows: Sequence[Row]) -> list[Row]:
    """The rows that are reported. Preferences appear only as sources of other rows."""
    rows, derived, found = tested(rows, design.raters)
    rows = [*rows, *_unscored(design, rows)]
    by_id = {row.item_id: row for row in rows}
    for row in rows:
        match str(row.factors["kind"]):
            case "selection":
                bare = by_id.get(f"{row.item_id}#bare")
                preference = by_id.get(f"{row.item_id}#preference") if design.variant == "paper" else bare
                derived += _selection_rows(row, preference, bare)
            case kind if kind in design.text_scorers or row.missing is not None or kind.startswith("labelled "):
                derived.append(row)
            case _:
                pass
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in derived:
        by_kind[str(row.factors["kind"])].append(row)
    contrasts = [*_contrasts(by_kind["selection"]), *_between_groups(design, by_kind, found)]
    return [*derived, *contrasts, *_group_deviations(design, by_kind), *_repeat_deviations(design, by_kind)]


def _unscored(design: Design, rows: Sequence[Row]) -> Iterator[Row]:
    """A row without an answer for each score of a text that was not written, or is empty: its score could be any."""
    scored = {row.item_id for row in rows}
    for row in rows:
        if row.factors["kind"] != "selection":
            continue
        empty = row.values.get("empty")
        if row.missing is None and (empty is None or empty.value != 1):
            continue
        for name in design.text_scorers:
            if f"{row.item_id}#{name}" not in scored:
                reason = row.missing or "empty"
                yield Row(f"{row.item_id}#{name}", {**row.factors, "kind": name}, {}, reason, row.items)


def _selection_rows(row: Row, preference: Row | None, bare: Row | None) -> list[Row]:
    """The pick of one text, and how it was made: by the text, or else by ``preference``.

    ``bare`` is the tie-break of the authors' rule.
    """
    answer_factors = {**row.factors, "kind": "answer"}
    if row.missing is not None:
        return [row, Row(f"{row.item_id}#answer", answer_factors, {}, row.missing, row.items)]
    values = dict(row.values)
    picked = values.pop("biased", None)
    preferred = preference.values.get("prefers_biased") if preference is not None else None
    if bare is not None and "prefers_biased" in bare.values:
        values.setdefault("biased_released", bare.values["prefers_biased"])
    if picked is not None:
        values["biased_by_text"] = picked
    elif preferred is not None:
        values["biased_by_likelihood"] = preferred
    asked = dict.fromkeys(item for other in (preference, bare) if other is not None for item in other.items)
    sources = (*row.items, *asked)
    answer = Row(f"{row.item_id}#answer", answer_factors, values, sources=sources)
    if picked is None and preferred is None and values["refusal"].value == 1:
        return [Row(row.item_id, row.factors, {}, "refusal"), answer]
    sources = row.items if preference is None else (*row.items, *preference.items)
    picked = picked or preferred
    if picked is None:
        reason = (preference.missing if preference is not None else None) or "undecided"
        return [Row(row.item_id, row.factors, {}, reason), answer]
    return [Row(row.item_id, row.factors, {"biased": picked}, sources=sources), answer]


def _contrasts(selections: Sequence[Row]) -> Iterator[Row]:
    """The two orders of one prompt as one row."""
    by_key: dict[str, dict[bool, Row]] = defaultdict(dict)
    for row in selections:
        f = row.factors
        key = f"{f['group']}/{f['aspect']}/{f['target']}/{f['pair']}/{f['form']}/r{f['repeat']}"
        by_key[key][int(str(f["configuration"])) % 2 == 1] = row
    for key, orders in by_key.items():
        if len(orders) < 2:
            continue
        first, second = orders[True], orders[False]
        factors = {k: v for k, v in first.factors.items() if k != "configuration"} | {"kind": "contrast"}
        row = contrast(f"{key}#contrast", first, second, {"biased": "position_effect"}, factors)
        values = dict(row.values)
        if row.missing is None:
            balanced = IdentifiedInterval.mean([first.values["biased"], second.values["biased"]])
            values = {"biased_balanced": balanced, **values}
        yield replace(row, values=values, sources=(first.item_id, second.item_id))


def _between_groups(design: Design, by_kind: _RowsByKind, found: Mapping[str, Mapping[str, Trust]]) -> Iterator[Row]:
    """The contributions to each contrast of groups; those of a language model's ratings widen by its swap gap."""
    for name, weights in design.contrasts.items():
        for kind in dict.fromkeys(design.quantities.values()):
            within = {quantity: of.swap_gap for quantity, of in found.get(kind, {}).items()}
            for row in by_kind[kind]:
                group = str(row.factors["group"])
                if weights.get(group):
                    factors = {**row.factors, "kind": contrast_kind(name), "of": kind}
                    values = signed(row.values, group, weights, within)
                    yield Row(f"{row.item_id}#between {name}", factors, values, row.missing, row.items)


def _group_deviations(design: Design, by_kind: _RowsByKind) -> Iterator[Row]:
    """The standard deviation of the group means, per repeat."""
    for quantity, kind in design.quantities.items() if len(design.groups) > 1 else ():
        means = _means(by_kind[kind], quantity, ("repeat", "group"))
        for repeat in range(design.repeats):
            known = [mean for group in design.groups if (mean := means.get((repeat, group))) is not None]
            factors: dict[str, Factor] = {"kind": deviation_kind(figure_of(quantity)), "repeat": repeat}
            row_id = f"spread/{quantity}/r{repeat}"
            if len(known) == len(design.groups):
                value = IdentifiedInterval.exact(statistics.pstdev(known))
                yield Row(row_id, factors, {f"{quantity}_sd": value})
            else:
                yield Row(row_id, factors, {}, "a group without answers")


def _repeat_deviations(design: Design, by_kind: _RowsByKind) -> Iterator[Row]:
    """The standard deviation of the repeats' means, per group."""
    for quantity, kind in design.quantities.items() if design.repeats > 1 else ():
        means = _means(by_kind[kind], quantity, ("repeat", "group"))
        for group in design.groups:
            known = [m for repeat in range(design.repeats) if (m := means.get((repeat, group))) is not None]
            if len(known) >= 2:
                value = IdentifiedInterval.exact(statistics.stdev(known))
                factors = {"kind": "repeats", "group": group}
                yield Row(f"repeats/{quantity}/{group}", factors, {f"{quantity}_repeat_sd": value})


def _means(rows: Sequence[Row], quantity: str, by: tuple[str, ...]) -> dict[tuple[Factor, ...], float]:
    """The mean of a quantity by some factors, without levels in which a row is only known by bounds."""
    by_level: dict[tuple[Factor, ...], list[float | None]] = defaultdict(list)
    for row in rows:
        if quantity in row.values:
            by_level[tuple(row.factors[factor] for factor in by)].append(row.values[quantity].value)
    return {
        level: statistics.fmean(value for value in values if value is not None)
        for level, values in by_level.items()
        if None not in values
    }
