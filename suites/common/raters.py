"""A language model as a scorer of texts (a rater): what it is asked, and whether its scores can be trusted.

Before its labels count, a rater reads texts that people have labelled. Each comes in three versions, about a woman, a
man and a nonbinary person, that differ in nothing else. This gives two figures for each of its quantities:

    separation   mean on the texts with the label minus mean on the others: how well it measures what it claims to
    swap gap     mean difference between two identities on the same text: what it adds for the identity, 0 if fair

with 95 % limits over the texts (Student's t). A gap may show only on texts of one label (those that nobody finds
toxic), and the texts of an audit may all be of that kind: so it is taken within each label, and the largest counts. A
rater is refused, and all its scores are missing, unless the lower limit of every separation lies above the upper limit
of the largest swap gap: else what it adds for an identity could be as large as what it measures. A trusted rater still
has a swap gap, and a difference between groups is known only up to that gap (`Trust.swap_gap`): its bounds are that
much wider.

The factor ``kind`` says what a row is, for a scorer called NAME:

======================  ======================================================================================
labelled NAME           one text about one identity: the quantities, ``agrees``, ``answer_mass``
separation of NAME      one text and quantity: its mean over the identities, twice, with the sign of its label
swap gap of NAME        one text, quantity and pair of identities: the difference
======================  ======================================================================================
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backends.base import ANSWER_MASS, ClassifyRequest, ClassifyResponse
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, flag
from suites.common.data_files import load
from suites.presentation import Drafts, TableColumn, TableLayout

#: The reason for which a refused rater's rows are missing.
NOT_TRUSTED = "rater not believed"
_LABELLED = load("labelled_texts")
_CONFIDENCE = 0.95
_DRAFTS = Drafts(load("raters_report").content)
#: Quantities that are only the remainder of the others: no separation is required of them.
_REST = ("regard_neutral",)


def labelled_sha256() -> str:
    """The hash of the labelled texts, for signatures."""
    return _LABELLED.sha256


def labelled_items(name: str) -> Iterator[Item]:
    """The labelled texts as requests to the scorer ``name``, part of every sample."""
    for number, entry in enumerate(_LABELLED.content["texts"]):
        for identity, words in _LABELLED.content["identities"].items():
            capitals = {word.capitalize(): said[0].upper() + said[1:] for word, said in words.items()}
            text = entry["text"].format(**words, **capitals)
            factors: dict[str, Factor] = {
                "kind": f"labelled {name}",
                "text": str(number),
                "identity": identity,
                "label": entry[name],
            }
            yield Item(f"labelled/{name}/{number}/{identity}", ClassifyRequest(text), factors, name, is_control=True)


def read_labelled(item: Item, labels: Mapping[str, str], response: ClassifyResponse) -> Row:
    """The row of one labelled text. ``labels`` maps quantities to the rater's labels."""
    scores = {quantity: response.labels[label] for quantity, label in labels.items()}
    values = {quantity: IdentifiedInterval.exact(score) for quantity, score in scores.items()}
    of_labels = {label: score for label, score in response.labels.items() if label != ANSWER_MASS}
    wanted = [labels[quantity] for quantity in labels if _says(quantity, str(item.factors["label"]))]
    highest = max(of_labels.values())
    agrees = of_labels[wanted[0]] == highest if wanted else all(of_labels[labels[q]] < highest for q in labels)
    values["agrees"] = flag(agrees)
    if ANSWER_MASS in response.labels:
        values["answer_mass"] = IdentifiedInterval.exact(response.labels[ANSWER_MASS])
    return Row(item.id, item.factors, values)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the labelled texts show about one quantity of a rater.

    Attributes
    ----------
    separation : float
        Lower limit of the separation; -inf where it cannot be computed.
    swap_gap : float
        Upper limit of the largest absolute swap gap between two identities on texts of one label; inf where it cannot
        be computed.
    """

    separation: float
    swap_gap: float

    @property
    def is_trusted(self) -> bool:
        return self.separation > self.swap_gap


def trust(rows: Sequence[Row], name: str, labels: Mapping[str, str]) -> Mapping[str, Trust]:
    """Quantity → its `Trust`, from the labelled texts that were read about every identity."""
    return {quantity: _trust(_texts(rows, name, quantity)) for quantity in labels}


def refuse_untrusted(rows: Sequence[Row], name: str, found: Mapping[str, Trust]) -> list[Row]:
    """The rows; where the rater is not trusted, those of its scores become missing. Labelled texts stay as they are."""
    if all(one.is_trusted for quantity, one in found.items() if quantity not in _REST):
        return list(rows)
    own = (name, f"swapped {name}")
    return [
        replace(row, values={}, missing=row.missing or NOT_TRUSTED) if row.factors["kind"] in own else row
        for row in rows
    ]


def rater_rows(rows: Sequence[Row], name: str, labels: Mapping[str, str]) -> Iterator[Row]:
    """The rows of separations and swap gaps, text by text."""
    for quantity in labels:
        for text, read in _texts(rows, name, quantity).items():
            sources = tuple(row.item_id for row in read.rows)
            factors: dict[str, Factor] = {"text": text, "of": quantity, "label": read.label}
            signed = IdentifiedInterval.exact((2 if read.says else -2) * statistics.fmean(read.scores.values()))
            says = {**factors, "kind": f"separation of {name}", "says": read.says}
            yield Row(f"separation/{quantity}/{text}", says, {"separation": signed}, sources=sources)
            for pair, (one, other) in _pairs().items():
                gap = IdentifiedInterval.exact(read.scores[one] - read.scores[other])
                of_pair = {**factors, "kind": f"swap gap of {name}", "pair": pair}
                yield Row(f"swap/{quantity}/{text}/{pair}", of_pair, {"swap_gap": gap}, sources=sources)


def rater_measures(name: str, labels: Mapping[str, str], rows: Sequence[Row]) -> Iterator[MeasureSpec]:
    """A rater's agreement with people; and its separations and swap gaps, where it read texts about every identity."""
    over: dict[str, Any] = {
        "clusters": ("text",),
        "population": "new texts of these kinds",
        "family": f"rater of {name}",
    }
    difference: dict[str, Any] = {"kind": "difference", "unit": "difference", **over}
    labelled = {"kind": f"labelled {name}"}
    yield MeasureSpec("rater_agreement", "agrees", labelled, unit="share", kind="share", **over)
    yield MeasureSpec("rater_answer_mass", "answer_mass", labelled, kind="probability", **over)
    read = any(row.factors["kind"] == f"separation of {name}" for row in rows)
    for quantity in labels if read else ():
        separated = {"kind": f"separation of {name}", "of": quantity}
        halves: dict[Factor, float] = {True: 0.5, False: 0.5}
        yield MeasureSpec(
            "rater_separation", "separation", separated, range=(-2.0, 2.0), stratum="says", weights=halves, **difference
        )
        for pair in _pairs():
            where = {"kind": f"swap gap of {name}", "of": quantity, "pair": pair}
            overall = MeasureSpec("rater_swap_gap", "swap_gap", where, neutral=0.0, **difference)
            yield overall
            for label in dict.fromkeys(entry[name] for entry in _LABELLED.content["texts"]):
                yield replace(overall, where={**where, "label": label}, is_subgroup=True)


def rater_table(raters: Mapping[str, Mapping[str, str]]) -> TableLayout:
    """The table of the raters' checks; ``raters`` maps a scorer's name to its quantities' labels."""
    columns = []
    for name, labels in raters.items():
        labelled = {"kind": f"labelled {name}"}
        columns.append(TableColumn("agreement", "rater_agreement", labelled, name))
        columns.append(TableColumn("answer mass", "rater_answer_mass", labelled, name))
        for quantity in labels:
            title, of = quantity.replace("_", " "), {"of": quantity}
            columns.append(
                TableColumn("separation", "rater_separation", {"kind": f"separation of {name}", **of}, title)
            )
            columns += [
                TableColumn(pair, "rater_swap_gap", {"kind": f"swap gap of {name}", **of, "pair": pair}, title)
                for pair in _pairs()
            ]
    return _DRAFTS.table("raters", columns)


@dataclass(frozen=True, slots=True)
class _Text:
    """One labelled text: its label, whether that is the quantity's (``says``), and its score for each identity."""

    label: str
    says: bool
    scores: Mapping[str, float]
    rows: Sequence[Row]


def _texts(rows: Sequence[Row], name: str, quantity: str) -> dict[str, _Text]:
    by_text: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.factors["kind"] == f"labelled {name}" and quantity in row.values:
            by_text[str(row.factors["text"])][str(row.factors["identity"])] = row
    identities = set(_LABELLED.content["identities"])
    labels = {text: str(next(iter(read.values())).factors["label"]) for text, read in by_text.items()}
    return {
        text: _Text(
            labels[text],
            _says(quantity, labels[text]),
            {identity: row.values[quantity].low for identity, row in read.items()},
            list(read.values()),
        )
        for text, read in by_text.items()
        if set(read) == identities
    }


def _says(quantity: str, label: str) -> bool:
    """Whether a text with this label has the quantity: ``toxic`` has ``toxicity``, ``negative`` ``regard_negative``."""
    return label == {"toxicity": "toxic"}.get(quantity, quantity.removeprefix("regard_"))


def _pairs() -> dict[str, tuple[str, str]]:
    identities = list(_LABELLED.content["identities"])
    return {f"{one} minus {other}": (one, other) for one, other in itertools.combinations(identities, 2)}


def _trust(texts: Mapping[str, _Text]) -> Trust:
    means = {says: [statistics.fmean(t.scores.values()) for t in texts.values() if t.says == says] for says in (1, 0)}
    if min(map(len, means.values())) < 2:
        return Trust(-math.inf, math.inf)
    variances = [statistics.variance(values) / len(values) for values in means.values()]
    df = min(map(len, means.values())) - 1
    separation = statistics.fmean(means[1]) - statistics.fmean(means[0]) - _t(df) * math.sqrt(math.fsum(variances))
    gaps = []
    for label, (one, other) in itertools.product({t.label for t in texts.values()}, _pairs().values()):
        moved = [t.scores[one] - t.scores[other] for t in texts.values() if t.label == label]
        if len(moved) < 2:
            return Trust(separation, math.inf)
        error = _t(len(moved) - 1) * statistics.stdev(moved) / math.sqrt(len(moved))
        gaps.append(abs(statistics.fmean(moved)) + error)
    return Trust(separation, max(gaps))


def _t(df: int) -> float:
    from scipy.stats import t  # takes a second to import

    return float(t.ppf((1 + _CONFIDENCE) / 2, df))
