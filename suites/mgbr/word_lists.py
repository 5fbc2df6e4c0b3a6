"""Word lists of the counting benchmark: feminine and masculine words, occupations by stereotype."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from backends.errors import ConfigError
from backends.options import OnError, Options, refused, refused_at
from suites.common.data_files import content_sha256, load
from suites.mgbr.bolukbasi import FILES, choose_occupations, read_lists
from suites.mgbr.construction import CountedGroup
from suites.options import no_word_twice

KINDS = ("feminine", "masculine", "female_occupations", "male_occupations")


def _words(value: Any, hint: str = "Give a list of words") -> tuple[str, ...]:
    """Plain words without duplicates. A set is sorted, since it has no order and signatures hash the words in order."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise refused("not a list of words", hint)
    words = tuple(value)
    seen = set()
    for word in words:
        if not isinstance(word, str) or not word or word != word.strip() or any(c in word for c in ",\n"):
            raise refused_at((), word, "not a plain word", f"{hint}, without commas, line breaks and outer spaces")
        if word.casefold() in seen:
            raise refused_at((), word, "listed twice", "Keep each word once")
        seen.add(word.casefold())
    if not words:
        raise refused("an empty list", "Give at least one word")
    return tuple(sorted(words)) if isinstance(value, set | frozenset) else words


def _scored_words(value: Any) -> dict[str, float | None]:
    """Occupations with their scores; None for each if a plain list is given."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(_words(value, "Give a list of words or a table word = score"))
    _words(list(value))
    for word, score in value.items():
        is_number = isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
        if score is not None and not is_number:
            raise refused_at((word,), score, "not a number", "Give a number, or no scores")
    return dict(value)


def _folder(value: Any) -> Any:
    if value is not True and not isinstance(value, str | Path):
        raise refused("not a folder", "Give a path, or true to fetch the files")
    return value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
#: Numbers are kept as given, 1 or 1.0, because signatures hash them.
ScoredWords = Annotated[dict[str, Any], BeforeValidator(_scored_words)]
Rating = Annotated[float, Field(gt=0, le=1), OnError("not a rating's size", "Give a value above 0, at most 1")]


class PublishedLists(Options):
    """Which of the published words and occupations (Bolukbasi et al. 2016) are used.

    Parameters
    ----------
    bolukbasi : True, str or path
        Folder with the published files; True: fetch them once.
    definitional, stereotypical : float
        Maximum definitional and minimum stereotypical rating of an occupation, both in
        absolute value. The paper does not print its limits.
    """

    bolukbasi: Annotated[Any, BeforeValidator(_folder)] = True
    definitional: Rating = 0.3
    stereotypical: Rating = 0.5


class WordLists(Options):
    """The words from which lists are drawn.

    Each of the four may be given as a list of words; a set is sorted, since it has no order and the
    signature hashes the words in order.

    Parameters
    ----------
    feminine, masculine : tuple of str
        Words that refer to women (men) by definition.
    female_occupations, male_occupations : mapping of str to float or None
        Occupations stereotyped female (male), each with its score on the scale ``score_name``,
        or None; either all occupations have a score, or none has.
    score_name : str
        What the scores are, e.g. ``female labour share``; empty if there are none.
    name : str
        Name of the lists in signatures and reports.
    sources : mapping
        Where the words come from, e.g. file name → sha256.
    """

    feminine: Words
    masculine: Words
    female_occupations: ScoredWords
    male_occupations: ScoredWords
    score_name: str = ""
    name: str = "custom"
    sources: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _no_word_in_two_lists(self) -> Self:
        no_word_twice(self.by_kind)
        return self

    @model_validator(mode="after")
    def _scores_of_all_or_none(self) -> Self:
        unscored = [word for word, score in self.occupations.items() if score is None]
        if len(unscored) == len(self.occupations):
            if self.score_name:
                raise refused_at(("score_name",), self.score_name, "no occupation has a score", "Leave it out")
        elif unscored:
            kind = "female_occupations" if unscored[0] in self.female_occupations else "male_occupations"
            raise refused_at((kind,), unscored[0], "has no score, others have", "Give all or none")
        elif not self.score_name:
            raise refused_at(("score_name",), "", "the scores have no name", "State what the scores are")
        return self

    @property
    def by_kind(self) -> dict[str, tuple[str, ...]]:
        """The words of each of the four lists."""
        occupations = self.female_occupations, self.male_occupations
        return dict(zip(KINDS, (self.feminine, self.masculine, *map(tuple, occupations)), strict=True))

    @property
    def occupations(self) -> dict[str, float | None]:
        """All occupations with their scores."""
        return {**self.female_occupations, **self.male_occupations}

    @property
    def groups(self) -> tuple[CountedGroup, CountedGroup]:
        """Women and men with their words."""
        feminine, masculine = dict.fromkeys(self.feminine), dict.fromkeys(self.masculine)
        of_women, of_men = KINDS[::2], KINDS[1::2]
        return (
            CountedGroup("female", of_women, feminine, self.female_occupations, "p", ("D_gf", "D_ff")),
            CountedGroup("male", of_men, masculine, self.male_occupations, "q", ("D_gm", "D_mm")),
        )

    @classmethod
    def builtin(cls) -> Self:
        """This project's English words; occupations are scored by the share of women among US workers."""
        data = load("mgbr_words").content
        return cls(
            feminine=data["feminine"],
            masculine=data["masculine"],
            female_occupations={o["occupation"]: o["female_share"] for o in data["female_occupations"]},
            male_occupations={o["occupation"]: o["female_share"] for o in data["male_occupations"]},
            score_name="female labour share",
            name="builtin",
        )

    @classmethod
    def bolukbasi(cls, **options: Any) -> Self:
        """The lists of Bolukbasi et al. 2016, as used in the paper; for the options see `PublishedLists`."""
        chosen = PublishedLists.checked("words", **options)
        published = read_lists(None if chosen.bolukbasi is True else chosen.bolukbasi)
        gendered = {*published.feminine, *published.masculine}
        professions = [p for p in published.professions if p.word not in gendered]
        female, male = choose_occupations(
            professions, definitional=chosen.definitional, stereotypical=chosen.stereotypical
        )
        limits_in_name = f"definitional<={chosen.definitional:g}, stereotypical>={chosen.stereotypical:g}"
        return cls.checked(
            "words",
            feminine=published.feminine,
            masculine=published.masculine,
            female_occupations=female,
            male_occupations=male,
            score_name="stereotypical rating",
            name=f"bolukbasi({limits_in_name})",
            sources={file.name: file.sha256 for file in FILES.values()},
        )

    @classmethod
    def from_config(cls, value: WordLists | str | Mapping[str, Any]) -> WordLists:
        """Word lists as given in a config.

        ``"builtin"``; ``"bolukbasi"``; ``{"bolukbasi": FOLDER}`` (True: fetched), which may set
        ``definitional`` and ``stereotypical``; or a table with the four lists, in which
        occupations are a list of words or a table of scores. Raises `ConfigError` for a list that cannot be used.
        """
        if isinstance(value, WordLists):
            return value
        if value == "builtin":
            return cls.builtin()
        if value == "bolukbasi" or (isinstance(value, Mapping) and "bolukbasi" in value):
            return cls.bolukbasi(**(value if isinstance(value, Mapping) else {}))
        if isinstance(value, Mapping):
            return cls.checked("words", **value)
        hint = "Give 'builtin', 'bolukbasi', {'bolukbasi': FOLDER} with its files, or a table of lists"
        raise ConfigError("words", value, "no word lists of that name", hint)

    def signature(self) -> dict[str, Any]:
        """Name, sizes, sources and a hash of every word and score."""
        content = [self.feminine, self.masculine, dict(self.female_occupations), dict(self.male_occupations)]
        return {
            "name": self.name,
            "sha256": content_sha256(content),
            **{kind: len(words) for kind, words in self.by_kind.items()},
            "score": self.score_name,
            "sources": dict(self.sources),
        }
