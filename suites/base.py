"""What a suite is: which questions it asks, how it reads an answer, which figures it reports.

A suite computes one numeric row per item. Intervals, comparisons and decisions are made later from those
rows, without knowing the suite.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from backends.base import Backend, Capability, Request, Response
from backends.errors import ConfigError
from suites.presentation import Chart, Factor, Meaning, PublishedFigure, TableLayout

__all__ = ["Estimator", "Factor", "IdentifiedInterval", "Item", "MeasureSpec", "QuantityKind", "Row", "Suite"]


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a suite.

    Attributes
    ----------
    id : str
        Stable over models, runs and versions of the code; unique in its suite.
    request : Request
        What the model is asked.
    factors : mapping
        The design: template, occupation, group, condition… Used to filter, cluster and pair.
    scorer : str or None
        None for the audited model, else the name of one of the suite's `scorers`.
    is_control : bool
        Whether other items' rows rest on its answer: it is part of every sample, and comes first.
    """

    id: str
    request: Request
    factors: Mapping[str, Factor]
    scorer: str | None = None
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class IdentifiedInterval:
    """A number with the bounds within which it is identified.

    Exact numbers have ``low == value == high``. ``value`` None: only the bounds are known.
    These bounds are not sampling error.

    Arithmetic treats the operands as unrelated: each may be anywhere within its bounds. So a result's bounds are
    always valid, and tightest where the operands do not depend on each other: ``a - a`` is 0 for an exact ``a``,
    and has twice the width of a bounded one. A result has a value where all operands have one.
    """

    value: float | None
    low: float
    high: float

    def __post_init__(self) -> None:
        value = self.low if self.value is None else self.value
        if not -math.inf < self.low <= value <= self.high < math.inf:
            raise ValueError(
                f"IdentifiedInterval({self.value!r}, {self.low!r}, {self.high!r}): needs finite low <= value <= high"
            )

    @classmethod
    def exact(cls, value: float) -> IdentifiedInterval:
        """A number known exactly."""
        return cls(value, value, value)

    @property
    def is_exact(self) -> bool:
        """Whether the value is known, not only bounded."""
        return self.value is not None

    def __neg__(self) -> IdentifiedInterval:
        """The number with its sign changed: its bounds change places."""
        return IdentifiedInterval(None if self.value is None else -self.value, -self.high, -self.low)

    def __sub__(self, other: IdentifiedInterval) -> IdentifiedInterval:
        """Lowest where this is lowest and the other highest, and the other way round."""
        value = None if self.value is None or other.value is None else self.value - other.value
        return IdentifiedInterval(value, self.low - other.high, self.high - other.low)

    @classmethod
    def total(cls, numbers: Sequence[Self]) -> IdentifiedInterval:
        """The sum of the numbers, lowest where all are lowest; 0 of none. Rounded once (`math.fsum`)."""
        values = [number.value for number in numbers if number.value is not None]
        return cls(
            math.fsum(values) if len(values) == len(numbers) else None,
            math.fsum(number.low for number in numbers),
            math.fsum(number.high for number in numbers),
        )

    @classmethod
    def mean(cls, numbers: Sequence[Self]) -> IdentifiedInterval:
        """The mean of one or more numbers, lowest where all are lowest."""
        total = cls.total(numbers)
        return cls(
            None if total.value is None else total.value / len(numbers),
            total.low / len(numbers),
            total.high / len(numbers),
        )


_YES, _NO = IdentifiedInterval.exact(1.0), IdentifiedInterval.exact(0.0)  # made once: every text has several
#: A share of which nothing is known.
UNKNOWN_SHARE = IdentifiedInterval(None, 0.0, 1.0)


def flag(condition: bool) -> IdentifiedInterval:
    """1 or 0, known exactly."""
    return _YES if condition else _NO


@dataclass(frozen=True, slots=True)
class Row:
    """What one item of one model amounts to.

    ``values`` is empty and ``missing`` names the reason when there is no answer, or none
    that can be read (an error kind, ``refusal``, ``unparsable``…). ``sources`` are the items
    that a derived row was computed from, so that its figure leads back to their answers. ``memberships`` are, by
    factor, the levels that it belongs to where these are several: the occupations of a list.
    """

    item_id: str
    factors: Mapping[str, Factor]
    values: Mapping[str, IdentifiedInterval]
    missing: str | None = None
    sources: tuple[str, ...] = ()
    memberships: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def items(self) -> tuple[str, ...]:
        """The items behind this row: its sources, or the one it is named after."""
        return self.sources or (self.item_id,)


Estimator = Literal["mean", "correlation"]

#: What a row's quantity is. ``probability``: a number in [0, 1]; ``share``: each row counts as yes or no, so that the
#: mean is a share; ``difference``: a difference of either; ``real``: anything.
QuantityKind = Literal["probability", "share", "difference", "real"]
_RANGES: Mapping[QuantityKind, tuple[float, float]] = {
    "probability": (0.0, 1.0),
    "share": (0.0, 1.0),
    "difference": (-1.0, 1.0),
    "real": (-math.inf, math.inf),
}


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """A figure to be reported: which quantity, over which rows, estimated how.

    Attributes
    ----------
    measure : str
        Name in the report, e.g. ``p_female``.
    quantity : str
        Key of `Row.values`.
    where : mapping
        Rows whose factors equal these are meant. A factor not named here is averaged over.
    estimator : str
        ``mean`` of the quantity over rows; or ``correlation`` (Pearson) over clusters of
        ``clusters[0]`` between the cluster's mean quantity and its ``covariate`` factor.
    clusters : tuple of str
        Factors whose levels are drawn from a larger population, and within which rows are
        dependent (occupation, template…). Intervals are clustered by them.
    membership : str, optional
        One more sampled factor, of which a row belongs to several levels at once (`Row.memberships`): occupations, of
        lists that hold some each. The figure generalises over its levels too.
    kind : str
        What a row's quantity is. The methods behind intervals and tests follow from it.
    range : (float, float), optional
        What a row's quantity can be, where the kind does not say: differences of differences, for one. None: by
        kind, [0, 1], [-1, 1], or any number.
    is_count : bool
        The values come from counting yes and no, as shares do and differences of them.
    stratum, weights
        A factor whose levels are fixed, not drawn (the occupations' group), and the weight of each: the figure is
        Σ weight · mean of the stratum, however many rows each has, and what lies between strata is no part of
        its error. A level without weight, or without rows, leaves the figure undefined.
    primary : bool
        One of the few figures that the suite is about: tested first.
    population : str
        Over what the figure generalises: "new occupations and templates of these kinds".
    unit, neutral
        ``unit`` is a label. ``neutral`` is the value of a model without bias, None where there is none.
    contrast : bool
        A difference between two ways of asking the same model: ``neutral`` says "no effect", not where
        a model should be. It is tested against, and a gate takes no side by it.
    family : str
        Figures of one family are shown together. Per-level figures (one
        occupation) are a family of their own.
    is_subgroup : bool
        True for figures of a single level (one occupation), which tables fold away.
    probability_mass : str or None
        Quantity that holds the raw mass, reported with the figure.

    Raises
    ------
    ConfigError
        Naming the field that contradicts another, or itself.
    """

    measure: str
    quantity: str
    where: Mapping[str, Factor] = field(default_factory=dict)
    estimator: Estimator = "mean"
    clusters: tuple[str, ...] = ()
    covariate: str | None = None
    unit: str = "probability"
    neutral: float | None = None
    family: str = ""
    is_subgroup: bool = False
    probability_mass: str | None = None
    contrast: bool = False
    kind: QuantityKind = "real"
    range: tuple[float, float] | None = None
    is_count: bool = False
    stratum: str | None = None
    weights: Mapping[Factor, float] | None = None
    primary: bool = False
    population: str = ""
    membership: str | None = None

    def __post_init__(self) -> None:
        self._check_quantity()
        self._check_strata()

    @property
    def limits(self) -> tuple[float, float]:
        """What a row's quantity can be: ``range``, or what the kind allows."""
        return _RANGES[self.kind] if self.range is None else self.range

    @property
    def from_counts(self) -> bool:
        """Whether the values come from counting yes and no."""
        return self.is_count or self.kind == "share"

    def _check_quantity(self) -> None:
        if self.kind not in _RANGES:
            raise self._refused("kind", self.kind, "no such kind", f"Use one of: {', '.join(_RANGES)}")
        if self.range is None:
            return
        low, high = self.range
        if not low < high:
            raise self._refused("range", self.range, "does not go up", "Give (lowest, highest)")
        if self.kind in ("probability", "share") and not 0 <= low < high <= 1:
            raise self._refused(
                "range", self.range, f"a {self.kind} is from 0 to 1", "Leave it out, or use another kind"
            )

    def _check_strata(self) -> None:
        if self.membership is not None and (self.stratum is not None or self.estimator != "mean"):
            hint = "Leave out the membership, or ask for the mean of one stratum"
            raise self._refused("membership", self.membership, "is for means without strata", hint)
        if self.stratum is None and self.weights is None:
            return
        if self.stratum is None or not self.weights:
            hint = "Give stratum and the weights of its levels, or neither"
            raise self._refused("weights", self.weights, f"the stratum is {self.stratum!r}", hint)
        if self.stratum in self.where or self.stratum in self.clusters:
            hint = "Strata are fixed and averaged over: name the factor neither in where nor in clusters"
            raise self._refused("stratum", self.stratum, "is conditioned on, or sampled", hint)
        if self.estimator != "mean":
            raise self._refused("stratum", self.stratum, f"a {self.estimator} has no strata", "Leave it out")
        if min(self.weights.values()) <= 0 or not math.isclose(math.fsum(self.weights.values()), 1.0):
            hint = "Give each level a weight above 0"
            raise self._refused("weights", dict(self.weights), "do not add up to 1 as parts of a mean", hint)

    def _refused(self, field: str, value: object, problem: str, hint: str) -> ConfigError:
        return ConfigError(f"{self.measure}.{field}", value, problem, hint)


class Suite(ABC):
    """A benchmark: questions, how to read the answers, and the figures they give."""

    name: str
    #: What reports call it; empty: the name of its class.
    title: str = ""
    #: Raise it when items or readings change, so that old figures are not compared with new.
    version: ClassVar[int] = 1
    #: Factors over which a limited run is balanced: the same number of items of each combination.
    strata: tuple[str, ...] = ()
    #: Factor by whose levels missing answers are counted; rows without it are counted by the first stratum.
    failures_factor: str | None = None
    #: What its headline figures say in plain words, by measure.
    meanings: ClassVar[Mapping[str, Meaning]] = {}
    #: As in `backends.base.Backend`: options that may be a path, and the words that they take besides.
    path_options: ClassVar[Mapping[str, Collection[str]]] = {}
    #: Keys of the signature that say how the same questions are put: two suites of one kind that differ in nothing else
    #: are compared item by item.
    prompting: ClassVar[tuple[str, ...]] = ("prompt_format",)
    #: Factors whose equal values name items that a limited run keeps or drops together (the
    #: conditions of one paired design). Empty: each item is on its own. May depend on the options.
    sampled_together: tuple[str, ...] = ()

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """The questions, lazily and in an order that keeps shared prefixes together."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[Capability]:
        """What a backend must be able to do."""

    @abstractmethod
    def signature(self) -> Mapping[str, Any]:
        """All of the suite that may change a figure: options, data hashes. JSON-ready."""

    @abstractmethod
    def read(self, item: Item, response: Response) -> Row:
        """The numeric row of one answered item."""

    @abstractmethod
    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        """The figures this suite reports, given one model's rows (after `derive`)."""

    def follow_ups(self, item: Item, response: Response) -> Iterable[Item]:
        """Questions that depend on an answer. Asked in a further round; their ids must be new."""
        return ()

    def most_follow_ups(self, item: Item) -> Iterable[Item]:
        """The most questions that may follow from an answer to ``item``, for estimates; texts in them are made up."""
        return ()

    def planted(self, item: Item, bias: float, draw: int) -> Response | None:
        """What a model answers that is as biased as ``bias`` (0: not at all, 1: always), in this suite's sense.

        ``draw`` is the seed: answers differ by it as those of different models do. None: the suite does not say.
        """
        return None

    def may_lack(self, quantity: str) -> bool:
        """Whether no row may have this quantity though nothing is wrong: a share of an effect that is not there."""
        return False

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows computed from other rows of the same model, e.g. paired differences."""
        return rows

    def texts(self) -> Mapping[str, str]:
        """Named texts whose length in tokens the report shows for each model (treatments, placebos)."""
        return {}

    def cautions(self) -> Sequence[str]:
        """How the options limit the figures: sentences for the report's list of limits."""
        return ()

    def published(self) -> Sequence[PublishedFigure]:
        """The paper's printed figures."""
        return ()

    def tables(self) -> Sequence[TableLayout]:
        """Tables in the paper's layout."""
        return ()

    def charts(self) -> Sequence[Chart]:
        """The pictures that answer this suite's questions, most important first."""
        return ()

    @property
    def scorers(self) -> Mapping[str, Backend]:
        """Further models that this suite asks, e.g. text classifiers, by name."""
        return {}
