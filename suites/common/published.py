"""Which printed figures may be shown beside a measured one.

A printed figure belongs to a design: a variant, templates, expressions, a prompt format. It is shown beside a measure
when the two designs agree in every aspect, or differ only where the source states the difference. The designs of the
printed figures are data (``published_sources.json``); a suite states its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from backends.errors import ConfigError
from suites.common.data_files import load
from suites.presentation import PublishedSource

#: What is asked and scored: what the paper says, or what the authors' released code does where the two differ.
Variant = Literal["paper", "as_released"]
#: An aspect of a design → its level, e.g. ``templates.implicit`` → ``paper``.
PublishedDesign = Mapping[str, str]
#: One unit of the last digit of a printed percentage with one decimal, as a share.
TENTH_OF_A_PERCENT = 0.001


def published_source(figures: str, design: PublishedDesign) -> PublishedSource | None:
    """The source of printed figures for a measured design; None where they may not be shown beside it.

    ``figures``: key of ``published_sources.json``, e.g. ``occugender/implicit``. ``design``: every aspect of the
    measured design that may change the quantity.
    """
    entry = load("published_sources").content["figures"][figures]
    for fitting in entry["designs"]:
        if all(design.get(aspect) == level for aspect, level in fitting["design"].items()):
            return PublishedSource(
                entry["paper"], entry["table"], entry["made_by"], entry.get("plus_minus", ""), fitting["difference"]
            )
    return None


def model_ids(published_model: str) -> tuple[str, ...]:
    """The repositories of a model named in a paper's table; none where the model is not available."""
    return tuple(load("published_sources").content["model_ids"].get(published_model, ()))


def refuse_own(**given: object) -> None:
    """Refuse options that ``variant="as_released"`` fixes. A value of None or False means that none was given."""
    for name, value in given.items():
        if value is not None and value is not False:
            hint = 'Leave it out, or use variant="paper"'
            raise ConfigError(name, value, 'fixed by variant="as_released"', hint)
