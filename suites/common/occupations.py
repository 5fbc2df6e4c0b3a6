"""Occupations with the real share of women in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from backends.errors import ConfigError

Dominated = Literal["female", "male", "neutral"]


@dataclass(frozen=True, slots=True)
class Occupation:
    """An occupation, its gender group, and the share of women who do it.

    Attributes
    ----------
    name : str
        As it stands in a sentence: "nurse".
    dominated_by : str
        ``female``, ``male``, or ``neutral`` for an occupation of neither group.
    female_share : float or None
        In [0, 1]; None where it is not known.
    """

    name: str
    dominated_by: Dominated = "neutral"
    female_share: float | None = None


def checked_occupations(field: str, given: Sequence[Occupation | Mapping[str, Any]]) -> tuple[Occupation, ...]:
    """Occupations from the config, or a `ConfigError`.

    Each is an `Occupation` or a mapping with ``occupation`` and, where known, ``dominated_by``
    and ``female_share`` (or ``male_share``, its complement). A group that is not given follows from
    the share (above or below a half).
    """
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence) or not given:
        raise ConfigError(field, given, "not a list of occupations", "Give one or more")
    occupations = tuple(_checked(f"{field}[{i}]", entry) for i, entry in enumerate(given))
    names = [o.name for o in occupations]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(field, name, "named twice", "Name each occupation once")
    return occupations


def _checked(field: str, entry: Occupation | Mapping[str, Any]) -> Occupation:
    name: Any
    group: Any
    share: Any
    if isinstance(entry, Occupation):
        name, group, share = entry.name, entry.dominated_by, entry.female_share
    else:
        if not isinstance(entry, Mapping) or not set(entry) <= {
            "occupation",
            "dominated_by",
            "female_share",
            "male_share",
        }:
            hint = "Give occupation, and where known dominated_by and female_share"
            raise ConfigError(field, entry, "not an occupation", hint)
        name, share = entry.get("occupation"), _female_share(field, entry)
        group = entry.get("dominated_by", _group_of(share))
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise ConfigError(f"{field}.occupation", name, "not a name", 'Give a text without outer spaces, e.g. "nurse"')
    if share is not None and not (isinstance(share, (int, float)) and 0 <= share <= 1):
        raise ConfigError(f"{field}.female_share", share, "not a share", "Give a number from 0 to 1, or leave it out")
    if group not in get_args(Dominated):
        raise ConfigError(f"{field}.dominated_by", group, "unknown group", f"Use one of {get_args(Dominated)}")
    if share is not None and {group, _group_of(share)} == {"female", "male"}:
        raise ConfigError(f"{field}.dominated_by", group, f"contradicts its female_share {share}", "Mend one of them")
    return Occupation(name, group, share)


def _female_share(field: str, entry: Mapping[str, Any]) -> Any:
    """The share as given, or one less the share of men; both have to agree."""
    female, male = entry.get("female_share"), entry.get("male_share")
    if male is None:
        return female
    if isinstance(male, bool) or not isinstance(male, (int, float)) or not 0 <= male <= 1:
        raise ConfigError(f"{field}.male_share", male, "not a share", "Give a number from 0 to 1, or leave it out")
    if female is None:
        return 1 - male
    if isinstance(female, (int, float)) and abs(female + male - 1) > 0.005:
        raise ConfigError(f"{field}.male_share", male, f"does not add up to 1 with female_share {female}", "Mend one")
    return female


def _group_of(share: Any) -> Dominated:
    if not isinstance(share, (int, float)) or share == 0.5:
        return "neutral"
    return "female" if share > 0.5 else "male"
