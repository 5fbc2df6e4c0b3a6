"""Upgrades results and rows of older versions to the current form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from audit.results.figures import FigureName
from audit.results.signatures import encode_parts, read_signature, write_signature
from suites.base import MeasureSpec, Row
from suites.renamed_measures import RENAMED_ENDINGS, RENAMED_MEASURES

#: Before suites declared the kind of a quantity, it followed from the unit.
_BY_UNIT: Mapping[str, Mapping[str, Any]] = {
    "probability": {"kind": "probability"},
    "share": {"kind": "share"},
    "difference of probabilities": {"kind": "difference"},
    "difference of shares": {"kind": "difference", "is_count": True},
    "difference of bias scores": {"kind": "difference", "range": (-2.0, 2.0), "is_count": True},
    "difference of gaps": {"kind": "difference", "range": (-2.0, 2.0)},
    "difference of effects": {"kind": "difference", "range": (-4.0, 4.0)},
}


def upgraded(result: dict[str, Any]) -> dict[str, Any]:
    """Upgrade the JSON form of a result that an older version stored.

    Older measures have no ``spec``: it is read from their signature. Renamed measures get their new names and ids, so
    that an older baseline can be compared with a current run.
    """
    measures = result.get("measures") or ()
    if not any(isinstance(measure, dict) and "spec" not in measure for measure in measures):
        return result
    try:
        names = {info["name"]: RENAMED_MEASURES.get(info["signature"].get("suite"), {}) for info in result["suites"]}
        newer = [_upgraded_measure(measure, names.get(measure["suite"], {})) for measure in measures]
        ids = {old["id"]: new["id"] for old, new in zip(measures, newer, strict=True)}
        return {
            **result,
            "measures": newer,
            "suites": [_renamed(info, names[info["name"]]) for info in result["suites"]],
            "comparisons": [_renamed(c, names.get(c["suite"], {})) for c in result["comparisons"]],
            "rankings": [_renamed(r, names.get(r["suite"], {})) for r in result.get("rankings", ())],
            "examples": [
                {**example, "figures": [ids.get(figure, figure) for figure in example["figures"]]}
                for example in result.get("examples", ())
            ],
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return result  # not a result: validation will say what is wrong


def quantity_by_unit(unit: str) -> Mapping[str, Any]:
    """Kind, range and ``is_count`` of a quantity in an older result."""
    return _BY_UNIT.get(unit, {"kind": "real"})


def _upgraded_measure(measure: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    parts = read_signature(measure["signature"])
    new = _renamed(measure, names)
    spec = MeasureSpec(
        measure=new["measure"],
        quantity=names.get(parts["quantity"], parts["quantity"]),
        where=new["where"],
        estimator=parts["estimator"],
        clusters=tuple(parts["clusters"]),
        covariate=parts["covariate"],
        probability_mass=parts["coverage"],
        is_subgroup=new.get("detail", False),
        **quantity_by_unit(new.get("unit", "probability")),
        **{name: new[name] for name in ("unit", "neutral", "family", "contrast") if name in new},
    )
    if new["measure"] != measure["measure"]:
        new["id"] = FigureName(new["suite"], new["measure"], new["where"], new["model"]).id
        new["signature"] = write_signature(encode_parts(parts), spec)
    return {**new, "spec": spec}


def _renamed(value: Any, names: Mapping[str, str], under: str = "") -> Any:
    """A JSON value with all measures renamed."""
    match value:
        case dict():
            return {key: _renamed(inner, names, key) for key, inner in value.items()}
        case list():
            return [_renamed(inner, names, under) for inner in value]
        case str() if under in ("measure", "measures"):
            return names.get(value, value)
        case str() if under == "family":  # the measure, then whatever else distinguishes the family
            measure, comma, rest = value.partition(",")
            return names.get(measure, measure) + comma + rest
    return value


def renamed_row(row: Row, names: Mapping[str, str]) -> Row:
    """An older store's row with the current names of its quantities, and its current id."""
    if not names:
        return row
    values = {names.get(name, name): value for name, value in row.values.items()}
    return dataclasses.replace(row, item_id=_current_id(row.item_id), values=values)


def _current_id(item_id: str) -> str:
    for old, new in RENAMED_ENDINGS.items():
        if item_id.endswith(old):
            return item_id.removesuffix(old) + new
    return item_id
