"""EEC: is an emotional sentence more surprising about a woman than about a man?

Kiritchenko & Mohammad 2018, "Examining Gender and Race Bias in Two Hundred Sentiment Analysis Systems" (*SEM): eleven
templates with persons and emotion words. Its authors compare the scores that sentiment systems give to pairs of
sentences; Tang et al. 2024 (Figure 1) compare a causal model's perplexities of the two sentences, and show that the
comparison is reversed when a template is reworded:

    ppd = (PPL(about her) − PPL(about him)) / (PPL(about her) + PPL(about him))        −1 to 1, neutral 0

with PPL = exp(−mean log-probability of the scored tokens), as in the authors' code. Only pairs that differ in a noun
phrase or pronoun are used (she and he, my aunt and my uncle); first names have no counterpart. The template that the
figure rewords is asked in both wordings, and ``rewording_effect`` is the change of ppd.

The corpus's authors ask that it not be redistributed: users get it from their page.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import backends.base as base
from backends.errors import ConfigError
from backends.options import checked_options
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row
from suites.common.data_files import Folder, PinnedFile, load, read_csv
from suites.common.gender_figures import contrast
from suites.common.probabilities import per_token
from suites.kinds.sentences import LikelierSentence, SentenceSet, by_level, share

CORPUS = PinnedFile("Equity-Evaluation-Corpus.csv", page="http://saifmohammad.com/WebPages/Biases-SA.html")
#: Her noun phrase → his.
PERSONS: Mapping[str, str] = {**load("eec").content["persons"], "her": "him", "she": "he"}
#: The template that Figure 1 rewords, and the other wording, with {subject} and {emotion}.
REWORDED_TEMPLATE: str = load("eec").content["reworded"]["template"]
REWORDING: str = load("eec").content["reworded"]["wording"]
_OVER: Mapping[str, Any] = {"clusters": ("person", "word"), "population": "new persons and words of these kinds"}
_DIFFERENCE: Mapping[str, Any] = {"unit": "difference", "kind": "difference", "neutral": 0.0}
_PUBLISHED: Mapping[str, Factor] = {"wording": "published"}
_EFFECT: Mapping[str, Factor] = {"wording": "effect"}


class EEC(LikelierSentence):
    """Emotional sentences about a woman, and the same about a man: which is more surprising (EEC).

    Parameters
    ----------
    folder : path
        Folder of ``Equity-Evaluation-Corpus.csv``, from its authors' page.
    start : str, optional
        A text before every sentence; None: the model's own start. See `suites.kinds.sentences`.
    """

    version = 2
    tie = IdentifiedInterval.exact(0.5)
    start_may_differ = True  # a perplexity, as in the authors' code, leaves the first token out
    strata = ("wording", "emotion")
    sampled_together = ("template", "person", "word")

    @checked_options
    def __init__(self, *, folder: Folder = None, start: str | None = None) -> None:
        rows = read_csv(CORPUS, folder)
        known = {"Sentence", "Template", "Person", "Gender", "Emotion", "Emotion word"} <= {*(rows and rows[0])}
        sets = list(_pairs(rows)) if known else []
        if not sets:
            hint = f"Take the file from {CORPUS.page} unchanged"
            raise ConfigError("folder", str(folder), f"{CORPUS.name} holds no pairs of sentences", hint)
        super().__init__(sets, start, hashlib.sha256(CORPUS.path(folder).read_bytes()).hexdigest())

    def read(self, item: Item, response: base.Response) -> Row:
        row = super().read(item, response)
        assert isinstance(item.request, base.ScoreRequest)
        assert isinstance(response, base.ScoreResponse)
        if row.missing is not None:
            return row
        of = dict(zip(item.request.continuations, map(per_token, response.scores), strict=True))
        about = self._by_id[item.id].sentences
        return replace(row, values={**row.values, "ppd": _ppd(of[about["female"]], of[about["male"]])})

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add what the rewording changes."""
        asked = {(row.factors["wording"], *map(row.factors.get, self.sampled_together)): row for row in rows}
        changes = [
            contrast(f"{row.item_id}#effect", row, other, {"ppd": "rewording_effect"}, {**row.factors, **_EFFECT})
            for (wording, *key), row in asked.items()
            if wording == "reworded" and (other := asked.get(("published", *key))) is not None
        ]
        return [*rows, *changes]

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        overall = MeasureSpec("ppd", "ppd", _PUBLISHED, family="ppd", primary=True, **_DIFFERENCE, **_OVER)
        yield overall
        yield from by_level(overall, "emotion", dict.fromkeys(one.factors["emotion"] for one in self.sets))
        for wording in ("published", "reworded"):
            where = {"template": REWORDED_TEMPLATE, "wording": wording}
            yield replace(overall, where=where, primary=False, family="by wording")
        reach: dict[str, Any] = {**_DIFFERENCE, "range": (-2.0, 2.0), "contrast": True, "family": "by wording"}
        yield MeasureSpec("rewording_effect", "rewording_effect", _EFFECT, **reach, **_OVER)
        yield share("female_likelier", _PUBLISHED, kind="probability", family="likelier", **_OVER)


def _pairs(rows: Sequence[Mapping[str, str]]) -> Iterator[SentenceSet]:
    """The pairs of the corpus, and those of the reworded template."""
    his = {(row["Template"], row["Emotion word"], row["Person"]): row["Sentence"] for row in rows}
    asked = {"female_likelier": ("female", "male")}
    for row in rows:
        template, word, person = row["Template"], row["Emotion word"], row["Person"]
        other = PERSONS.get(person, "")
        if row["Gender"] != "female" or (template, word, other) not in his:
            continue
        factors = {"template": template, "person": "she" if person == "her" else person}
        factors |= {"emotion": row["Emotion"] or "none", "word": word or "none"}
        number = f"{template}/{person}/{word or 'none'}"
        sentences = {"female": row["Sentence"], "male": his[template, word, other]}
        yield SentenceSet(number, sentences, asked, {**factors, **_PUBLISHED})
        if template == REWORDED_TEMPLATE:
            again = {gender: _reworded(who, word) for gender, who in (("female", person), ("male", other))}
            yield SentenceSet(f"{number}/reworded", again, asked, {**factors, "wording": "reworded"})


def _reworded(person: str, word: str) -> str:
    subject = {"her": "she", "him": "he"}.get(person, person)
    return REWORDING.format(subject=subject[0].upper() + subject[1:], emotion=word)


def _ppd(female: base.ContinuationScore, male: base.ContinuationScore) -> IdentifiedInterval:
    """(a − b) / (a + b) for two perplexities: tanh of half the difference of their logarithms."""

    def at(of_female: float | None, of_male: float | None, unknown: float) -> float:
        return unknown if of_female is None or of_male is None else math.tanh((of_male - of_female) / 2)

    low, high = at(female.high, male.low, -1.0), at(female.low, male.high, 1.0)
    value = None if female.logprob is None or male.logprob is None else at(female.logprob, male.logprob, 0.0)
    return IdentifiedInterval(value, low, high)
