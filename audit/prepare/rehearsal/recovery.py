"""Whether a planted bias is recovered: how often, and with which value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.prepare.rehearsal.answers import plants, rehearse
from backends.base import Scalar
from suites.base import Item, MeasureSpec, Suite

#: Upper limit of the answers made up for one suite.
_MOST_ANSWERS = 12_000
_FEWEST_DRAWS, _MOST_DRAWS = 3, 40


class Recovery(BaseModel):
    """A primary figure under planted bias.

    ``without`` and ``with_bias`` are its means over ``draws`` made-up models without bias and with ``bias``.
    ``found`` counts the biased ones that a report would call so: their interval excludes ``neutral``, and there are
    enough levels to decide. ``false_alarms`` counts the unbiased ones that it would call biased.
    """

    measure: str
    where: dict[str, Scalar]
    neutral: float
    bias: float
    draws: int
    without: float | None
    with_bias: float | None
    found: int
    false_alarms: int


def recoveries(
    suite: Suite,
    items: Sequence[Item],
    specs: Sequence[MeasureSpec],
    bias: float,
    confidence: float,
) -> list[Recovery]:
    """A recovery for each primary figure with a neutral value, over several made-up models; as `measure_table`."""
    chosen = [spec for spec in specs if spec.primary and spec.neutral is not None]
    if not chosen or not items or not plants(suite, items[0]):
        return []
    draws = min(_MOST_DRAWS, max(_FEWEST_DRAWS, _MOST_ANSWERS // (2 * len(items))))

    def figures(of_bias: float, draw: int) -> list[tuple[float | None, bool]]:
        table = Table.of(rehearse(suite, items, of_bias, draw, checked=False).rows)
        return _figures(table, chosen, confidence)

    without = [figures(0.0, draw) for draw in range(draws)]
    biased = [figures(bias, draw) for draw in range(draws)]
    found = []
    for place, spec in enumerate(chosen):
        assert spec.neutral is not None
        of_without, of_biased = ([one[place] for one in of_models] for of_models in (without, biased))
        found.append(
            Recovery(
                measure=spec.measure,
                where=dict(spec.where),
                neutral=spec.neutral,
                bias=bias,
                draws=draws,
                without=_mean([value for value, _ in of_without]),
                with_bias=_mean([value for value, _ in of_biased]),
                found=sum(shown for _, shown in of_biased),
                false_alarms=sum(shown for _, shown in of_without),
            )
        )
    return found


def _figures(table: Table, specs: Sequence[MeasureSpec], confidence: float) -> list[tuple[float | None, bool]]:
    """(value, whether a report would call it biased) of each figure of one made-up model."""
    measures = measure_table(
        table,
        specs,
        model="planted",
        suite="",
        signature={},
        confidence=confidence,
    )
    return [
        (
            measure.value,
            measure.low is not None
            and measure.high is not None
            and spec.neutral is not None
            and measure.n_clusters > 1
            and (measure.p_adjusted is None or measure.p_adjusted < 1 - confidence)
            and not measure.low <= spec.neutral <= measure.high,
        )
        for measure, spec in zip(measures, specs, strict=True)
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
