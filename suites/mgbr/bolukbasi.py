"""The word lists of Bolukbasi et al. 2016 (github.com/tolga-b/debiaswe), as published.

``professions.json`` rates each occupation twice, from -1 (female) to +1 (male): how female or male the word is by
definition, and by stereotype. ``gender_specific_full.json`` lists words that have a gender, without saying which. It
was compiled automatically, and also holds names, misprints, animals and things. This module separates feminine from
masculine words by the rules below, and leaves out every word that they do not decide:

1. Only words in lower case, of one or two parts (``twin_sister``). The last part decides.
2. It is one of the heads in ``suites/data/bolukbasi_rules.json``, or ends like a compound of man, woman, boy…

The published pairs of opposites (``definitional_pairs.json``, ``equalize_pairs.json``) are not used here, so that
they can test the rules.

Only words for people count as feminine or masculine, because the benchmark asks about women and men:
``mare``, ``uterus``, ``sorority`` are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from suites.common.data_files import PinnedFile, load

_BASE = "https://raw.githubusercontent.com/tolga-b/debiaswe/6bb03ee2a0d7214339e513ca71cd0a99069dc29c/data/"

#: The published files at a fixed commit.
FILES = {
    "gender_specific": PinnedFile(
        _BASE + "gender_specific_full.json", "300068da1885e9dc8bf2235d987fd0cf5d0b08a6877a0a639ee0060a989bac1f"
    ),
    "professions": PinnedFile(
        _BASE + "professions.json", "32cc82c7761e7cfb14e37e06dc1aa9f758bc8441f79ca7288996d3fc7c24639a"
    ),
}

Gender = Literal["feminine", "masculine"]

_RULES = load("bolukbasi_rules").content
#: A word is feminine (masculine) if its last part is one of these heads, or has one of these endings.
_HEADS: Mapping[Gender, frozenset[str]] = {g: frozenset(_RULES[f"{g}_heads"]) for g in get_args(Gender)}
_ENDINGS: Mapping[Gender, tuple[str, ...]] = {g: tuple(_RULES[f"{g}_endings"]) for g in get_args(Gender)}
#: Words that the rules would get wrong: a tomboy is a girl, a panto dame is played by a man,
#: semen is not a man; and misprints such as ``businesman``.
_EXCEPTIONS = frozenset(_RULES["exceptions"])
#: Rated in ``professions.json`` without being an occupation.
_NOT_OCCUPATIONS = frozenset(_RULES["not_occupations"])

_READABLE = re.compile(r"[a-z][a-z'-]*(_[a-z][a-z'-]*)?")


@dataclass(frozen=True, slots=True)
class Profession:
    """An occupation with its two ratings, from -1 (female) to +1 (male)."""

    word: str
    definitional: float
    stereotypical: float


@dataclass(frozen=True, slots=True)
class BolukbasiLists:
    """The content of the published files, with spaces instead of underscores.

    ``left_out`` counts the gender-specific words that got no gender, by reason.
    """

    feminine: tuple[str, ...]
    masculine: tuple[str, ...]
    professions: tuple[Profession, ...]
    left_out: Mapping[str, int]


def read_lists(folder: str | Path | None = None) -> BolukbasiLists:
    """Read the published files from ``folder``, or fetch them (1,441 words, 320 occupations; 60 kB).

    Raises
    ------
    ConfigError
        If a file is missing, cannot be fetched, or is not the published one.
    """
    data = {
        name: json.loads(file.path(folder, field="words.bolukbasi").read_text("utf-8")) for name, file in FILES.items()
    }
    professions = tuple(Profession(_plain(w), float(d), float(s)) for w, d, s in data["professions"])
    feminine, masculine, left_out = split_by_gender(data["gender_specific"])
    return BolukbasiLists(feminine, masculine, professions, left_out)


def choose_occupations(
    professions: Iterable[Profession], *, definitional: float, stereotypical: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Occupations stereotyped female and male: with a strong stereotype, but weakly gendered by definition.

    Parameters
    ----------
    definitional : float
        Maximum absolute definitional rating: a word above it has a gender of its own (waitress).
    stereotypical : float
        Minimum absolute stereotypical rating.

    Returns
    -------
    (female, male) : dict of word to stereotypical rating
    """
    female: dict[str, float] = {}
    male: dict[str, float] = {}
    for p in professions:
        if abs(p.definitional) > definitional or p.word.replace(" ", "_") in _NOT_OCCUPATIONS:
            continue
        if p.stereotypical <= -stereotypical:
            female[p.word] = p.stereotypical
        elif p.stereotypical >= stereotypical:
            male[p.word] = p.stereotypical
    return female, male


def split_by_gender(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, int]]:
    """Split the published gender-specific words by the rules of this module.

    Returns
    -------
    (feminine, masculine, left out) : words with spaces; counts by reason
    """
    found: dict[Gender, list[str]] = {"feminine": [], "masculine": []}
    left_out = {"a name, a misprint or a longer phrase": 0, "gender not established, or not a person": 0}
    for word in dict.fromkeys(words):
        if word in _EXCEPTIONS or not _READABLE.fullmatch(word):
            left_out["a name, a misprint or a longer phrase"] += 1
            continue
        known = gender_of(word)
        if known is None:
            left_out["gender not established, or not a person"] += 1
        else:
            found[known].append(_plain(word))
    return tuple(found["feminine"]), tuple(found["masculine"]), left_out


def gender_of(word: str) -> Gender | None:
    """The gender of a word by its last part; None if the rules do not decide it."""
    head = word.rsplit("_", 1)[-1]
    return next((g for g, heads in _HEADS.items() if head in heads or head.endswith(_ENDINGS[g])), None)


def _plain(word: str) -> str:
    return str(word).replace("_", " ")
