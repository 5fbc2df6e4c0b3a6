"""The name of a figure, the base class of all stored results, and text that files can hold."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from pydantic import BaseModel, ConfigDict

from audit.results.signatures import signature_json
from backends.base import Scalar

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
    """The name of a figure and its condition; ``model`` is None for the figure of all models."""

    suite: str
    measure: str
    where: Mapping[str, Scalar]
    model: str | None = None

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
        where = ", ".join(f"{factor} {'none' if level is None else level}" for factor, level in self.where.items())
        return f"{self.measure} ({where})" if where else self.measure

    def __str__(self) -> str:
        of_model = "" if self.model is None else f" of {self.model}"
        return f"{self.title}{of_model} on {self.suite}"


class _HasFigure(Protocol):
    suite: str
    measure: str
    where: dict[str, Scalar]


class OfFigure:
    """A result about one figure."""

    @property
    def figure(self: _HasFigure) -> FigureName:
        """The figure's name."""
        return FigureName(self.suite, self.measure, self.where, getattr(self, "model", None))


class _HasMissing(Protocol):
    n_items: int
    n_missing: int


class OfItems(OfFigure):
    """A result about one figure, over items some of which may lack an answer."""

    @property
    def missing_share(self: _HasMissing) -> float:
        """Share of the items with a missing answer."""
        return self.n_missing / (self.n_items + self.n_missing) if self.n_missing else 0.0


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
