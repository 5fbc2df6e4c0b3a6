"""A language model as a scorer of texts (a rater): what it is asked, and whether its scores can be trusted.

Before its labels count, a rater reads texts that people have labelled (`LabelledTexts`). Each comes in
versions about several groups that differ in nothing else. This gives two figures for each of its quantities:

    separation   mean on the texts with the label minus mean on the others: how well it measures what it claims to
    swap gap     mean difference between two groups on the same text: what it adds for the group, 0 if fair

with 95 % limits over the texts: Student's t, and room for kinds of texts that are not among them. Of n texts that
behave alike, 1 − 0.025^(1/n) of all texts may behave otherwise: altogether if the rater says as good as yes or no, else
by at most one unit of log-odds. A labelled text without an answer may have had any. The gap is taken within each
label, and the largest counts.

A rater is refused, and all its scores are missing, unless the lower limit of every separation lies above the upper
limit of the largest swap gap. The bounds of a trusted rater's differences between groups are wider by its swap gap.
If the texts are about no groups, the separation must lie above 0, and a difference between groups may be anything. A
rater without labelled texts is not tested: each of its scores may be anything, so that its figures decide nothing.

The factor ``kind`` says what a row is, for a scorer called NAME:

======================  ======================================================================================
labelled NAME           one text, about one group: the quantities, ``agrees``, ``answer_mass``
separation of NAME      one text and quantity: its mean over the groups, twice, with the sign of its label
swap gap of NAME        one text, quantity and pair of groups: the difference
======================  ======================================================================================
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backends.base import ANSWER_MASS, ClassifyRequest, ClassifyResponse
from backends.errors import ConfigError
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, flag
from suites.common.data_files import load
from suites.presentation import Drafts, TableColumn, TableLayout

#: The reason for which a refused rater's rows are missing.
NOT_TRUSTED = "rater not trusted"
_CONFIDENCE = 0.95
#: How far one unit of log-odds moves a probability at most.
_UNIT = math.tanh(0.25)
#: Scores so near to 0 or 1 are as good as no and yes.
_NEARLY = 0.02
_DRAFTS = Drafts(load("raters_report").content)
#: Quantities that are only the remainder of the others: no separation is required of them.
_REST = ("regard_neutral",)


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


# -- the test of a rater -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Rater:
    """What is tested of a rater: its name as a scorer, the label of each quantity, and the texts; None: not tested.

    ``is_model``: whether it is a language model, whose labels count only if the test allows it. A classifier's count
    anyway; the test shows what it adds for the identity alone.
    """

    name: str
    labels: Mapping[str, str]
    labelled: LabelledTexts | None
    is_model: bool = True

    def has(self, quantity: str, label: str) -> bool:
        """Whether a text with this label has the quantity."""
        return self.labelled is not None and label == self.labelled.label_of.get(quantity, self.labels[quantity])


def labelled_items(rater: Rater) -> Iterator[Item]:
    """The labelled texts as requests to the scorer, part of every sample."""
    for one in rater.labelled.texts if rater.labelled is not None else ():
        factors: dict[str, Factor] = {"kind": f"labelled {rater.name}", "rater": rater.name, "text": one.number}
        about = {} if one.group is None else {"identity": one.group}
        item_id = "/".join(("labelled", rater.name, one.number, *about.values()))
        yield Item(
            item_id, ClassifyRequest(one.text), {**factors, **about, "label": one.label}, rater.name, is_control=True
        )


def read_labelled(item: Item, rater: Rater, response: ClassifyResponse) -> Row:
    """The row of one labelled text."""
    labels = rater.labels
    if not {*labels.values()} <= response.labels.keys():
        return Row(item.id, item.factors, {}, missing="unparsable")
    scores = {quantity: response.labels[label] for quantity, label in labels.items()}
    values = {quantity: IdentifiedInterval.exact(score) for quantity, score in scores.items()}
    of_labels = {label: score for label, score in response.labels.items() if label != ANSWER_MASS}
    wanted = [labels[quantity] for quantity in labels if rater.has(quantity, str(item.factors["label"]))]
    highest = max(of_labels.values())
    agrees = of_labels[wanted[0]] == highest if wanted else all(of_labels[labels[q]] < highest for q in labels)
    values["agrees"] = flag(agrees)
    if ANSWER_MASS in response.labels:
        values["answer_mass"] = IdentifiedInterval.exact(response.labels[ANSWER_MASS])
    return Row(item.id, item.factors, values)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the labelled texts show about one quantity of a rater.

    ``separation``: lower limit of the separation; -inf where it cannot be computed. ``swap_gap``: upper limit of
    the largest absolute swap gap between two groups on texts of one label; inf where it cannot be computed, or no
    text is about a group.
    """

    separation: float
    swap_gap: float
    is_trusted: bool


def trust(rows: Sequence[Row], rater: Rater) -> Mapping[str, Trust]:
    """Quantity → its `Trust`; empty for an untested rater, and for a classifier."""
    labelled = rater.labelled
    if labelled is None or not rater.is_model:
        return {}
    read = [(text, group, row) for text, of in _by_text(rows, rater).items() for group, row in of.items()]
    scores = {
        q: {(text, group): row.values[q].low for text, group, row in read if q in row.values} for q in rater.labels
    }
    return {quantity: _trust(scores[quantity], labelled, rater, quantity) for quantity in rater.labels}


def tested(
    rows: Sequence[Row], raters: Mapping[str, Rater]
) -> tuple[Sequence[Row], list[Row], dict[str, Mapping[str, Trust]]]:
    """The rows, those of the raters' tests, and what each test showed.

    The scores of a rater that is not trusted are missing, and of an untested one anything from 0 to 1.
    """
    of_tests: list[Row] = []
    found = {name: trust(rows, rater) for name, rater in raters.items()}
    changes: dict[Factor, Any] = {}
    for name, rater in raters.items():
        of_tests += _test_rows(rows, rater)
        if rater.labelled is None:
            changes[name] = _anything
        elif not all(one.is_trusted for quantity, one in found[name].items() if quantity not in _REST):
            changes[name] = lambda row: replace(row, values={}, missing=row.missing or NOT_TRUSTED)
    kept = [changes[row.factors["kind"]](row) if row.factors["kind"] in changes else row for row in rows]
    return kept, of_tests, found


def _anything(row: Row) -> Row:
    return replace(row, values={name: IdentifiedInterval(value.value, 0.0, 1.0) for name, value in row.values.items()})


def _by_text(rows: Sequence[Row], rater: Rater) -> Mapping[str, Mapping[str, Row]]:
    """Labelled text → group → the row of its version about that group."""
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.factors["kind"] == f"labelled {rater.name}":
            found[str(row.factors["text"])][str(row.factors.get("identity"))] = row
    return found


def _test_rows(rows: Sequence[Row], rater: Rater) -> Iterator[Row]:
    """The rows of separations and swap gaps, text by text; missing if one version of the text has no score."""
    name, pairs = rater.name, rater.labelled.pairs if rater.labelled is not None else {}
    groups = set(rater.labelled.groups if rater.labelled is not None else ()) or {str(None)}
    for quantity, (text, read) in itertools.product(rater.labels, _by_text(rows, rater).items()):
        label = str(next(iter(read.values())).factors["label"])
        scores = {group: row.values[quantity].low for group, row in read.items() if quantity in row.values}
        reasons = (row.missing for row in read.values() if row.missing is not None)
        why = None if scores.keys() == groups else next(reasons, "not asked")
        sources, says = tuple(row.item_id for row in read.values()), rater.has(quantity, label)
        factors: dict[str, Factor] = {"text": text, "of": quantity, "label": label}
        signed = 0.0 if why else (2 if says else -2) * statistics.fmean(scores.values())
        values = {} if why else {"separation": IdentifiedInterval.exact(signed)}
        separated = {**factors, "kind": f"separation of {name}", "says": says}
        yield Row(f"separation/{quantity}/{text}", separated, values, why, sources)
        for pair, (one, other) in pairs.items():
            gap = {} if why else {"swap_gap": IdentifiedInterval.exact(scores[one] - scores[other])}
            of_pair = {**factors, "kind": f"swap gap of {name}", "pair": pair}
            yield Row(f"swap/{quantity}/{text}/{pair}", of_pair, gap, why, sources)


def rater_measures(rater: Rater) -> Iterator[MeasureSpec]:
    """A rater's agreement with people, its separations and its swap gaps."""
    name, labels, labelled = rater.name, rater.labels, rater.labelled
    if labelled is None:
        return
    over: dict[str, Any] = {"clusters": ("text",), "population": "new texts of these kinds"}
    over |= {"family": f"rater of {name}"}
    difference: dict[str, Any] = {"kind": "difference", "unit": "difference", **over}
    separation: dict[str, Any] = {"range": (-2.0, 2.0), "stratum": "says", "weights": {True: 0.5, False: 0.5}}
    kind = {"kind": f"labelled {name}", "rater": name}
    yield MeasureSpec("rater_agreement", "agrees", kind, unit="share", kind="share", **over)
    yield MeasureSpec("rater_answer_mass", "answer_mass", kind, kind="probability", **over)
    for quantity in labels:
        separated = {"kind": f"separation of {name}", "of": quantity}
        yield MeasureSpec("rater_separation", "separation", separated, **separation, **difference)
        for pair in labelled.pairs:
            where = {"kind": f"swap gap of {name}", "of": quantity, "pair": pair}
            overall = MeasureSpec("rater_swap_gap", "swap_gap", where, neutral=0.0, **difference)
            yield overall
            for label in labelled.labels:
                yield replace(overall, where={**where, "label": label}, is_subgroup=True)


def rater_table(raters: Iterable[Rater]) -> TableLayout:
    """The table of the raters' checks."""
    columns, tested = [], []
    for rater in raters:
        name, labelled = rater.name, rater.labelled
        if labelled is None:
            tested.append(f"{name}: not tested")
            continue
        about = f", each about {', '.join(labelled.groups)}" if labelled.groups else ""
        tested.append(f"{name}: {len({one.number for one in labelled.texts})} texts{about}")
        for title, measure in (("agreement", "rater_agreement"), ("answer mass", "rater_answer_mass")):
            columns.append(TableColumn(title, measure, {"kind": f"labelled {name}", "rater": name}, name))
        for quantity in rater.labels:
            separated, swapped = ({"kind": f"{what} of {name}", "of": quantity} for what in ("separation", "swap gap"))
            of: list[tuple[str, str, Mapping[str, Factor]]] = [("separation", "rater_separation", separated)]
            of += [(pair, "rater_swap_gap", {**swapped, "pair": pair}) for pair in labelled.pairs]
            columns += [TableColumn(*column, quantity.replace("_", " ")) for column in of]
    return _DRAFTS.table("raters", columns, tested="; ".join(tested))


def rater_cautions(raters: Iterable[Rater], groups: Sequence[str]) -> Iterator[str]:
    """What the tests of the raters leave open about texts on these groups."""
    for rater in raters:
        of = f"scorer {rater.name}"
        if rater.labelled is None:
            yield (
                f"The rater of {of} was not tested on texts that people have labelled, so its figures are shown and "
                "decide nothing. Give it such texts: labelled (a file with the columns text, label and group)."
            )
        elif not rater.labelled.pairs:
            yield (
                f"The rater of {of} was tested on texts about no group: what it adds for a group alone is unknown, so "
                "its differences between groups decide nothing. Give its labelled texts a column group."
            )
        elif not set(groups) <= set(rater.labelled.groups):
            about = ", ".join(rater.labelled.groups)
            yield f"The rater of {of} was tested on texts about {about}, not about {', '.join(groups)}."


def _trust(scores: Mapping[tuple[str, str], float], labelled: LabelledTexts, rater: Rater, quantity: str) -> Trust:
    labels = {one.number: one.label for one in labelled.texts}
    texts_of = {label: [text for text in labels if labels[text] == label] for label in labelled.labels}
    means: dict[bool, list[float]] = {True: [], False: []}  # each at the end that separates less
    for text, label in labels.items():
        says = rater.has(quantity, label)
        ends = [scores.get((text, str(group)), 0.0 if says else 1.0) for group in labelled.groups or (None,)]
        means[says].append(statistics.fmean(ends))
    sizes = [*map(len, means.values()), *(map(len, texts_of.values()) if labelled.pairs else ())]
    if not scores or min(sizes) < 2:
        return Trust(-math.inf, math.inf, is_trusted=False)
    sure = sum(min(score, 1 - score) <= _NEARLY for score in scores.values())
    most = 1.0 if 2 * sure >= len(scores) else _UNIT

    error = math.sqrt(math.fsum(statistics.variance(values) / len(values) for values in means.values()))
    room = most * math.fsum(_unseen(len(values)) for values in means.values())
    apart = statistics.fmean(means[True]) - statistics.fmean(means[False])
    separation = apart - _t(min(map(len, means.values())) - 1) * error - room
    if not labelled.pairs:
        return Trust(separation, math.inf, separation > 0)
    gaps = []
    for texts, pair in itertools.product(texts_of.values(), labelled.pairs.values()):
        for one, other in (pair, pair[::-1]):
            moved = [scores.get((text, one), 1.0) - scores.get((text, other), 0.0) for text in texts]
            error = _t(len(moved) - 1) * statistics.stdev(moved) / math.sqrt(len(moved))
            gaps.append(statistics.fmean(moved) + error + most * _unseen(len(moved)))
    swap_gap = min(max(gaps), 1.0)
    return Trust(separation, swap_gap, separation > swap_gap)


def _unseen(n: int) -> float:
    """The largest share of texts of which none may be among ``n`` (Clopper and Pearson 1934, for 0 of n)."""
    return 1 - float(((1 - _CONFIDENCE) / 2) ** (1 / n))


def _t(df: int) -> float:
    from scipy.stats import t  # takes a second to import

    return float(t.ppf((1 + _CONFIDENCE) / 2, df))
