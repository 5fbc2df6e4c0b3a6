"""A figure of one model: its name, signature and numbers; the base class of all results, and text that files can hold.

A signature is everything needed to reproduce a measure, except the model, as one line: ``key:value|key:value…``, with
values as canonical JSON. ``%``, ``|`` and ``:`` in a key are percent-encoded, so that `read_signature` can recover the
parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, field_serializer, field_validator

from backends.base import Scalar
from suites.base import Factor, MeasureSpec

Where = frozenset[tuple[str, tuple[bool, Scalar]]]


def level_key(level: Scalar) -> tuple[bool, Scalar]:
    """A level as a key: True differs from 1, although Python considers them equal."""
    return isinstance(level, bool), level


def where_key(where: Mapping[str, Scalar]) -> Where:
    """A condition as a key, regardless of the order of its factors."""
    return frozenset([(factor, (isinstance(level, bool), level)) for factor, level in where.items()])


FigureKey = tuple[str | None, str, str, Where]


@dataclass(frozen=True, slots=True)
class FigureName:
    """The name of a figure and its condition; ``model`` is None for the figure of all models.

    ``labels``: what its suite calls levels, as in `SuiteInfo.level_labels`.
    """

    suite: str
    measure: str
    where: Mapping[str, Scalar]
    model: str | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> FigureKey:
        """The name as a key, regardless of the order of its factors."""
        return self.model, self.suite, self.measure, where_key(self.where)

    @property
    def id(self) -> str:
        """Short stable hash of the name: 12 hex digits of the SHA-256 of its canonical JSON."""
        canonical = signature_json([self.model, self.suite, self.measure, self.where])
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """``measure (factor level, …)``."""
        where = ", ".join(
            self.labels.get(factor, {}).get(str(level))
            or (f"without {factor}" if level is None else f"{factor} {level}")
            for factor, level in self.where.items()
        )
        return f"{self.measure} ({where})" if where else self.measure

    @property
    def fields(self) -> dict[str, Any]:
        """The name as fields of a result about the figure."""
        named = {"suite": self.suite, "measure": self.measure, "where": dict(self.where)}
        return named if self.model is None else {**named, "model": self.model}

    def __str__(self) -> str:
        of_model = "" if self.model is None else f" of {self.model}"
        return f"{self.title}{of_model} on {self.suite}"


#: Keys of report.json that differ from the names in the code: they are a public format, and stay.
REPORT_KEYS: Mapping[str, str] = {
    "data_quality": "ledger",
    "is_subgroup": "detail",
    "minimum_detectable_effect": "detectable",
    "n_unpaired": "unmatched",
    "p_adjusted": "p_holm",
    "probability_mass": "coverage",
}


class Reported(BaseModel):
    """An immutable value, with the keys of report.json in its JSON form."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: REPORT_KEYS.get(name, name),
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class OfFigure(Reported):
    """A result about one figure."""

    suite: str
    measure: str
    where: dict[str, Scalar]

    @property
    def figure(self) -> FigureName:
        """The figure's name."""
        return FigureName(self.suite, self.measure, self.where, getattr(self, "model", None))


class OfItems(OfFigure):
    """A result about one figure, over items some of which may lack an answer."""

    n_items: int = 0
    n_missing: int = 0

    @property
    def missing_share(self) -> float:
        """Share of the items with a missing answer."""
        return self.n_missing / (self.n_items + self.n_missing) if self.n_missing else 0.0


def writable(data: Any) -> Any:
    """JSON-like data with lone surrogates escaped (``\\udcff``): UTF-8 cannot encode them.

    Models write them, and names of files have them where they are no UTF-8.
    """
    with contextlib.suppress(orjson.JSONEncodeError):  # the usual case, at once
        orjson.dumps(data)
        return data
    match data:
        case str():
            return data if data.isascii() else data.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {writable(name): writable(value) for name, value in data.items()}
        case list():
            return [writable(value) for value in data]
    return data


# -- signatures ------------------------------------------------------------------------------------

_LONGEST_VALUE = 120  # characters of a value

#: Parts about the number of items and the confidence, not about what is measured.
EXTENT = frozenset({"limit", "seed", "sample", "confidence", "until"})


def encode_parts(parts: Mapping[str, Any]) -> dict[str, str]:
    """Encode the parts that many measures share. A long value, such as a list of templates, is replaced by its hash."""
    return {key: _short(value) for key, value in parts.items()}


def write_signature(encoded: Mapping[str, str], spec: MeasureSpec) -> str:
    """The signature of one measure: shared parts from `encode_parts`, then its own, which are never hashed."""
    own: dict[str, Any] = {
        "measure": spec.measure,
        "quantity": spec.quantity,
        "where": dict(spec.where),
        "estimator": spec.estimator,
        "clusters": list(spec.clusters),
        "covariate": spec.covariate,
        "coverage": spec.probability_mass,
    }
    if spec.membership is not None:
        own["membership"] = spec.membership
    if spec.weights is not None:
        weights: list[tuple[Factor, float]] = list(spec.weights.items())
        own |= {"stratum": spec.stratum, "weights": sorted(weights, key=signature_json)}
    fields = {**encoded, **{key: signature_json(value) for key, value in own.items()}}
    return "|".join([_part(key, value) for key, value in fields.items()])


def read_signature(signature: str) -> dict[str, Any]:
    """The parts of a signature."""
    pairs = (part.partition(":") for part in signature.split("|"))
    return {_unquoted(key): json.loads(_unquoted(value)) for key, _, value in pairs}


def signature_changes(before: str, now: str) -> dict[str, tuple[Any, Any]]:
    """The parts in which two signatures differ, by name: (before, now), None where one has no such part."""
    return differing(read_signature(before), read_signature(now))


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The values that differ between two mappings, by key: (old, new), None where one has no such key."""
    pairs = {key: (old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys())}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


#: JSON that is the same for equal values. Infinite numbers (a range) are allowed, unlike in a store's keys.
signature_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def _short(value: Any) -> str:
    written = signature_json(value)
    if len(written) <= _LONGEST_VALUE:
        return written
    return signature_json(f"sha256:{hashlib.sha256(written.encode()).hexdigest()[:16]}")


@functools.lru_cache(1024)  # figures have most parts in common
def _part(key: str, value: str) -> str:
    return f"{_quoted(key).replace(':', '%3A')}:{_quoted(value)}"


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("|", "%7C")


def _unquoted(text: str) -> str:
    return text.replace("%3A", ":").replace("%7C", "|").replace("%25", "%")


_DEFAULTS = tuple((field.name, field.default) for field in dataclasses.fields(MeasureSpec))


class Measure(OfFigure):
    """A signed, named figure of one model.

    Attributes
    ----------
    id : str
        `FigureName.id`, the FIGURE-ID of ``audit show``. The same figure has the same id in every run.
    value : float or None
        The estimate from the items with a readable answer (the complete cases). None if it is only bounded, or
        nothing could be read.
    low, high : float or None
        Clustered confidence interval, on which every decision rests. For a bounded figure, or one with missing
        answers: from the interval of the lower bound to that of the upper bound. None with fewer than two clusters,
        or if one of them contains nearly all items.
    bound_low, bound_high : float or None
        Identification bounds of the estimate itself, without sampling error; a missing answer may be any value of
        the quantity's range. Equal to ``value`` if exact and complete.
    complete_case_low, complete_case_high : float or None
        Interval over the complete cases alone, as if the missing answers were like them. None if none is missing:
        then it is ``low`` to ``high``.
    p, p_adjusted : float or None
        Two-sided p-value for ``value`` = ``neutral``, with the interval's standard error, valid whatever the missing
        answers would have been; and corrected over the model's figures of the suite as in `audit.analysis.decisions`
        (``p_holm`` in report.json, an older name). None for correlations, and without a neutral value.
    levels : mapping of str to int
        The number of levels of each sampled factor behind the figure, or of the families above it.
    n_clusters : int
        The smallest number of levels of any such factor in any stratum; of items if no factor is sampled.
    contrast : bool
        As in `MeasureSpec`. Not part of ``signature``, since it does not affect the measurement.
    undefined_strata : list
        Levels of the spec's stratum without rows, or without a weight, which leave the figure without a value.
    missing, censored : int
        Items without a readable answer, and items known only by bounds.
    probability_mass : float or None
        Mean raw probability mass behind a normalised figure (its lower bound if bounded).
    signature : str
        ``key:value|key:value…``: everything needed to reproduce the figure, except the model.
    spec : MeasureSpec
        The suite's specification. Its JSON omits default values.
    """

    id: str
    model: str
    value: float | None
    low: float | None
    high: float | None
    bound_low: float | None
    bound_high: float | None
    n_items: int
    n_clusters: int
    missing: int
    censored: int
    probability_mass: float | None
    signature: str
    p: float | None = None
    p_adjusted: float | None = None
    complete_case_low: float | None = None
    complete_case_high: float | None = None
    levels: dict[str, int] = {}
    estimator: str = "mean"
    unit: str = "probability"
    neutral: float | None = None
    family: str = ""
    is_subgroup: bool = False
    contrast: bool = False
    undefined_strata: list[Scalar] = []
    spec: MeasureSpec

    @field_serializer("spec")
    def _without_defaults(self, spec: MeasureSpec) -> dict[str, Any]:
        stored = {name: value for name, default in _DEFAULTS if (value := getattr(spec, name)) != default}
        if spec.weights is not None:  # as pairs, since keys of a JSON object are strings, and levels need not be
            stored["weights"] = list(spec.weights.items())
        return stored

    @field_validator("spec", mode="before")
    @classmethod
    def _from_stored(cls, spec: Any) -> Any:
        if not isinstance(spec, dict):
            return spec
        return spec if spec.get("weights") is None else {**spec, "weights": dict(spec["weights"])}


class VarianceComponents(OfFigure):
    """What the variance of a primary figure consists of; each part is 0 or more.

    Attributes
    ----------
    against : str or None
        If given, the components are those of the differences ``model`` - ``against`` by item; None: of the model's own
        values.
    in_figure : mapping of str to float
        The variance that the figure has because each factor's levels, and the combinations, are a sample.
    of_items : float
        The part of it that single combinations of levels have, in each of these; 0 if unknown.
    levels : mapping of str to int
        The number of levels of each factor.
    """

    model: str
    against: str | None = None
    in_figure: dict[str, float]
    of_items: float
    levels: dict[str, int]
    n_items: int


#: How a measured figure agrees with a printed one: equal to the last printed digit; different, but with the printed one
#: inside the measured interval; outside it; or not comparable.
Agreement = Literal["within rounding", "within the interval", "differs", "unknown"]


class Reproduction(OfFigure):
    """A figure measured on a paper's own model, and the printed one. ``difference`` is measured minus printed.

    ``design_difference`` says how the two designs differ; empty if they do not.
    """

    model: str
    published_model: str
    printed: float
    difference: float | None
    agreement: Agreement
    design_difference: str = ""
