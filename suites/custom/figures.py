"""The figures of a suite from a file, by what the file declares: strata, levels, sampled factors, primary, neutral."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from backends.options import located_error
from suites.base import Factor, MeasureSpec, Row, Suite
from suites.common.data_files import content_sha256
from suites.custom.schema import Head
from suites.custom.source import Source
from suites.kinds.sentences import in_proportion
from suites.options import spelling, suggestion

#: Fields that change no figure, only how a report presents it.
_OF_THE_REPORT = ("name", "title", "caution", "source", "licence", "data", "columns")
#: With fewer levels of a sampled factor nothing is decided.
LEAST_LEVELS = 5


class FromFile(Suite):
    """A benchmark as rows and declarations, in Python or in a file. Its figures follow from these alone.

    Parameters
    ----------
    rows : sequence of mappings
        A published benchmark's rows, with the fields of one of its kind (`suites.custom.schema`); others are factors.
        They are taken as they are: rows may repeat, and texts have spaces around them.
    levels : str, optional
        The factor whose levels have figures of their own. The figure over all rows counts them by their rows.
    fields
        The other fields of a file of this kind: ``sampled``, ``start``…

    Raises `ConfigError` for a field that is wrong.
    """

    #: The fields of a file of its kind.
    kind: ClassVar[type[Head]]
    file: Head
    design: Design
    specs: Sequence[MeasureSpec]

    def __init__(self, rows: Sequence[Mapping[str, Any]], *, levels: str | None = None, **fields: Any) -> None:
        content = {self.kind.rows_field: rows, "repeated": True, **fields}
        if levels is not None:
            content["stratum" if len({row.get(levels) for row in rows}) > 1 else "by"] = levels
        source = Source(Path(self.name), self.kind.rows_field, {})
        self.set_up(checked(self.kind, content, source, published=True), source)

    @classmethod
    def of(cls, file: Any, source: Source) -> Self:
        """The suite of a file that was checked."""
        suite = cls.__new__(cls)
        suite.set_up(file, source)
        return suite

    @abstractmethod
    def set_up(self, file: Any, source: Source) -> None:
        """Derive questions and figures from what is declared."""

    def data_of(self, strata: Sequence[str], cautions: Iterable[str] = (), **shown: Any) -> dict[str, Any]:
        """The fields of `suites.base.Suite`; ``cautions`` besides those of what is declared."""
        own = replace(self.shown, cautions=[*self.design.cautions(), *cautions], **shown)
        return {
            "name": self.file.name or "",
            "title": self.file.title,
            "strata": self.strata or tuple(strata),
            "shown": own,
        }

    def signature(self) -> Mapping[str, Any]:
        rows = [row.model_dump(mode="json", exclude_none=True) for row in self.file.rows]
        declared = self.file.model_dump(mode="json", exclude={*_OF_THE_REPORT, self.file.rows_field, "scorers"})
        return {"version": self.version, "rows_sha256": content_sha256(rows), **declared}

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield from self.specs


def checked(of: type[Head], content: Mapping[str, Any], source: Source, *, published: bool = False) -> Any:
    """What is declared. Raises `ConfigError` with the place of what is wrong."""
    try:
        return of.model_validate({"kind": of.__name__.lower(), **content}, context={"published": published})
    except ValidationError as error:
        place, found = located_error(error, of, content)
        raise source.refuse(place, found.value, found.problem, found.hint) from None


@dataclass(frozen=True)
class Design:
    """What a file declares, and the factors of its questions.

    ``factors``: the factors of each question, in the file's order. ``sampled``: the declared factors whose levels
    are sampled; where none is declared, the kind's default.

    Raises `ConfigError` for a declared factor that no question has, or whose levels cannot be told apart.
    """

    head: Head
    source: Source
    factors: Sequence[Mapping[str, Factor]]
    sampled: tuple[str, ...]

    def __post_init__(self) -> None:
        head, refuse = self.head, self.source.refuse
        known = dict.fromkeys(factor for one in self.factors for factor in one)
        for field, names in {"stratum": (head.stratum,), "by": head.by, "sampled": head.sampled}.items():
            for name in names:
                if name is not None and name not in known:
                    raise refuse((field,), name, "no question has this factor", suggestion(name, known))
                self.check_levels(name, f"{field} names it")
        if head.stratum is None:
            if head.weights != "in proportion":
                raise refuse(("weights",), head.weights, "there is no stratum", "Name it, or leave it out")
        elif head.stratum in head.sampled:
            hint = "Its levels are either fixed or sampled: name it in one of the two"
            raise refuse(("sampled",), head.stratum, "also the stratum", hint)
        elif len({one[head.stratum] for one in self.factors}) < 2:
            raise refuse(("stratum",), head.stratum, "has only one level", "Leave it out")

    def check_levels(self, name: str | None, why: str) -> None:
        """Refuse a factor that a row lacks, or has a level that reads like another, or is a text beside numbers."""
        levels = [row.level(name) if name else None for row in self.head.rows]
        first: dict[object, tuple[Factor, int]] = {}
        for number, level in enumerate(levels if any(level is not None for level in levels) else ()):
            place = (self.head.rows_field, number, str(name))
            if level is None or level != level or not spelling(level):  # NaN equals nothing
                raise self.source.refuse(place, level, f"missing, but {why}", "Give it in every row")
            alike, before = first.setdefault(
                spelling(level) if isinstance(level, str) else float(level), (level, number)
            )
            earlier = next(iter(first.values()))
            if _kind_of(level) is not _kind_of(earlier[0]):
                alike, before = earlier
            if alike != level or type(alike) is not type(level):
                where = self.source.where((self.head.rows_field, before, str(name)))
                problem = f"another level than {alike!r} in {where}"
                raise self.source.refuse(place, level, problem, "Write it alike, or more differently")

    def figures(self, spec: MeasureSpec, having: Sequence[bool] | None = None) -> Iterator[MeasureSpec]:
        """A figure over all questions, and one for each level of the declared factors.

        A figure that compares the levels of a stratum of its own has none where one of these is absent.
        ``having``: which questions have the quantity, in the order of ``factors``; the others count in no
        weight. Default: all.
        """
        neutral = self.head.neutral.get(spec.measure, spec.neutral)
        spec = replace(spec, clusters=self.sampled, neutral=neutral)
        questions = self.factors if having is None else [*compress(self.factors, having)]
        compared = set(spec.weights or ())
        yield spec if compared else self._averaged(spec, questions)
        for factor in self.head.levels_with_figures:
            for level in dict.fromkeys(one[factor] for one in questions):
                of_level = [one for one in questions if one[factor] == level]
                if compared <= {one.get(str(spec.stratum)) for one in of_level}:
                    own = spec if compared else self._averaged(spec, of_level)
                    where, family = {**own.where, factor: level}, f"by {factor.replace('_', ' ')}"
                    yield replace(own, where=where, primary=False, family=family)

    def _averaged(self, spec: MeasureSpec, questions: Sequence[Mapping[str, Factor]]) -> MeasureSpec:
        """The figure averaged over the stratum's levels that these questions have, if they are several."""
        stratum = self.head.stratum
        sizes = Counter(one[stratum] for one in questions) if stratum is not None else Counter[Factor]()
        if len(sizes) < 2:
            return spec
        weights = in_proportion(dict.fromkeys(sizes, 1) if self.head.weights == "equal" else sizes)
        return replace(spec, stratum=stratum, weights=weights)

    def with_primary(self, specs: Sequence[MeasureSpec]) -> Sequence[MeasureSpec]:
        """The figures, those that the file calls primary marked as such.

        Raises `ConfigError` for an unknown measure, and for a neutral value that it cannot have.
        """
        limits = {spec.measure: spec.limits for spec in specs}
        for field, given in (("primary", self.head.primary), ("neutral", self.head.neutral)):
            for name in given:
                if name not in limits:
                    raise self.source.refuse((field,), name, "no such measure", suggestion(name, limits))
        for name, value in self.head.neutral.items():
            low, high = limits[name]
            if not low <= value <= high:
                problem = f"{name} lies between {low:g} and {high:g}"
                raise self.source.refuse(("neutral", name), value, problem, "Give its value without bias")
        if not self.head.primary:
            return specs
        is_primary = [
            spec.measure in self.head.primary
            and not spec.is_subgroup
            and not {*self.head.levels_with_figures} & spec.where.keys()
            for spec in specs
        ]
        return [replace(spec, primary=primary) for spec, primary in zip(specs, is_primary, strict=True)]

    def cautions(self) -> Sequence[str]:
        """The file's own caution and source, and what its design cannot show."""
        said = [self.head.caution] if self.head.caution else []
        if self.head.source or self.head.licence:
            said.append(f"Source: {self.head.source or 'not named'}; licence: {self.head.licence or 'not named'}.")
        for factor in self.sampled:
            levels = len({one.get(factor) for one in self.factors})
            if levels < LEAST_LEVELS:
                said.append(f"{factor} has {levels} levels: with fewer than {LEAST_LEVELS} nothing is decided.")
        return said


def _kind_of(level: Factor) -> type:
    return str if isinstance(level, str) else bool if isinstance(level, bool) else float
