"""How a suite's figures are shown: published values, tables and charts. Plain data; `audit.report` draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.base import Scalar

#: A level of a factor of the design: a template's name, an occupation, a share…
Factor = Scalar


@dataclass(frozen=True, slots=True)
class Beside:
    """A figure told beside another one, which alone would mislead: ``words`` with ``{points}`` in 100.

    Its condition is that of the other figure, changed by ``where``.
    """

    measure: str
    words: str
    where: Mapping[str, Factor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Meaning:
    """A sentence about one model that puts a figure in plain words, with ``{points}`` in 100.

    ``above`` is used where the figure lies above its neutral value, ``below`` where it lies below; the points are the
    distance from that value. Without ``below``, ``above`` is used everywhere, and the points are the figure itself.
    ``finding`` and ``opposite`` are what a model does whose figure lies above or below neutral, for the report's first
    sentence: ``give{s} the stereotyped gender more probability``, where ``{s}`` is the ending of the singular.
    """

    above: str
    below: str = ""
    finding: str = ""
    opposite: str = ""
    beside: tuple[Beside, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedSource:
    """Where printed figures come from, and how their design differs from the measured one.

    Attributes
    ----------
    paper, table : str
        Where they are printed.
    made_by : str
        The code and the stimuli that produced them, as far as known.
    plus_minus : str
        What the printed ± means; empty where none is printed.
    difference : str
        How the printed figure's design differs from the measured one; empty where it does not.
    """

    paper: str
    table: str
    made_by: str
    plus_minus: str = ""
    difference: str = ""


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A figure printed in a paper, on the scale of the measure that it is shown beside.

    ``step`` is one unit of the last printed digit. ``model_ids`` are the repositories of the paper's model, where it
    is available.
    """

    model: str
    measure: str
    where: Mapping[str, Factor]
    value: float
    plus_minus: float | None = None
    source: PublishedSource | None = None
    step: float | None = None
    model_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column: the figures of ``measure`` whose ``where`` is the row's and the column's together."""

    label: str
    measure: str
    where: Mapping[str, Factor] = field(default_factory=dict)
    group: str = ""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table in a paper's layout, filled from measures and published figures.

    ``rows`` are pairs (label, where). Without rows, each model is one row; with rows, the table is
    repeated for each model. Cells are multiplied by ``scale`` and shown with ``decimals``.
    ``note`` says how to read them, where the title does not.
    """

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, Mapping[str, Factor]], ...] = ()
    scale: float = 1.0
    decimals: int = 3
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the figures of ``measures`` that agree with ``where`` and have no other keys in
    theirs than those of ``where``, ``by`` and ``facet``.

    kind
        ``dots``     value and interval by model (and by ``by``, if given)
        ``scatter``  each level of ``by`` at (``covariate[level]``, value), coloured by model
        ``lines``    value and interval over the ordered factor ``by``
        ``ranking``  levels of ``by`` sorted by value
    """

    kind: Literal["dots", "scatter", "lines", "ranking"]
    title: str
    measures: tuple[str, ...]
    where: Mapping[str, Factor] = field(default_factory=dict)
    by: str | None = None
    facet: str | None = None
    covariate: Mapping[str, float] | None = None
    covariate_label: str = ""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a report shows a suite's figures.

    Attributes
    ----------
    meanings : mapping
        Its headline figures in plain words, by measure.
    level_labels : mapping
        What a report calls the levels of its factors: ``{"bias": {"explicit": "asked directly"}}``.
    texts : mapping
        Named texts (treatments, placebos) whose length in tokens the report shows for each model.
    cautions : sequence of str
        How the options limit the figures: sentences for the report's list of limits.
    published, tables
        The paper's printed figures, and tables in its layout.
    charts : sequence of Chart, optional
        Most important first. Default: the primary figures, see `suites.base.primary_charts`.
    """

    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    level_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    cautions: Sequence[str] = ()
    published: Sequence[PublishedFigure] = ()
    tables: Sequence[TableLayout] = ()
    charts: Sequence[Chart] | None = None


@dataclass(frozen=True, slots=True)
class Drafts:
    """Templates of tables and charts from a data file, by name. Their texts have placeholders in braces.

    What depends on a run's options is given with each call: columns, rows, covariates, and words for the placeholders.
    """

    content: Mapping[str, Mapping[str, Any]]

    def table(
        self,
        name: str,
        columns: Iterable[TableColumn],
        rows: Iterable[tuple[str, Mapping[str, Factor]]] = (),
        **words: str,
    ) -> TableLayout:
        """The table of that name."""
        draft = _filled(self.content["tables"][name], words)
        return TableLayout(name=name, columns=tuple(columns), rows=tuple(rows), **draft)

    def chart(self, name: str, covariate: Mapping[str, float] | None = None, /, **words: str) -> Chart:
        """The chart of that name."""
        return Chart(covariate=covariate, **_filled(self.content["charts"][name], words))


def _filled(draft: Any, words: Mapping[str, str]) -> Any:
    match draft:
        case str():
            return draft.format(**words)
        case list():
            return tuple(_filled(part, words) for part in draft)
        case dict():
            return {name: _filled(part, words) for name, part in draft.items()}
        case _:
            return draft
