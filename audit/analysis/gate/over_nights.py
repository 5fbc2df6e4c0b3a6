"""The decisions of a nightly gate over all nights since the baseline was set.

A test at 95 % that is repeated every night eventually raises a false alarm. So look k at a figure gets the share
``w_k`` of the error allowed over all looks,

    w_k = k^-1.5 / ζ(1.5),    Σ w_k = 1,

and its interval has the confidence 1 - α w_k. By Bonferroni's inequality the intervals of all looks hold jointly with
probability 1 - α or more: they are a confidence sequence, and ``p_k / w_k`` is a p-value on whatever night it is read.
The family's correction is applied to these (`audit.analysis.decisions`). Nothing is assumed about the dependence
between nights. That matters here: every night asks the same occupations and templates and is compared with the same
baseline, so most of the error is the same every night. Methods that accumulate evidence from night to night (betting,
Waudby-Smith & Ramdas 2024, J. R. Stat. Soc. B 86(1); mixtures) need errors with mean zero given the nights before: they
would mistake the shared error for evidence, and eventually raise an alarm.

What counts as a look. The same answers as on an earlier night say nothing new: they keep the number and the decision of
that look. A changed model is a new look against the same baseline: if each version began a new sequence, ten versions
would have ten times the error. A promoted baseline begins a new sequence.

Which answers are used. Tonight's, and those of the same model to further items on earlier nights, so that nightly
samples of a large suite add up. A model with a new fingerprint starts without them. A served model may change behind
its fingerprint: the answers from before would hide that, the more of them there are. So where nights add up, half of a
look's error is for tonight's answers alone, and half for all; either may raise the alarm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.estimators import Floats
from audit.analysis.gate.results import GatedFigure, GateReport, OverNights
from audit.analysis.rows.table import Bools, RowTable
from audit.results import Measure

#: How fast the shares decline. At 1.5 the critical value is 2.3 standard errors at look 1, and 4.3 at look 100.
_DECLINE = 1.5


def share_of_look(number: int) -> float:
    """The share of the error over all looks that look ``number`` (from 1) may spend."""
    return float(number**-_DECLINE / special.zeta(_DECLINE))


class Look(NamedTuple):
    """A look at a figure: its number, and whether answers of earlier nights are added to tonight's."""

    number: int
    adds_up: bool = False

    @property
    def share(self) -> float:
        """The share of the error for tonight's answers alone, and again for all where nights add up."""
        return share_of_look(self.number) / (2 if self.adds_up else 1)


def data_of_figures(table: RowTable, measures: Iterable[Measure]) -> dict[str, str]:
    """Hashes of the answers behind each figure of one model and suite, including missing ones, by figure id."""
    data_behind = hash_of_rows(table)
    hashes: dict[str, str] = {}
    for measure in measures:
        spec, quantity = measure.spec, table.quantity(measure.spec.quantity)
        behind = table.matching(spec.where) & (table.has(spec.quantity) | table.missing)
        bounds = (np.where(table.missing, np.nan, bound) for bound in (quantity.low, quantity.high))
        hashes[measure.id] = data_behind(behind, *bounds)
    return hashes


def hash_of_rows(table: RowTable) -> Callable[..., str]:
    """A function (rows (n,), columns (n,)…) → hash of these rows' items and values, regardless of their order."""
    items = np.array(list(table.index), dtype=np.str_)
    order = np.argsort(items)

    def hash_of(rows: Bools, *columns: Floats) -> str:
        used = order[rows[order]]
        hashed = hashlib.sha256("\n".join(items[used].tolist()).encode("utf-8", "surrogatepass"))
        for column in columns:
            hashed.update(column[used].tobytes())
        return hashed.hexdigest()[:16]

    return hash_of


def with_nights(
    alone: GateReport, sequence: GateReport, of_tonight: GateReport | None, looks: Mapping[str, Look]
) -> GateReport:
    """Tonight's report, with each figure's decision over all nights.

    Parameters
    ----------
    alone : GateReport
        The run by itself.
    sequence : GateReport
        The same figures over all nights' answers, decided with the shares of ``looks``.
    of_tonight : GateReport or None
        The same over tonight's answers; None if no night adds to these.
    looks : mapping
        By figure id.
    """
    of_sequence = {figure.figure.id: figure for figure in sequence.figures}
    if of_tonight is not None:
        of_sequence |= {f.figure.id: f for f in of_tonight.figures if f.verdict == "regressed"}
    figures = []
    for figure in alone.figures:
        name = figure.figure.id
        if name in looks and (other := of_sequence.get(name)) is not None:
            figure = figure.model_copy(update={"over_nights": _over_nights(other, looks[name], alone.confidence)})
        figures.append(figure)
    return alone.model_copy(update={"figures": figures})


def _over_nights(figure: GatedFigure, look: Look, confidence: float) -> OverNights:
    shared = figure.model_dump(include=set(OverNights.model_fields), by_alias=False)
    level = 1 - (1 - confidence) * look.share
    if figure.decided_confidence is not None:  # else nothing was tested, and nothing corrected
        level = figure.decided_confidence
        shared |= {"low": figure.change_decided_low, "high": figure.change_decided_high}
    return OverNights(**shared, look=look.number, confidence=level)
