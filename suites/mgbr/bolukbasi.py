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

from suites.common.data_files import load, published_files

FILES = published_files("bolukbasi")
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
    """The content of the published files, with spaces instead of underscores."""

    feminine: tuple[str, ...]
    masculine: tuple[str, ...]
    professions: tuple[Profession, ...]


def read_lists(folder: str | Path | None = None) -> BolukbasiLists:
    """Read the published files from ``folder``, or fetch them (1,441 words, 320 occupations; 60 kB)."""
    words, rated = (
        json.loads(file.path(folder, field="words.bolukbasi").read_text("utf-8")) for file in FILES.values()
    )
    professions = tuple(Profession(_plain(w), float(d), float(s)) for w, d, s in rated)
    return BolukbasiLists(*split_by_gender(words), professions)


def choose_occupations(
    professions: Iterable[Profession], *, definitional: float, stereotypical: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Occupations stereotyped female and male, with their stereotypical ratings.

    Their definitional rating is at most ``definitional`` in absolute value (a waitress has a gender by definition), and
    their stereotypical one at least ``stereotypical``.
    """
    rated = {
        p.word: p.stereotypical
        for p in professions
        if abs(p.definitional) <= definitional and p.word.replace(" ", "_") not in _NOT_OCCUPATIONS
    }
    female = {word: rating for word, rating in rated.items() if rating <= -stereotypical}
    return female, {word: rating for word, rating in rated.items() if rating >= stereotypical}


def split_by_gender(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The feminine and the masculine ones of the gender-specific words."""
    readable = [word for word in dict.fromkeys(words) if word not in _EXCEPTIONS and _READABLE.fullmatch(word)]
    known = {_plain(word): gender_of(word) for word in readable}
    feminine, masculine = (tuple(word for word, of in known.items() if of == gender) for gender in get_args(Gender))
    return feminine, masculine


def gender_of(word: str) -> Gender | None:
    """The gender of a word by its last part; None if the rules do not decide it."""
    head = word.rsplit("_", 1)[-1]
    return next((g for g, heads in _HEADS.items() if head in heads or head.endswith(_ENDINGS[g])), None)


def _plain(word: str) -> str:
    return str(word).replace("_", " ")
