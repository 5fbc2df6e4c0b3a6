"""The interface of a suite: which questions it asks, how it reads an answer, which figures it reports.

A suite computes one numeric row per item. Intervals, comparisons and decisions are computed later from these
rows, without knowing the suite.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

from backends.base import (
    Backend,
    Capability,
    ClassifyRequest,
    GenerateRequest,
    GenerateResponse,
    Request,
    Response,
)
from backends.errors import ConfigError
from backends.options import check_fields
from suites.presentation import Chart, Shown
from suites.presentation import Factor as Factor

#: Reasons of a missing value that are no refusal: the model answered, and the answer decides nothing. Any other reason
#: but "refusal" itself, as an answer that cannot be parsed or failed to come, may hide one.
NO_REFUSAL = frozenset(
    {
        "a group without answers",
        "bounded",
        "inconsistent",
        "no scored token",
        "rater not trusted",
        "start not scored",
        "tie",
        "undecided",
    }
)
#: A reserved factor, by which a suite tells apart the rows of different measures. Reports leave it out: the measure's
#: name says the same.
KIND = "kind"
#: A reserved factor: the number of the run, where each question is asked afresh in several runs. A model's numbers may
#: move from run to run, all in the same direction.
RUN = "run"


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
        The design: template, occupation, group, condition… Used to filter, cluster and pair. `KIND` is reserved.
    scorer : str or None
        None for the audited model, else the name of one of the suite's `scorers`.
    is_control : bool
        Whether other items' rows depend on its answer: it is part of every sample, and is asked first.
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

    Arithmetic treats the operands as independent, so that a result's bounds are always valid, and tight if the
    operands do not depend on each other. A result has a value if all operands have one.

    ``draw_variance`` is the variance that the value has because it was counted from drawn answers: 0 if it was not,
    None if it is unknown. A mean averages it out; a correlation is smaller for it, and corrects for that.
    """

    value: float | None
    low: float
    high: float
    draw_variance: float | None = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        value = self.low if self.value is None else self.value
        try:
            is_valid = -math.inf < self.low <= value <= self.high < math.inf
        except TypeError:
            is_valid = False
        if not is_valid:
            given = f"({self.value!r}, {self.low!r}, {self.high!r})"
            raise ValueError(f"IdentifiedInterval{given}: needs finite low <= value <= high, all numbers")

    @classmethod
    def exact(cls, value: float) -> IdentifiedInterval:
        """A number known exactly."""
        return cls(value, value, value)

    def __sub__(self, other: IdentifiedInterval) -> IdentifiedInterval:
        """The difference: lowest when this is lowest and the other highest, and vice versa."""
        value = None if self.value is None or other.value is None else self.value - other.value
        variance = _summed([self.draw_variance, other.draw_variance])
        return IdentifiedInterval(value, self.low - other.high, self.high - other.low, variance)

    @classmethod
    def total(cls, numbers: Sequence[Self]) -> IdentifiedInterval:
        """The sum of the numbers, lowest when all are lowest; 0 if there are none. Rounded once (`math.fsum`)."""
        values = [number.value for number in numbers if number.value is not None]
        return cls(
            math.fsum(values) if len(values) == len(numbers) else None,
            math.fsum(number.low for number in numbers),
            math.fsum(number.high for number in numbers),
            _summed([number.draw_variance for number in numbers]),
        )

    @classmethod
    def mean(cls, numbers: Sequence[Self]) -> IdentifiedInterval:
        """The mean of one or more numbers, lowest when all are lowest."""
        total = cls.total(numbers)
        return cls(
            None if total.value is None else total.value / len(numbers),
            total.low / len(numbers),
            total.high / len(numbers),
            None if total.draw_variance is None else total.draw_variance / len(numbers) ** 2,
        )


def _summed(variances: Sequence[float | None]) -> float | None:
    """The variance of a sum of independent numbers; None if that of one is unknown."""
    known = [variance for variance in variances if variance is not None]
    return math.fsum(known) if len(known) == len(variances) else None


_YES, _NO = IdentifiedInterval.exact(1.0), IdentifiedInterval.exact(0.0)  # shared: every text has several
#: A share about which nothing is known.
UNKNOWN_SHARE = IdentifiedInterval(None, 0.0, 1.0)
_NO_LEVELS: Mapping[str, tuple[str, ...]] = {}  # one for all rows: as many as there are rows take 64 bytes each


def flag(condition: bool) -> IdentifiedInterval:
    """1 or 0, known exactly."""
    return _YES if condition else _NO


@dataclass(frozen=True, slots=True)
class Row:
    """The numbers from one item of one model.

    If there is no answer, or none that can be read, ``values`` is empty and ``missing`` names the reason (an error
    kind, ``refusal``, ``unparsable``…). ``sources`` are the items that a derived row was computed from, so that its
    figure leads back to their answers. ``memberships`` maps a factor to the levels that the row belongs to, if there
    are several: the occupations in a list.
    """

    item_id: str
    factors: Mapping[str, Factor]
    values: Mapping[str, IdentifiedInterval]
    missing: str | None = None
    sources: tuple[str, ...] = ()
    memberships: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_LEVELS)

    @property
    def items(self) -> tuple[str, ...]:
        """The items behind this row: its sources, or the one it is named after."""
        return self.sources or (self.item_id,)


#: The kind of a row's quantity. ``probability``: a number in [0, 1]; ``share``: each row is yes or no, so that the
#: mean is a share; ``difference``: a difference of either; ``real``: any number.
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
        Restricts the figure to rows with these factors. A factor not named here is averaged over.
    estimator : str
        ``mean`` of the quantity over rows; or ``correlation`` (Pearson) over clusters of
        ``clusters[0]`` between the cluster's mean quantity and its ``covariate`` factor.
    clusters : tuple of str
        Factors whose levels are drawn from a larger population, and within which rows are
        dependent (occupation, template…). Intervals are clustered by them.
    membership : str, optional
        One more sampled factor, with several levels per row (`Row.memberships`): the occupations in a list. The
        figure generalises over its levels too.
    kind : str
        The kind of the row's quantity, which determines the methods behind intervals and tests.
    range : (float, float), optional
        The possible values of a row's quantity, if they do not follow from the kind, as for differences of
        differences. None: by kind, [0, 1], [-1, 1], or any number.
    is_count : bool
        Whether the values come from counting yes and no, like shares and their differences.
    stratum, weights
        A factor whose levels are fixed, not sampled (the occupations' group), and the weight of each: the figure is
        Σ weight · mean of the stratum, however many rows each has, and variation between strata is not part of
        its error. A level without weight, or without rows, leaves the figure undefined.
    primary : bool
        Whether it is one of the suite's few main figures, which are tested first.
    population : str
        What the figure generalises to: "new occupations and templates of these kinds".
    unit, neutral
        ``unit`` is a label. ``neutral`` is the value of an unbiased model; None if there is none.
    contrast : bool
        A difference between two ways of asking the same model: ``neutral`` means "no effect", not what is
        desirable. The figure is tested against it, but a gate does not call either side worse.
    family : str
        Figures of one family are shown together. Per-level figures (one
        occupation) are a family of their own.
    is_subgroup : bool
        True for figures of a single level (one occupation), which tables fold away.
    probability_mass : str or None
        Quantity that holds the total probability, reported with the figure.
    baseline : str
        The measure that shows what the same words give without the question. The report warns where the figure is
        of its sign and size.

    Raises
    ------
    ConfigError
        If a field is invalid or contradicts another.
    """

    measure: str
    quantity: str
    where: Mapping[str, Factor] = field(default_factory=dict)
    estimator: Literal["mean", "correlation"] = "mean"
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
    baseline: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        (low, high), weights, fixed = self.limits, self.weights or {}, self.stratum is not None
        in_a_unit = 0 <= low < high <= 1 or self.kind not in ("probability", "share")
        sampled = self.stratum in self.clusters or self.stratum in self.where
        add_up = not weights or (min(weights.values()) > 0 and math.isclose(math.fsum(weights.values()), 1.0))
        for field_name, holds, problem, hint in (
            ("range", low < high, "not ascending", "Give (lowest, highest)"),
            ("range", in_a_unit, f"a {self.kind} is from 0 to 1", "Leave it out, or use another kind"),
            ("membership", not (self.membership and fixed), "is for means without strata", "Give one of the two"),
            ("weights", fixed == bool(weights), f"the stratum is {self.stratum!r}", "Give both, or neither"),
            ("stratum", not (fixed and sampled), "is conditioned on, or sampled", "Name it in one of the three"),
            ("estimator", self.estimator == "mean" or not (fixed or self.membership), "has no strata", "Give mean"),
            ("weights", add_up, "do not add up to 1 as parts of a mean", "Give each level a weight above 0"),
        ):
            if not holds:
                raise ConfigError(f"{self.measure}.{field_name}", getattr(self, field_name), problem, hint)

    @property
    def limits(self) -> tuple[float, float]:
        """The possible values of a row's quantity: ``range``, or those of its kind."""
        return _RANGES[self.kind] if self.range is None else self.range

    @property
    def value_range(self) -> tuple[float, float]:
        """The possible values of the figure itself."""
        return (-1.0, 1.0) if self.estimator == "correlation" else self.limits

    @property
    def has_range(self) -> bool:
        """Whether the quantity has a finite range, so that a missing answer has bounds."""
        return all(map(math.isfinite, self.limits))

    @property
    def from_counts(self) -> bool:
        """Whether the values come from counting yes and no."""
        return self.is_count or self.kind == "share"


class Family(NamedTuple):
    """A coarser factor above one that a figure generalises over: its name, and the family of each level.

    Levels of one family are not independent: wordings of templates, sectors of occupations. Intervals are clustered by
    the family then. A level that is not named is a family of its own.
    """

    name: str
    of: Mapping[Factor, Factor]


def needed_for(request: Request) -> set[Capability]:
    """What a backend must be able to do to answer a question."""
    if isinstance(request, ClassifyRequest):
        return {"classify"}
    chat: set[Capability] = set() if isinstance(request.prompt, str) else {"chat"}
    if isinstance(request, GenerateRequest):
        return {"generate", *chat}
    return {"score", *chat, *(("score_alone",) if request.first_given else ())}


def _needed_for(items: Iterable[Item]) -> set[Capability]:
    """What the audited model must be able to do: the same for all requests of one form."""
    asked = [item.request for item in items if item.scorer is None]
    forms = {(type(one), type(getattr(one, "prompt", "")), getattr(one, "first_given", False)): one for one in asked}
    return set[Capability]().union(*map(needed_for, forms.values()))


def primary_charts(specs: Iterable[MeasureSpec]) -> list[Chart]:
    """A chart of each primary figure, and one by each factor whose levels have the same figure, at most two at once."""
    figures = [spec for spec in specs if not spec.is_subgroup]
    leading = {spec.measure for spec in figures if spec.primary}
    found: dict[tuple[str, Factor, frozenset[str]], list[Mapping[str, Factor]]] = {}
    for spec in figures:
        if spec.measure in leading:
            found.setdefault((spec.measure, spec.where.get(KIND), frozenset(spec.where)), []).append(spec.where)
    charts = []
    for (measure, _, _), wheres in found.items():
        fixed = {name: level for name, level in wheres[0].items() if all(where[name] == level for where in wheres)}
        varying = [name for name in wheres[0] if name not in fixed]
        shown = [str(level) for name, level in fixed.items() if name != KIND]
        title = ", ".join([measure.replace("_", " ").capitalize(), *shown, *(f"by {name}" for name in varying)])
        if len(varying) <= 2:
            by, facet = [*varying[::-1], None, None][:2]
            charts.append(Chart("dots", title.replace("_", " "), (measure,), fixed, by=by, facet=facet))
    return charts


class _Empty(dict[str, Any]):
    """A mapping without entries; a dataclass takes only what has a hash as a default."""

    __hash__ = object.__hash__  # type: ignore[assignment]


_NONE, _SHOWN = _Empty(), Shown()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Suite(ABC):
    """A benchmark: data, and three functions: which questions (`items`), how an answer becomes numbers (`read`), which
    figures (`measures`). All else has a default, here.

    A subclass gives data as class attributes; what depends on its options it gives to ``super().__init__``.

    Attributes
    ----------
    name, title : str
        What configs and figures call it, and reports. Default: the name of its class.
    version : int
        Raise it when items or readings change, so that old figures are not compared with new.
    strata : tuple of str
        Factors over which a limited run is balanced: the same number of items from each combination. Missing answers
        are counted by the levels of the first.
    sampled_together : tuple of str
        A limited run keeps or drops items together if they agree in these factors (the conditions of one paired
        design). Empty: each item is on its own.
    families : mapping
        Sampled factor, or membership → the families of its levels.
    scorers : mapping
        Further models that it asks, by name: text classifiers.
    recorded : sequence of (str, str)
        Prompt and completion of texts that it brings along: `backends.RecordedBackend` answers with them.
    shown : Shown
        How a report shows it.
    """

    name: str = ""
    title: str = ""
    version: int = 1
    strata: tuple[str, ...] = ()
    sampled_together: tuple[str, ...] = ()
    families: Mapping[str, Family] = _NONE
    scorers: Mapping[str, Backend] = _NONE
    recorded: Sequence[tuple[str, str]] = ()
    shown: Shown = _SHOWN
    #: As in `backends.base.Backend`: options that may be a path, with the keywords that are not paths.
    path_options: ClassVar[Mapping[str, Collection[str]]] = {"folder": ()}

    def __init_subclass__(cls) -> None:
        cls.name = vars(cls).get("name", cls.__name__)

    def __post_init__(self) -> None:
        """What a subclass says as a class attribute is its default."""
        for one in fields(self):
            own = getattr(type(self), one.name)
            if own is not one.default and getattr(self, one.name) is one.default:
                object.__setattr__(self, one.name, own)

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Yield the questions lazily, in an order that keeps shared prefixes together."""

    @abstractmethod
    def read(self, item: Item, response: Response) -> Row:
        """The numeric row of one answered item."""

    @abstractmethod
    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        """The figures this suite reports, given one model's rows (after `derive`)."""

    # -- optional ------------------------------------------------------------------------------------

    def follow_ups(self, item: Item, response: Response) -> Iterable[Item]:
        """Questions that depend on an answer. Asked in a further round; their ids must be new."""
        return ()

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows computed from other rows of the same model, e.g. paired differences.

        One of a missing answer is missing too. Left out, it would spare a model its worst answers.
        """
        return rows

    def planted(self, item: Item, bias: float, draw: int) -> Response | None:
        """The answer of a simulated model with this ``bias`` (0: none, 1: always), in this suite's sense.

        ``draw`` is the seed: answers vary with it like those of different models. None: the suite cannot say.
        """
        return None

    def signature(self) -> Mapping[str, Any]:
        """Everything about the suite that may change a figure: options, data hashes. JSON-ready.

        Default: the version, and a hash of all questions and of the code that reads the answers, where it has a file.
        """
        asked = hashlib.sha256()
        with contextlib.suppress(OSError, TypeError):
            asked.update(inspect.getsource(type(self)).encode())
        for item in self.items():
            asked.update(repr((item.id, item.request, sorted(item.factors.items()), item.scorer)).encode())
        return {"version": self.version, "sha256": asked.hexdigest()}

    # -- what follows from these -----------------------------------------------------------------------

    @cached_property
    def needs(self) -> frozenset[Capability]:
        """What a backend must be able to do, to answer all questions and what follows from them."""
        return self.needs_of(list(self.items()))

    def needs_of(self, items: Sequence[Item]) -> frozenset[Capability]:
        """The same for some of the questions.

        Where a model cannot score words alone, a follow-up that needs it is missing, and the rest is asked.
        """
        more = [follow for item in items for follow in self.most_follow_ups(item)] if self.goes_on else []
        recorded: set[Capability] = {"recorded"} if self.recorded else set()
        return frozenset(recorded | _needed_for(items) | (_needed_for(more) - {"score_alone"}))

    @property
    def goes_on(self) -> bool:
        """Whether questions may follow from an answer."""
        return type(self).follow_ups is not Suite.follow_ups

    def most_follow_ups(self, item: Item) -> Iterable[Item]:
        """What follows from the longest possible text, for estimates."""
        if not (self.goes_on and isinstance(item.request, GenerateRequest)):
            return ()
        return self.follow_ups(item, GenerateResponse(" word" * item.request.sampling.max_tokens, "length"))

    def charts(self) -> Sequence[Chart]:
        """The charts that answer this suite's questions, most important first. Default: see `primary_charts`."""
        return primary_charts(self.measures(())) if self.shown.charts is None else self.shown.charts
