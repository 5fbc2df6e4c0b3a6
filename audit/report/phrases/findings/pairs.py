"""How pairs of models compare in the suites' leading figures: a row for each pair and figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audit.report.figures import Figures
from audit.report.formatting import measure_label, one_line, with_interval
from audit.report.phrases.counted import enumeration
from audit.report.phrases.findings.comparisons import interval_behind
from audit.results import VERDICT_WORDS, Comparison, Verdict

ROWS = 12  # of more pairs, those that differ most are shown

#: The verdict on a pair of models, b against a.
PAIR_SENTENCES: Mapping[Verdict, str] = {
    "larger": "{b} is higher than {a}{by}",
    "smaller": "{b} is lower than {a}{by}",
    "equivalent": "{a} and {b} are equivalent within ±{margin}",
    "inconclusive": "{a} and {b}: neither a difference nor equivalence is shown",
    "not comparable": "{a} and {b} cannot be compared",
}


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One pair on one figure: ``b − a``, the condition, the difference with the interval behind the verdict."""

    suite: str
    condition: str
    pair: str
    difference: str
    verdict: str
    remark: str


@dataclass(frozen=True, slots=True)
class ComparisonRows:
    """The rows to show; ``left_out`` counts the others by verdict, "" for none."""

    rows: Sequence[ComparisonRow]
    left_out: str


def comparison_rows(figures: Figures) -> ComparisonRows:
    """Every pair on every leading figure; of many, those that differ most."""
    found = [
        (one_line(info.title), label, c)
        for info in figures.result.suites
        for label, c in leading_pairs(figures, info.name)
    ]
    kept = found if len(found) <= ROWS else sorted(found, key=lambda row: -_apart(row[2]))[:ROWS]
    shown = [row for row in found if any(row is one for one in kept)]
    counts = Counter(_verdict_word(c) for *_, c in found if not any(c is one for *_, one in shown))
    left_out = f"{enumeration(f'{n:,} {word}' for word, n in counts.items())} more in comparisons.csv" if counts else ""
    return ComparisonRows([_row(*row) for row in shown], left_out)


def leading_pairs(figures: Figures, suite: str) -> list[tuple[str, Comparison]]:
    """The comparisons of the leading figures, each with what distinguishes it from the others."""
    leading = figures.leading(suite)
    several = len({one.measure for one in leading}) > 1
    return [
        (", ".join(filter(None, [measure_label(one.measure) if several else "", one.label])), c)
        for one in leading
        for c in figures.comparisons(suite, one.measure, one.where)
    ]


def _apart(c: Comparison) -> float:
    """How clearly a pair differs: decided differences first, then by size."""
    decided = c.verdict in ("larger", "smaller")
    return (2.0 if decided else 0.0) + min(abs(c.difference or 0.0), 1.0)


def _row(suite: str, condition: str, c: Comparison) -> ComparisonRow:
    low, high, _ = interval_behind(c)
    difference = with_interval(c.difference, low, high) if c.verdict != "not comparable" else ""
    return ComparisonRow(
        suite, condition, f"{one_line(c.b)} − {one_line(c.a)}", difference, _verdict_word(c), "; ".join(_remarks(c))
    )


def _verdict_word(c: Comparison) -> str:
    return "identical" if c.identical else VERDICT_WORDS[c.verdict]


def _remarks(c: Comparison) -> list[str]:
    """What a reader must know of this verdict, in a few words each."""
    said = []
    if c.identical:
        said.append(f"the same on all {c.n_items:,} questions")
    elif c.verdict == "equivalent":
        said.append(f"within ±{c.margin:g}")
    elif c.verdict == "inconclusive" and c.minimum_detectable_effect:
        said.append(f"{c.minimum_detectable_effect:.2g} or more would be found")
    if c.open_because == "missing answers":
        said.append(f"{c.n_missing:,} missing answers could decide it")
    if c.within_noise and not c.identical:
        said.append("less than between engines")
    return said
