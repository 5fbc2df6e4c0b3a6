"""The answer in plain sentences, each one true to the intervals and verdicts it speaks of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from audit.report.figures import Figures
from audit.report.formatting import bounded, figure, number
from audit.report.labels import measure_label
from audit.report.safe_text import one_line
from audit.results import VERDICT_WORDS, Comparison, Measure, Scalar, where_key

WEAK_COVERAGE = 0.1
_MISSED = 0.05  # with a larger share of answers missing, a figure says of how many it is
_LISTED = 4  # more models or pairs than this are counted, not listed


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement: what was found, the same by condition, how models compare, or what limits it."""

    kind: Literal["finding", "detail", "comparison", "caution"]
    text: str


def asked(figures: Figures) -> str:
    """What was asked of whom."""
    result = figures.result
    answers = sum(entry.answered for entry in result.data_quality)
    items = sum(entry.n_items for entry in result.data_quality)
    sample = "" if result.limit is None else f" This is a balanced sample of at most {result.limit} items a suite."
    return (
        f"{_count(len(result.models), 'model')} answered {answers:,} of {items:,} questions "
        f"from {_count(len(result.suites), 'suite')}: {_listed(one_line(s.title) for s in result.suites)}.{sample}"
    )


def summary(figures: Figures) -> list[Sentence]:
    """Findings first, then their details, comparisons, and what limits them."""
    result = figures.result
    sentences = []
    if not result.complete:
        sentences.append(Sentence("caution", "This run is incomplete: figures may change when it is finished."))
    for info in result.suites:
        sentences += suite_summary(figures, info.name, named=len(result.suites) > 1)
    sentences += [Sentence("caution", one_line(problem)) for problem in result.problems]
    order = ("finding", "detail", "comparison", "caution")
    return sorted(sentences, key=lambda s: order.index(s.kind))


def suite_summary(figures: Figures, suite: str, *, named: bool = False) -> list[Sentence]:
    """What is said of one suite, with its name in front if ``named``. Conditions that agree share a sentence."""
    title = next(one_line(s.title) for s in figures.result.suites if s.name == suite)
    prefix = f"{title}: " if named else ""
    found = [(n, w, ms) for n, w in figures.headline(suite) if (ms := figures.by_model(suite, n, w))]
    conditions = figures.distinguishing_labels(suite, found[0][0], [where for _, where, _ in found]) if found else []
    groups: list[list[int]] = []
    for i, (_, _, measures) in enumerate(found):
        if groups and _pattern(found[groups[-1][0]][2]) == _pattern(measures):
            groups[-1].append(i)
        else:
            groups.append([i])
    sentences = []
    for group in groups:
        told = [(conditions[i] if len(group) > 1 else "", m) for i in group for m in found[i][2]]
        subject = _subject(found[group[0]][0], [conditions[i] for i in group])
        sentences.append(Sentence("finding", f"{prefix}{subject}: {_finding(figures, told)}"))
    pairs = [(conditions[i], c) for i, (n, w, _) in enumerate(found) for c in figures.comparisons(suite, n, w)]
    if pairs:
        subject = _subject(found[0][0], conditions)
        sentences.append(Sentence("comparison", f"{prefix}{subject}: {_compared(pairs)}"))
    spoken = {(name, where_key(where)) for name, where, _ in found}
    counted = [
        Sentence("detail", f"{prefix}{_counted(figures, suite, chart, name, conditions)}")
        for chart, name, conditions in figures.judged_charts(suite)
        if not all((name, where_key(where)) in spoken for where in conditions)
    ]
    return sentences + (counted[:2] if named else counted) + list(_cautions(figures, suite))


def _counted(
    figures: Figures, suite: str, chart: Mapping[str, Any], measure: str, conditions: Sequence[Mapping[str, Scalar]]
) -> str:
    """For a chart with many conditions: in which of them each model lies on which side of neutral."""
    parts = []
    neutral = 0.0
    alpha = 1 - figures.result.confidence
    tested: list[bool] = []  # of each interval, whether a corrected p decides with it
    labels = figures.distinguishing_labels(suite, measure, list(conditions))
    for model in figures.models:
        found = [
            (condition, m)
            for condition, where in zip(labels, conditions, strict=True)
            if (m := figures.get(suite, measure, where, model)) is not None
        ]
        sides: dict[str, list[tuple[str, Measure]]] = {"below": [], "above": [], "open": [], "no interval": []}
        for condition, m in found:
            if m.neutral is not None and (m.value is not None or bounded(m)):
                sides[_sure_side(m, m.neutral, alpha)].append((condition, m))
        tested += [
            m.p_holm is not None
            for _, m in found
            if m.neutral is not None and (m.value is not None or bounded(m)) and _side(m, m.neutral) != "no interval"
        ]
        neutral = next((m.neutral for _, m in found if m.neutral is not None), neutral)
        said = [f"{side} in {_farthest(sides[side], neutral)}" for side in ("below", "above") if sides[side]]
        said += [f"not told apart from it in {len(sides['open'])}"] if sides["open"] else []
        unread = len(conditions) - sum(len(sides[side]) for side in ("below", "above", "open"))
        said += [f"no value or no interval in {unread}"] if unread else []
        parts.append(f"{one_line(model)} {', '.join(said)}")
    place = number(neutral, 0 if float(neutral).is_integer() else 2)
    correction = "corrected by Holm" if any(tested) else "one by one without correction"
    if any(tested) and not all(tested):
        correction += " where there is a p"
    return (
        f"{one_line(chart['title'])} ({_count(len(conditions), 'condition')} against the neutral {place}, "
        f"{correction}): {'; '.join(parts)}."
    )


def _farthest(told: Told, neutral: float) -> str:
    """How many figures lie on one side, and which; where they are many, the one farthest from neutral."""
    if len(told) <= _LISTED:
        return f"{len(told)} ({'; '.join(f'{c} {_told(m)}'.strip() for c, m in told)})"

    def away(of: tuple[str, Measure]) -> float:
        measure = of[1]
        if measure.value is not None:
            return abs(measure.value - neutral)
        assert measure.low is not None  # it lies on a side
        assert measure.high is not None
        return max(measure.low - neutral, neutral - measure.high)  # by bounds: at least so far

    condition, most = max(told, key=away)
    return f"{len(told)} ({'farthest' if most.value is not None else 'surest'}: {condition} {_told(most)})"


def _told(measure: Measure) -> str:
    """The figure; and of how many items it is, where more of them are missing than one looks past."""
    scorer = measure.n_items + measure.missing
    few = f" ({measure.n_items:,} of {scorer:,} items)" if measure.missing > _MISSED * scorer else ""
    return f"{figure(measure)}{few}"


def _pattern(measures: Sequence[Measure]) -> list[tuple[str, str]]:
    """Where each model lies, to tell whether the same sentence is true of two conditions."""
    return [(m.model, "value" if m.neutral is None else _side(m, m.neutral)) for m in measures]


def _subject(measure: str, conditions: Sequence[str]) -> str:
    label = measure_label(measure)
    told = [c for c in conditions if c]
    named = "; ".join(told) if len(told) <= _LISTED else f"{len(told)} conditions"
    return label[:1].upper() + label[1:] + (f" ({named})" if named else "")


Told = Sequence[tuple[str, Measure]]  # figures with the condition to name beside them, if any


def _finding(figures: Figures, found: Told) -> str:
    """Where the models lie against the neutral value; or their values, where there is none."""
    told = [(c, m) for c, m in found if m.value is not None or bounded(m)]
    if not told and not any(m.n_items or m.missing for _, m in found):
        return "this run asked no question about it."
    if not told:
        return "no model gave an answer that can be read."
    neutral = told[0][1].neutral
    if neutral is None:
        return f"{_values(told)}."
    sides: dict[str, list[tuple[str, Measure]]] = {"above": [], "below": [], "open": [], "no interval": []}
    for c, m in told:
        sides[_side(m, neutral)].append((c, m))
    place = number(neutral, 0 if float(neutral).is_integer() else 2)
    parts = []
    for side, (one, many, said) in (
        ("above", ("lies", "lie", f"above {place}, the neutral value")),
        ("below", ("lies", "lie", f"below {place}, the neutral value")),
        ("open", ("is", "are", f"not told apart from {place}, the neutral value")),
        ("no interval", ("has", "have", "no interval, so nothing is claimed")),
    ):
        names = list(dict.fromkeys(one_line(m.model) for _, m in sides[side]))
        if not names:
            continue
        everyone = len(names) == len(figures.models) > 1
        who = (
            ("both models" if len(names) == 2 else f"all {len(names)} models")
            if everyone
            else _listed(names)
            if len(names) <= _LISTED
            else f"{len(names)} models"
        )
        parts.append(f"{who} {one if len(names) == 1 else many} {said}: {_values(sides[side])}")
    return "; ".join(parts) + "."


def _side(measure: Measure, neutral: float) -> str:
    """On which side of neutral the whole interval lies."""
    if measure.low is None or measure.high is None:
        return "no interval"
    if measure.low > neutral:
        return "above"
    return "below" if measure.high < neutral else "open"


def _sure_side(measure: Measure, neutral: float, alpha: float) -> str:
    """The same, where Holm's correction over the figure's family leaves it sure; without a p, the interval alone."""
    side = _side(measure, neutral)
    return "open" if side in ("above", "below") and measure.p_holm is not None and measure.p_holm >= alpha else side


def _values(told: Told) -> str:
    """Each model's figure; only the ends of the range when there are many."""
    if len({m.model for _, m in told}) == 1 and len(told) <= _LISTED:
        return ", ".join(f"{_told(m)} {c}".strip() for c, m in told)
    if len(told) <= _LISTED:
        return ", ".join(f"{_who(c, m)} {_told(m)}" for c, m in told)
    exact = sorted(((c, m) for c, m in told if m.value is not None), key=lambda cm: cm[1].value or 0.0)
    if not exact:
        return "known only by bounds"
    least, most = exact[0], exact[-1]
    others = len(told) - len(exact)
    rest = f"; {others} more known only by bounds" if others else ""
    return f"from {_told(least[1])} for {_who(*least)} to {_told(most[1])} for {_who(*most)}{rest}"


def _who(condition: str, measure: Measure) -> str:
    return f"{one_line(measure.model)} ({condition})" if condition else one_line(measure.model)


def _compared(pairs: Sequence[tuple[str, Comparison]]) -> str:
    """Each pair's verdict; the counts when there are many."""
    if len(pairs) <= _LISTED:
        said: dict[str, list[str]] = {}
        for condition, c in pairs:
            said.setdefault(_pair(c), []).append(condition)
        if len(said) == 1:
            return next(iter(said))  # of all the conditions that stand before it
        return " ".join(f"{'; '.join(c)}: {text}" if any(c) else text for text, c in said.items())
    counts = Counter(c.verdict for _, c in pairs)
    differ = counts["larger"] + counts["smaller"]
    parts = [
        _verb(differ, "differs", "differ"),
        _verb(counts["equivalent"], "is tied", "are tied") + " (equivalent within the margin)",
        _verb(counts["inconclusive"], "is inconclusive", "are inconclusive"),
        _verb(counts["not comparable"], "cannot be compared", "cannot be compared"),
    ]
    numbers = (differ, counts["equivalent"], counts["inconclusive"], counts["not comparable"])
    verdicts = _listed(part for part, n in zip(parts, numbers, strict=True) if n)
    # A pair of models has one comparison for each condition.
    several = len({where_key(c.where) for _, c in pairs}) > 1
    counted = f"of {len(pairs)} {'comparisons' if several else 'pairs of models'}, {verdicts}."
    apart = [(w, c) for w, c in pairs if c.verdict in ("larger", "smaller") and c.difference is not None]
    if not apart:
        return counted
    condition, largest = max(apart, key=lambda wc: abs(wc[1].difference or 0.0))
    noisy = sum(c.within_noise for _, c in apart)
    tail = (
        f" {_verb(noisy, 'of these differences is', 'of these differences are')} smaller than the engines' noise."
        if noisy
        else ""
    )
    place = f" ({condition})" if condition else ""
    return f"{counted} Furthest apart{place}: {_pair(largest)}{tail}"


def _pair(c: Comparison) -> str:
    """One verdict in words."""
    a, b = one_line(c.a), one_line(c.b)
    apart = "" if c.difference is None else f" by {number(abs(c.difference), 3)}"
    if c.verdict in ("larger", "smaller"):
        return f"{b} is {VERDICT_WORDS[c.verdict]} than {a}{apart}{_noise(c)}."
    if c.verdict == "equivalent":
        return f"{a} and {b} are tied: equivalent within ±{c.margin:g}{_noise(c)}."
    if c.verdict == "not comparable":
        return f"{a} and {b} cannot be compared."
    return f"{a} and {b}: inconclusive, neither a difference nor equivalence is shown{_noise(c)}."


def _noise(c: Comparison) -> str:
    return "; the difference is smaller than the engines' noise" if c.within_noise else ""


def _cautions(figures: Figures, suite: str) -> Iterable[Sentence]:
    """Low coverage, figures known only by bounds, answers that are missing, in this suite."""
    result = figures.result
    many = len(result.suites) > 1
    info = next(s for s in result.suites if s.name == suite)
    title = one_line(info.title)
    place = f" on {title}" if many else ""
    for caution in info.cautions:
        yield Sentence("caution", f"{title}: {one_line(caution)}" if many else one_line(caution))
    entries = [entry for entry in result.data_quality if entry.suite == suite]
    weak = [e for e in entries if e.probability_mass is not None and e.probability_mass < WEAK_COVERAGE]
    if weak:
        shares = ", ".join(f"{one_line(e.model)} {number((e.probability_mass or 0.0) * 100, 1)} %" for e in weak)
        yield Sentence(
            "caution",
            f"Weak claim{place}: somewhere the answers looked for hold less than {WEAK_COVERAGE * 100:.0f} % of what "
            f"the model expects to come next (lowest coverage: {shares}). The figures only tell how that little is "
            "divided.",
        )
    for e in entries:
        if e.censored:
            yield Sentence(
                "caution",
                f"{one_line(e.model)}{place}: {e.censored:,} of {e.n_items:,} items are known only by bounds, because "
                "the server does not tell every probability. The bounds are drawn as dashed bands, apart from "
                "sampling error.",
            )
        lost = sum(e.failures.values())
        if lost and lost >= 0.01 * e.n_items:
            reasons = ", ".join(f"{one_line(k)} {v:,}" for k, v in sorted(e.failures.items(), key=lambda kv: -kv[1]))
            yield Sentence(
                "caution",
                f"{one_line(e.model)}{place}: {lost:,} of {e.n_items:,} items have no readable answer ({reasons}). "
                "They are left out, not counted as zero.",
            )


def _verb(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def _listed(things: Iterable[str]) -> str:
    items = list(things)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""
