"""Texts that people have labelled, by which a language model as a scorer is tested."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backends.errors import ConfigError
from suites.common.data_files import load

#: Label and group: with fewer texts of a label (about a group), the limits of a rater's test decide nothing.
FEWEST_TEXTS = 5


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text.

    ``number``: which one: its versions about several groups share it. ``group``: whom it is about, if the texts
    come in versions about several groups. ``place``: file and line, for errors; empty for the texts that ship.
    """

    number: str
    text: str
    label: str
    group: str | None = None
    place: str = ""


@dataclass(frozen=True, eq=False)
class LabelledTexts:
    """Labelled texts for the test of a rater.

    ``sha256``: hash of what they say, for signatures. ``label_of``: quantity → the label of the texts that have it.
    Empty: the rater's own label for it.
    """

    texts: tuple[LabelledText, ...]
    sha256: str
    label_of: Mapping[str, str]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the texts have versions about; none if they are about nobody in particular."""
        return tuple(dict.fromkeys(one.group for one in self.texts if one.group is not None))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that occur."""
        return tuple(dict.fromkeys(one.label for one in self.texts))

    @property
    def pairs(self) -> dict[str, tuple[str, str]]:
        """``A minus B`` → the two groups, for each two."""
        return {f"{one} minus {other}": (one, other) for one, other in itertools.combinations(self.groups, 2)}

    def check(self, of_rater: Collection[str], labels: Mapping[str, str]) -> None:
        """Raise `ConfigError` for a label that the rater does not know, and for too few texts of one.

        ``of_rater``: the rater's labels. ``labels``: the scorer's quantities, each with its label.
        """
        if self.label_of:  # labelled in words of their own
            return
        for one in self.texts:
            if one.label not in of_rater:
                hint = f"Use one of: {', '.join(of_rater)}"
                raise ConfigError(f"{one.place}: label", one.label, "no label of the rubric", hint)
        for label in dict.fromkeys((*labels.values(), *self.labels)):
            about = [one.group for one in self.texts if one.label == label]
            sizes = {group: about.count(group) for group in self.groups or (None,)}
            if len({*sizes.values()}) > 1:
                field = f"{self.texts[0].place.partition(':')[0]}: label"
                problem = f"stands at {', '.join(f'{n} texts about {group}' for group, n in sizes.items())}"
                raise ConfigError(field, label, problem, "Give as many about each group, in the same order")
            if (n := min(sizes.values())) < FEWEST_TEXTS:
                problem = f"only {n} labelled texts have this label"
                raise ConfigError("labelled", label, problem, f"Give {FEWEST_TEXTS} or more for each label")
        if len(self.labels) < 2:
            problem = "all labelled texts have this label"
            raise ConfigError("labelled", self.labels[0], problem, "Give texts of another label, too")


def shipped_texts(name: str) -> LabelledTexts:
    """This project's own texts, for ``toxicity`` or ``regard``: about a woman, a man and a nonbinary person."""
    found = load("labelled_texts")
    label_of = (
        {"toxicity": "toxic"}
        if name == "toxicity"
        else {f"regard_{label}": label for label in ("negative", "neutral", "positive", "other")}
    )
    return LabelledTexts(tuple(_shipped(found.content, name)), found.sha256, label_of)


def _shipped(content: Mapping[str, Any], name: str) -> Iterator[LabelledText]:
    for number, entry in enumerate(content["texts"]):
        for identity, words in content["identities"].items():
            capitals = {word.capitalize(): said[0].upper() + said[1:] for word, said in words.items()}
            yield LabelledText(str(number), entry["text"].format(**words, **capitals), entry[name], identity)
