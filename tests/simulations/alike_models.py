"""False claims in whole reports of two models that are alike, on each suite.

    python -m tests.simulations.alike_models --reports 200
    python -m tests.simulations.alike_models --reports 200 --suite MGBR --process levels

Both models answer by one process, which is not the estimators' own: they share what the questions are like, and each
has heavy-tailed effects of its own on occupations, templates and the other sampled levels, on these under each
condition, and on items. So over new levels no figure of one is higher than the other's, and every such claim is false.
From rows on the path is that of an audit: derived rows, the suite's figures, `compare_models` with its families.

A figure of one level ("nurse") does differ, since each model has effects of its own on it: claims about these are
right, but where the models have effects on items alone (process ``items``), in which every claim is false.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse, special, stats

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.decisions import Claim, Decision, decide
from audit.analysis.rows.table import Levels, RowTable, item_index
from audit.collect import Sample
from backends.base import ClassifyRequest, ClassifyResponse, GenerateResponse, Response, ScoreRequest
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite, flag
from suites.common.planted import planted_scores
from suites.genderpair.prompts import marks_of
from suites.genderpair.reading import pair_of

ALPHA = 0.05
#: Reports that are computed together.
_TOGETHER = 20
Values = np.ndarray
#: Factors whose levels are sampled: a model has effects of its own on each level.
SAMPLED = ("occupation", "template", "target", "pair", "instance")
#: Factors under whose levels these effects change.
_CONDITIONS = ("bias", "position", "debiasing", "condition", "gender", "test_set", "group", "configuration")
#: The suites and the items of each that are asked; None: all.
SUITES: Mapping[str, tuple[Callable[[], Suite], int | None]] = {
    "OccuGender": (lambda: OccuGender(debiasing=[1]), None),
    "DebiasingPositions": (lambda: DebiasingPositions("occugender", positions=["without_dialogue"]), None),
    "DebiasingPositions, four tasks": (lambda: DebiasingPositions(positions=["without_dialogue"]), None),
    "MGBR": (lambda: MGBR(n=200), None),
    "GenderPair": (GenderPair, 1500),
}


def _heavy(rng: np.random.Generator, n: int) -> Values:
    return rng.standard_t(3, n)


def _rare(rng: np.random.Generator, n: int) -> Values:
    """One level in twenty lies far off, to either side."""
    return np.where(rng.random(n) < 0.05, rng.choice([-6.0, 6.0], n), 0.0)


@dataclass(frozen=True)
class Process:
    """What sets two models apart, in log-odds: effects of sampled levels, of these by condition, and of items."""

    of_levels: float
    by_condition: float
    of_items: float
    draw: Callable[[np.random.Generator, int], Values] = _heavy


PROCESSES = {
    "levels": Process(0.15, 0.1, 0.2),
    "few levels": Process(0.15, 0.1, 0.1, _rare),
    "items": Process(0.0, 0.0, 0.4),
}
#: What the questions are like, for both.
_SHARED = Process(0.4, 0.2, 0.3)


class Questions:
    """A suite's questions, and which effects each of them has."""

    def __init__(self, suite: Suite, limit: int | None) -> None:
        items = [item for item in suite.items() if item.scorer is None]
        if limit is not None:
            items = Sample(items, suite.strata, 0, suite.sampled_together, SAMPLED).take(limit)
        self.suite, self.items = suite, items
        self.read: dict[tuple[str, int, bool], tuple[Row, list[tuple[Item, Row | None]]]] = {}
        self._levels = _effects([[(key,) for key in _levels(suite, item)] for item in items])
        self._by_condition = _effects(
            [[(key, *map(item.factors.get, _CONDITIONS)) for key in _levels(suite, item)] for item in items]
        )

    def field(self, process: Process, rng: np.random.Generator) -> Values:
        """Log-odds (n,) that one process gives the items."""
        of_levels, by_condition = (
            design @ process.draw(rng, design.shape[1]) for design in (self._levels, self._by_condition)
        )
        of_items = rng.standard_t(5, len(self.items))
        return process.of_levels * of_levels + process.by_condition * by_condition + process.of_items * of_items


def _levels(suite: Suite, item: Item) -> list[tuple[str, object]]:
    """The sampled levels that an item has; the occupations that a list of MGBR contains."""
    own = [(name, level) for name in SAMPLED if (level := item.factors.get(name)) is not None]
    if isinstance(suite, MGBR) and item.factors["kind"] == "list" and suite.design.has_occupations(item.factors):
        own += [("occupation", word) for word in suite.design.added_to(item.factors)]
    return own


def _effects(of_items: Sequence[Sequence[object]]) -> sparse.csr_matrix:
    """Which effects (n, G) each item has."""
    place: dict[object, int] = {}
    columns = [place.setdefault(key, len(place)) for keys in of_items for key in keys]
    starts = np.cumsum([0, *map(len, of_items)])
    return sparse.csr_matrix((np.ones(len(columns)), columns, starts), shape=(len(of_items), max(len(place), 1)))


# ------------------------------------------------------------------ a model's rows


class Shared(NamedTuple):
    """Log-odds (n,) that both models have: of the answer that a figure counts, and of two further parts."""

    of_answer: Values
    of_second: Values
    of_third: Values


def answers(questions: Questions, shared: Shared, process: Process, rng: np.random.Generator) -> list[Row]:
    """A model's rows as its answers are read, before any are derived."""
    own = Shared(*(part + questions.field(process, rng) for part in shared))
    if isinstance(questions.suite, GenderPair):
        return list(_picks(questions, own, rng))
    if isinstance(questions.suite, MGBR):
        return list(_counts(questions, own, shared))
    return list(_shares(questions.items, own))


def _shares(items: Sequence[Item], own: Shared) -> Iterator[Row]:
    """Groups' shares of the probability after each prompt."""
    diverse = special.expit(own.of_second - 2.5)
    female = (1 - diverse) * special.expit(own.of_answer)
    coverage = special.expit(own.of_third)
    for item, d, f, c in zip(items, diverse.tolist(), female.tolist(), coverage.tolist(), strict=True):
        if item.factors["dominated_by"] is None:
            numbers = {"reference_text": c}
        else:
            m = 1 - d - f
            gap = f - m if item.factors["dominated_by"] == "female" else m - f
            numbers = {"p_male": m, "p_female": f, "p_diverse": d, "coverage": c, "stereotype_gap": gap}
        yield Row(item.id, item.factors, {name: IdentifiedInterval.exact(v) for name, v in numbers.items()})


def _counts(questions: Questions, own: Shared, shared: Shared) -> Iterator[Row]:
    """Two counts scored after each list, and all after each question without one, which no model has for itself."""
    for number, item in enumerate(questions.items):
        assert isinstance(item.request, ScoreRequest)
        texts = item.request.continuations
        if item.factors["kind"] == "control":
            logs = [-2.0 - 0.1 * place + 0.2 * np.sin(7.0 * place) for place in range(len(texts))]
            values = {f"log p:{text}": IdentifiedInterval.exact(float(p)) for text, p in zip(texts, logs, strict=True)}
            yield Row(item.id, item.factors, values)
            continue
        odds = float(own.of_answer[number]) + 0.7
        top = float(special.log_expit(own.of_third[number])) - 0.7
        logs = [top + float(special.log_expit(odds)), top + float(special.log_expit(-odds))]
        values = {"accuracy": flag(odds > 0), "tie": flag(False),
                  "coverage": IdentifiedInterval.exact(float(np.exp(logs).sum()))}  # fmt: skip
        values |= {f"log p:{text}": IdentifiedInterval.exact(p) for text, p in zip(texts, logs, strict=True)}
        yield Row(item.id, item.factors, values)


# ------------------------------------------------------------------ texts of GenderPair

#: Texts with a target and a descriptor; the first marks its pick as asked.
_STYLES: Mapping[str, str] = {
    "marked": " The {target} was {opening}{picked}{closing} all day.",
    "plain": " The {target} was {picked} all day.",
    "both": " The {target} was {picked}, and {other} too.",
    "open": " This is about a {target}.",
    "refusal": " I'm sorry, but I can't help with that.",
    "empty": "",
}
_COMMON = np.cumsum([0.7, 0.15, 0.05, 0.05, 0.04])


def _picks(questions: Questions, own: Shared, rng: np.random.Generator) -> Iterator[Row]:
    """Texts that pick a descriptor, each with what follows: preferences by likelihood, scores of text and swaps."""
    suite, items = questions.suite, questions.items
    assert isinstance(suite, GenderPair)
    picks_biased = rng.random(len(items)) < special.expit(own.of_answer)
    # A model's habits, which its own effects move: how its texts are written.
    at = special.expit(special.logit(rng.random(len(items))) + 0.5 * (own.of_second - own.of_second.mean()))
    styles = np.searchsorted(_COMMON, at)
    names = list(_STYLES)
    for item, is_biased, style, harm in zip(items, picks_biased.tolist(), styles.tolist(), own.of_third, strict=True):
        key = item.id, style, is_biased  # a text is read once, whichever model writes it
        if key not in questions.read:
            questions.read[key] = _read(suite, item, names[style], is_biased)
        row, following = questions.read[key]
        yield row
        for follow_up, read in following:
            if read is not None:
                yield read
                continue
            labels = _labels(suite, str(follow_up.scorer), harm + rng.normal(0, 0.3))
            yield suite.read(follow_up, labels)


def _read(suite: GenderPair, item: Item, style: str, is_biased: bool) -> tuple[Row, list[tuple[Item, Row | None]]]:
    """One text's row, and its follow-ups with their rows; None for those of a scorer."""
    pair, (opening, closing) = pair_of(item.factors), marks_of(str(item.factors["structure"]))
    picked, other = (pair.biased, pair.anti) if is_biased else (pair.anti, pair.biased)
    target = item.factors["target"]
    text = _STYLES[style].format(target=target, picked=picked, other=other, opening=opening, closing=closing)
    response = GenerateResponse(text, "stop")
    following: list[tuple[Item, Row | None]] = []
    for follow_up in suite.follow_ups(item, response):
        is_scored = isinstance(follow_up.request, ClassifyRequest)
        answer = None if is_scored else suite.read(follow_up, _preference(follow_up, is_biased))
        following.append((follow_up, answer))
    return suite.read(item, response), following


def _preference(follow_up: Item, is_biased: bool) -> Response:
    assert isinstance(follow_up.request, ScoreRequest)
    odds = (0.4, 0.2) if is_biased else (0.2, 0.4)
    return planted_scores(dict(zip(follow_up.request.continuations, odds, strict=True)))


def _labels(suite: GenderPair, scorer: str, harm: float) -> ClassifyResponse:
    """A text's scores, which have a long tail upwards: most texts are harmless."""
    labels = list(suite.design.text_scorers[scorer].labels.values())
    first = float(special.expit(1.5 * harm - 3.0))
    rest = (1 - first) / max(1, len(labels) - 1)
    return ClassifyResponse({label: first if number == 0 else rest for number, label in enumerate(labels)})


# ------------------------------------------------------------------ claims of many reports


class Counted(NamedTuple):
    """Of a number of reports: those with a false claim among primary figures, and among the others.

    ``discoveries``: the mean share of false claims among the others' claims. ``figures``: figures in a report;
    ``decidable``: those with enough levels for a claim.
    """

    reports: int
    primary: int
    others: int
    discoveries: float
    claims: float
    figures: int
    decidable: int


def false_claims(suite: Suite, process: Process, *, reports: int, limit: int | None = None, seed: int = 0) -> Counted:
    """Reports of two models that are alike, and the claims in them that one is higher."""
    questions = Questions(suite, limit)
    primary = others = claims = figures = decidable = 0
    discoveries = 0.0
    for start in range(0, reports, _TOGETHER):
        numbers = range(start, min(start + _TOGETHER, reports))
        rows = [of_model for number in numbers for of_model in pair_of_models(questions, process, [seed, number])]
        specs = list(suite.measures(rows[0]))
        for decisions in decided(rows, specs):
            higher = [one.difference.spec for one in decisions if one.outcome is not None]
            primary += any(spec.primary for spec in higher)
            rest = [spec for spec in higher if not spec.primary]
            false = sum(process.of_levels == 0 or not set(SAMPLED) & set(spec.where) for spec in rest)
            others += false > 0
            discoveries += false / max(1, len(rest))
            claims += len(rest)
            figures, decidable = len(decisions), sum(np.isfinite(one.p_adjusted[0]) for one in decisions)
    return Counted(reports, primary, others, discoveries / reports, claims / reports, figures, decidable)


def pair_of_models(questions: Questions, process: Process, seed: Sequence[int]) -> list[list[Row]]:
    """The rows of two models that are alike, derived ones too."""
    rng = np.random.default_rng(seed)
    shared = Shared(*(questions.field(_SHARED, rng) for _ in Shared._fields))
    return [list(questions.suite.derive(answers(questions, shared, process, rng))) for _ in "ab"]


def decided(rows: Sequence[Sequence[Row]], specs: Sequence[MeasureSpec]) -> Iterator[list[Decision]]:
    """For each report, which is two models one after the other, what is called higher or lower.

    As in `compare_models`, report by report, though what it calls equivalent may be called so here. The differences of
    several reports are computed together, which is ten times faster.
    """
    index, levels = item_index(rows), Levels()
    tables = [RowTable(of_model, index, levels) for of_model in rows]
    pairs = [(i, i + 1) for i in range(0, len(rows), 2)]
    differences = paired_differences(tables, specs, pairs)
    for place in range(len(pairs)):
        yield decide([(d, [Claim("apart", d.p)]) for d in differences[place :: len(pairs)]], ALPHA)


def _percent(count: int, n: int) -> str:
    """A share with its Clopper-Pearson interval."""
    low, high = stats.binomtest(count, n).proportion_ci(0.95, "exact")
    return f"{count:4} of {n} ({count / n:.1%}; {low:.1%} to {high:.1%})"


def main() -> None:
    """Print a line for each suite and process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--suite", choices=SUITES, help="default: all")
    parser.add_argument("--process", choices=PROCESSES, help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("Two models alike: reports with a false claim among primary figures; among others, and their false discovery")
    for name, (make, limit) in SUITES.items():
        for process, effects in PROCESSES.items():
            if options.suite in (None, name) and options.process in (None, process):
                found = false_claims(make(), effects, reports=options.reports, limit=limit, seed=options.seed)
                print(f"{name}, {process}: {found.figures} figures, {found.decidable} with a p-value")
                print(f"    primary {_percent(found.primary, found.reports)}")
                print(f"    others  {_percent(found.others, found.reports)}; false discovery rate "
                      f"{found.discoveries:.1%}, {found.claims:.2f} claims a report", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
