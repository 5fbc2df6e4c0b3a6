"""Which printed figure may stand beside a measured one: the rule, and the sources it goes by.

A printed figure belongs to a design: a variant, templates, expressions, a prompt format. It is shown beside a measure
when the measured design agrees with it in every aspect, or in every aspect but those whose difference it names. The
designs are data (``published_sources.json``); a suite only says what its own design is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from backends.errors import ConfigError
from suites.common.data_files import load
from suites.presentation import PublishedSource

#: What is asked and scored: the paper's text, or what the authors' released code does where the two differ.
Variant = Literal["paper", "as_released"]
#: An aspect of a design → its level, e.g. ``templates.implicit`` → ``paper``.
PublishedDesign = Mapping[str, str]
#: The printed percentages have one decimal, as shares.
TENTH_OF_A_PERCENT = 0.001


def published_source(figures: str, design: PublishedDesign) -> PublishedSource | None:
    """The source of printed figures as it is to be shown beside a measured design; None where they are not to be.

    Parameters
    ----------
    figures : str
        Key of ``published_sources.json``, e.g. ``occugender/implicit``.
    design : mapping
        Every aspect of the measured design that may change the quantity.
    """
    entry = load("published_sources").content["figures"][figures]
    for fitting in entry["designs"]:
        if all(design.get(aspect) == level for aspect, level in fitting["design"].items()):
            return PublishedSource(
                entry["paper"], entry["table"], entry["made_by"], entry.get("plus_minus", ""), fitting["difference"]
            )
    return None


def model_ids(published_model: str) -> tuple[str, ...]:
    """The repositories of a model that a paper's table names; none where the model cannot be had."""
    return tuple(load("published_sources").content["model_ids"].get(published_model, ()))


def refuse_own(**given: object) -> None:
    """Refuse an option that ``variant="as_released"`` fixes: anything but None, and False for a value left alone."""
    for name, value in given.items():
        if value is not None and value is not False:
            hint = 'Leave it out, or use variant="paper"'
            raise ConfigError(name, value, 'fixed by variant="as_released"', hint)
