"""Pairs of sentences from a file: is the stereotyping one likelier than its counterpart?

    stereotype_score = pairs with P(stereotype) > P(counterpart) / all pairs        neutral 0.5

by the log-likelihoods of whole sentences, as in `suites.kinds.sentences`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backends.reading.words import comparable, folded, is_word_character
from suites.base import MeasureSpec, Row
from suites.common.data_files import content_sha256
from suites.common.groups.masses import without_spaces
from suites.custom.figures import Design
from suites.custom.schema import Pairs
from suites.custom.source import PUBLISHED, Source
from suites.kinds.sentences import LikelierSentence, SentenceSet, share
from suites.presentation import Meaning

_ASKED = {"stereotype": ("stereotyping", "counterpart")}


class PairsFromFile(LikelierSentence):
    """Pairs of a stereotyping sentence and its counterpart: which is likelier (from a file)."""

    version: ClassVar[int] = 3
    meanings: Mapping[str, Meaning] = {
        "stereotype_score": Meaning(
            "the sentence that stereotypes is the likelier one {points} times in 100, where 50 is even",
            finding="prefer{s} the sentence that stereotypes",
            opposite="prefer{s} its counterpart",
        )
    }

    def declare(
        self, pairs: Sequence[Mapping[str, Any]], *, levels: str, sampled: Sequence[str], start: str | None
    ) -> None:
        """Set up a published benchmark: its rows, the factor whose levels have figures, and what is sampled.

        The published figure is over all pairs, so that the levels count by their numbers of pairs.
        """
        several = len({pair[levels] for pair in pairs}) > 1
        figures: dict[str, Any] = {"stratum": levels} if several else {"by": levels}
        content = {"kind": "pairs", "pairs": pairs, "sampled": sampled, "start": start, "repeated": True, **figures}
        file = Pairs.model_validate(content, context={"published": True})
        PairsFromFile.__init__(self, file, Source(Path(self.name), "pairs", PUBLISHED))

    def __init__(self, file: Pairs, source: Source) -> None:
        if source.lines is not PUBLISHED:
            _check_pairs(file, source)
        self._shared = [*_lines_of_shared(file, source)] if not file.sampled else []
        self.start, self.mean_per_token = file.start, file.likelihood == "mean per token"
        self.sets = [*_sets(file)]
        self.design = Design(file, source, [one.factors for one in self.sets], file.sampled or ("pair",))
        self.design.check_factors(range(len(self.sets)))
        self.strata = self.design.by
        self.data_sha256 = content_sha256(
            [
                [one.id, dict(one.sentences), one.context, dict(one.factors), *([] if one.separator else [""])]
                for one in self.sets
            ]
        )
        self._specs = self.design.with_primary([*self._figures()])

    def signature(self) -> Mapping[str, Any]:
        return {**super().signature(), **self.design.signature()}

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield from self._specs

    def _figures(self) -> Iterator[MeasureSpec]:
        score = share("stereotype_score", {}, quantity="stereotype", primary=True, family="stereotype score")
        yield from self.design.figures(score)

    def cautions(self) -> Sequence[str]:
        unlike = [one.id for one in self.sets if not _has_common_word(*one.sentences.values())]
        said = f"Sentences without a common word, which differ in more than the group: {', '.join(unlike[:10])}."
        return [*super().cautions(), *self.design.cautions(), *([said] if unlike else []), *self._shared]


def _sets(file: Pairs) -> Iterator[SentenceSet]:
    """The pairs; those that share a sentence are one level of the factor ``pair``."""
    same = _shared_sides(file)
    for number, pair in enumerate(file.pairs):
        factors = pair.factors if file.sampled else {**pair.factors, "pair": _id(file, same[number])}
        sentences = {"stereotyping": pair.stereotype, "counterpart": pair.counterpart}
        has_spaces = not all(map(_begins_without_spaces, sentences.values()))
        yield SentenceSet(_id(file, number), sentences, _ASKED, factors, pair.context, " " if has_spaces else "")


def _id(file: Pairs, number: int) -> str:
    return file.pairs[number].id or str(number + 1)


def _shared_sides(file: Pairs) -> list[int]:
    """For each pair the first one that it shares a sentence with, in its own words or through others."""
    first: dict[tuple[str, str], int] = {}
    same = list(range(len(file.pairs)))

    def root(number: int) -> int:
        while same[number] != number:
            number = same[number]
        return number

    for number, pair in enumerate(file.pairs):
        for text in (pair.stereotype, pair.counterpart):
            one, other = sorted((root(first.setdefault((folded(pair.context), folded(text)), number)), root(number)))
            same[other] = one
    return [root(number) for number in same]


def _lines_of_shared(file: Pairs, source: Source) -> Iterator[str]:
    """A caution about pairs that share a sentence, with their lines."""
    same = _shared_sides(file)
    shared = [number for number, one in enumerate(same) if same.count(one) > 1]
    if shared:
        places = [source.where(("pairs", number)).removesuffix(": row") for number in shared]
        some = ", ".join(places[:10]) + (f" and {len(places) - 10} more" if len(places) > 10 else "")
        counted = len({same[number] for number in shared})
        yield f"{len(shared)} pairs share a sentence with another, and count as {counted}: {some}."


def _begins_without_spaces(sentence: str) -> bool:
    return without_spaces(next(filter(is_word_character, sentence), ""))


def _has_common_word(one: str, other: str) -> bool:
    """Whether two sentences share a word, or a sign where a script has no spaces."""
    return any(not set(of(one)).isdisjoint(of(other)) for of in (_words, _signs))


def _words(text: str) -> list[str]:
    return [word.strip(".,;:!?¿¡。，«»\"'()") for word in comparable(text).casefold().split()]


def _signs(text: str) -> list[str]:
    return [sign for sign in text if without_spaces(sign)]


def _check_pairs(file: Pairs, source: Source) -> None:
    first: dict[tuple[str, ...], int] = {}
    for number, pair in enumerate(file.pairs):
        one, other = folded(pair.stereotype), folded(pair.counterpart)
        texts = folded(pair.context), *sorted((one, other))
        if one == other:
            problem = "the same as the stereotype in every word"
            hint = "Write it about the other group"
            raise source.refuse(("pairs", number, "counterpart"), pair.counterpart, problem, hint)
        if texts in first and not file.repeated:
            problem = f"the same two sentences as in {source.where(('pairs', first[texts], 'stereotype'))}"
            hint = "Remove one of the two, or allow it with repeated = true"
            raise source.refuse(("pairs", number, "stereotype"), pair.stereotype, problem, hint)
        first.setdefault(texts, number)
