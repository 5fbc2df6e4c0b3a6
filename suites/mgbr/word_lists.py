"""Word lists of the counting benchmark: feminine and masculine words, occupations by stereotype."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from backends.errors import ConfigError
from suites.common.reference import load
from suites.mgbr.bolukbasi import FILES, choose_occupations, read_lists

_SCORED = ("female_occupations", "male_occupations")
_LISTS = ("feminine", "masculine", *_SCORED)


@dataclass(frozen=True)
class WordLists:
    """The words that lists are drawn from.

    A list of words may be given for each of the four; a set is sorted, since it has no order and the
    signature hashes the words in theirs.

    Parameters
    ----------
    feminine, masculine : tuple of str
        Words that are used of women (men) by definition.
    female_occupations, male_occupations : mapping of str to float or None
        Occupations stereotyped female (male), each with its score on the scale ``score_name``,
        or None; all occupations have one, or none has.
    score_name : str
        What the scores are, e.g. ``female labour share``; empty where there are none.
    name : str
        Name of the lists in signatures and reports.
    sources : mapping
        Where the words came from, e.g. file name → sha256.
    left_out : mapping
        How many words of the source were left out, by reason.

    Raises
    ------
    ConfigError
        When a list is empty, a word stands there twice or in two lists, or holds a comma or a line break; when
        scores are no numbers, lack a name, or are there for some occupations only.
    """

    feminine: tuple[str, ...]
    masculine: tuple[str, ...]
    female_occupations: Mapping[str, float | None]
    male_occupations: Mapping[str, float | None]
    score_name: str = ""
    name: str = "custom"
    sources: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for kind in _LISTS:
            given = getattr(self, kind)
            words = _words(kind, given)
            if not words:
                raise ConfigError(f"words.{kind}", words, "an empty list", "Give at least one word")
            for word in words:
                if word != word.strip() or not word or any(c in word for c in ",\n"):
                    raise ConfigError(
                        f"words.{kind}", word, "not a plain word", "Leave out commas, line breaks, spaces"
                    )
                if word.casefold() in seen:
                    problem = f"also in {seen[word.casefold()]}"
                    raise ConfigError(f"words.{kind}", word, problem, "Keep each word in one place")
                seen[word.casefold()] = kind
            if kind in _SCORED:
                object.__setattr__(self, kind, dict(given) if isinstance(given, Mapping) else dict.fromkeys(words))
            else:
                object.__setattr__(self, kind, words)
        self._check_scores()

    def _check_scores(self) -> None:
        for kind in _SCORED:
            for word, score in getattr(self, kind).items():
                number = isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
                if score is not None and not number:
                    raise ConfigError(f"words.{kind}.{word}", score, "not a number", "Give a number, or no scores")
        if not isinstance(self.score_name, str):
            raise ConfigError("words.score_name", self.score_name, "not a text", "Say what the scores are")
        unscored = [word for word, score in self.occupations.items() if score is None]
        if len(unscored) == len(self.occupations):
            if self.score_name:
                raise ConfigError("words.score_name", self.score_name, "no occupation has a score", "Leave it out")
        elif unscored:
            problem = "has no score, others have"
            raise ConfigError(
                "words.female_occupations, words.male_occupations", unscored[0], problem, "Give all or none"
            )
        elif not self.score_name:
            raise ConfigError("words.score_name", "", "the scores have no name", "Say what the scores are")

    @property
    def occupations(self) -> dict[str, float | None]:
        """All occupations with their scores."""
        return {**self.female_occupations, **self.male_occupations}

    @classmethod
    def builtin(cls) -> Self:
        """English words of this project; occupations by share of women among US workers."""
        data = load("mgbr_words").content
        return cls(
            tuple(data["feminine"]),
            tuple(data["masculine"]),
            {o["occupation"]: o["female_share"] for o in data["female_occupations"]},
            {o["occupation"]: o["female_share"] for o in data["male_occupations"]},
            score_name="female labour share",
            name="builtin",
        )

    @classmethod
    def bolukbasi(
        cls, path: str | Path | None = None, *, definitional: float = 0.3, stereotypical: float = 0.5
    ) -> Self:
        """The lists of Bolukbasi et al. 2016, which the paper uses. See `suites.mgbr.bolukbasi`.

        Parameters
        ----------
        path : path, optional
            Folder with the published files; without it they are fetched once and kept.
        definitional, stereotypical : float
            An occupation's definitional rating is at most the one, its stereotypical rating at
            least the other, both in absolute value. The paper does not print its limits.
        """
        for name, limit in (("definitional", definitional), ("stereotypical", stereotypical)):
            if not isinstance(limit, int | float) or not 0 < limit <= 1:
                raise ConfigError(f"words.{name}", limit, "not a rating's size", "Give a value above 0, at most 1")
        published = read_lists(path)
        gendered = {*published.feminine, *published.masculine}
        professions = [p for p in published.professions if p.word not in gendered]
        female, male = choose_occupations(professions, definitional=definitional, stereotypical=stereotypical)
        return cls(
            published.feminine,
            published.masculine,
            female,
            male,
            score_name="stereotypical rating",
            name=f"bolukbasi(definitional<={definitional:g}, stereotypical>={stereotypical:g})",
            sources={file.name: file.sha256 for file in FILES.values()},
            left_out={
                **published.left_out,
                "an occupation with a gender": len(published.professions) - len(professions),
            },
        )

    @classmethod
    def from_config(cls, value: WordLists | str | Mapping[str, Any]) -> WordLists:
        """Lists as a config names them.

        ``"builtin"``; ``"bolukbasi"``; ``{"bolukbasi": FOLDER}`` (True: fetched), which may set
        ``definitional`` and ``stereotypical``; or a table with the four lists, where
        occupations are a list of words or a table of scores.
        """
        if isinstance(value, WordLists):
            return value
        if value == "builtin":
            return cls.builtin()
        if value == "bolukbasi":
            return cls.bolukbasi()
        if isinstance(value, Mapping):
            return cls._from_published(value) if "bolukbasi" in value else cls._from_table(value)
        raise ConfigError(
            "words", value, "no word lists of that name", "Give 'builtin', 'bolukbasi' or a table of lists"
        )

    @classmethod
    def _from_published(cls, table: Mapping[str, Any]) -> Self:
        folder, limits = table["bolukbasi"], {name: v for name, v in table.items() if name != "bolukbasi"}
        if folder is not True and not isinstance(folder, str | Path):
            raise ConfigError("words.bolukbasi", folder, "not a folder", "Give a path, or true to fetch the files")
        if unknown := sorted(set(limits) - {"definitional", "stereotypical"}):
            raise ConfigError("words", unknown, "no such field", "Beside bolukbasi: definitional, stereotypical")
        return cls.bolukbasi(None if folder is True else folder, **limits)

    @classmethod
    def _from_table(cls, table: Mapping[str, Any]) -> Self:
        known = {f.name for f in fields(cls)} - {"sources", "left_out"}
        if unknown := sorted(set(table) - known):
            raise ConfigError("words", unknown, "no such field", f"Fields are {', '.join(sorted(known))}")
        if absent := [name for name in _LISTS if name not in table]:
            raise ConfigError("words", sorted(table), f"{', '.join(absent)} missing", "Give all four lists")
        return cls(**table)

    def signature(self) -> dict[str, Any]:
        """Name, sizes, sources and a hash of every word and score."""
        content = [self.feminine, self.masculine, dict(self.female_occupations), dict(self.male_occupations)]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode("utf-8")).hexdigest()
        return {
            "name": self.name,
            "sha256": digest,
            "feminine": len(self.feminine),
            "masculine": len(self.masculine),
            "female_occupations": len(self.female_occupations),
            "male_occupations": len(self.male_occupations),
            "score": self.score_name,
            "sources": dict(self.sources),
            "left_out": dict(self.left_out),
        }


def _words(kind: str, given: Any) -> tuple[str, ...]:
    """The words of a list, or of a table of scores; those of a set sorted."""
    hint = "Give a list of words" + (" or a table word = score" if kind in _SCORED else "")
    table = isinstance(given, Mapping) and kind not in _SCORED
    if isinstance(given, str) or not isinstance(given, Iterable) or table:
        raise ConfigError(f"words.{kind}", given, "not a list of words", hint)
    words = tuple(given)
    for word in words:
        if not isinstance(word, str):
            raise ConfigError(f"words.{kind}", word, "not a plain word", hint)
    return tuple(sorted(words)) if isinstance(given, set | frozenset) else words
