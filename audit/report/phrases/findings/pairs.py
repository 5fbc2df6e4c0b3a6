"""How pairs of models compare in a suite's leading figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from audit.report.figures import Figures
from audit.report.formatting import measure_label, number, one_line
from audit.report.phrases.counted import enumeration, verb
from audit.report.phrases.findings.comparisons import decided_interval, over, signed
from audit.report.phrases.findings.reach import rests_on
from audit.results import Comparison, Verdict, where_key

LISTED = 4  # more pairs than this are counted, not listed

#: The verdict on a pair of models, b against a.
PAIR_SENTENCES: Mapping[Verdict, str] = {
    "larger": "{b} is higher than {a}{by}",
    "smaller": "{b} is lower than {a}{by}",
    "equivalent": "{a} and {b} are tied: equivalent within ±{margin}",
    "inconclusive": "{a} and {b}: inconclusive, neither a difference nor equivalence is shown",
    "not comparable": "{a} and {b} cannot be compared",
}
_IDENTICAL = "{a} and {b} are the same on all {n:,} questions"


def compared_in_short(figures: Figures) -> list[str]:
    """How the models compare in each suite's headline figure: how many pairs differ, and the largest difference."""
    said = []
    for info in figures.result.suites:
        pairs = leading_pairs(figures, info.name)
        if pairs:
            populations = {c.population for _, c in pairs}
            whom = one_line(over(populations.pop())) if len(populations) == 1 else ""
            said.append(f"{one_line(info.title)}, {compared_figures(pairs)}{whom}: {compared(pairs, short=True)}")
    return said


def leading_pairs(figures: Figures, suite: str) -> list[tuple[str, Comparison]]:
    """The comparisons of the leading figures, each with what distinguishes it from the others."""
    leading = figures.leading(suite)
    several = len({one.measure for one in leading}) > 1
    return [
        (", ".join(filter(None, [measure_label(one.measure) if several else "", one.label])), c)
        for one in leading
        for c in figures.comparisons(suite, one.measure, one.where)
    ]


def compared_figures(pairs: Sequence[tuple[str, Comparison]]) -> str:
    """What the comparisons are of: a measure, or how many."""
    measures = list(dict.fromkeys(c.measure for _, c in pairs))
    return measure_label(measures[0]) if len(measures) == 1 else f"{len(measures)} measures"


def compared(pairs: Sequence[tuple[str, Comparison]], short: bool = False) -> str:
    """Each pair's verdict; the counts when there are many, or in ``short``."""
    if len(pairs) <= (1 if short else LISTED):
        said: dict[str, list[str]] = {}
        for condition, c in pairs:
            said.setdefault(_pair(c), []).append(condition)
        if len(said) == 1:
            return next(iter(said))  # of all the conditions that stand before it
        return " ".join(f"{'; '.join(c)}: {text}" if any(c) else text for text, c in said.items())
    counts = Counter(c.verdict for _, c in pairs)
    parts = [
        (counts["larger"] + counts["smaller"], "differs", "differ"),
        (counts["equivalent"], "is tied (equivalent within the margin)", "are tied (equivalent within the margin)"),
        (counts["inconclusive"], "is inconclusive", "are inconclusive"),
        (counts["not comparable"], "cannot be compared", "cannot be compared"),
    ]
    verdicts = enumeration(verb(*part) for part in parts if part[0])
    # A pair of models has one comparison for each condition.
    several = len({(c.measure, where_key(c.where)) for _, c in pairs}) > 1
    counted = f"of {len(pairs)} {'comparisons' if several else 'pairs of models'}, {verdicts}."
    different = [(w, c) for w, c in pairs if c.verdict in ("larger", "smaller") and c.difference is not None]
    if not different:
        return counted
    condition, largest = max(different, key=lambda wc: abs(wc[1].difference or 0.0))
    noisy = sum(c.within_noise for _, c in different)
    tail = (
        f" {verb(noisy, 'of these differences is', 'of these differences are')} smaller than the engines' noise."
        if noisy
        else ""
    )
    place = f" ({condition})" if condition else ""
    return f"{counted} Furthest apart{place}: {_pair(largest)}{tail}"


def _verdict_words(c: Comparison) -> str:
    """The verdict on one pair, as a clause."""
    return (_IDENTICAL if c.identical else PAIR_SENTENCES[c.verdict]).format(
        n=c.n_items,
        a=one_line(c.a),
        b=one_line(c.b),
        by="" if c.difference is None else f" by {number(abs(c.difference), 3)}",
        margin=f"{c.margin:g}",
    )


def _pair(c: Comparison) -> str:
    """The verdict on one pair, with the interval that decided."""
    sentence = _verdict_words(c)
    if c.verdict != "not comparable" and not c.identical and c.low is not None and c.high is not None:
        sentence += f" ({_direction(c)}{decided_interval(c)})"
    if c.verdict != "not comparable" and (rests := rests_on(c.levels)):
        sentence += f"; this {rests}"
    noise = c.within_noise and c.verdict != "not comparable"
    return sentence + ("; the difference is smaller than the engines' noise." if noise else ".")


def _direction(c: Comparison) -> str:
    """Which of the two the numbers are of, less the other, where the verdict does not say it."""
    if c.verdict not in ("inconclusive", "equivalent") or c.difference is None:
        return ""
    return f"{one_line(c.b)} minus {one_line(c.a)} {signed(c.difference)}, "
