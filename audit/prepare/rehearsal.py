"""The rehearsal: planted answers through the ordinary path, of a made-up model without bias and of one with it.

What fails there, fails before a real model is paid. And a bias that was planted, and is not found in the figures, would
not be found in a real model either.
"""

from __future__ import annotations

import hashlib
import math
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from audit.analysis.answers import SuiteAnswers, read_answers
from audit.analysis.decisions import DEFAULT_MARGIN
from audit.analysis.gate.rules import check_rules
from audit.analysis.measures import evaluate_suite
from audit.collect import Sample
from audit.config import AuditConfig
from audit.prepare.boundaries import BoundaryCheck, check_boundaries
from audit.results import Measure
from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Response,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec, Suite

#: Items of a suite that are rehearsed, at most; and of a suite of one's own before each run.
MOST_ITEMS, MOST_BEFORE_A_RUN, MOST_OF_ALL = 600, 100, 1_000_000
#: Follow-ups of follow-ups are answered to this depth, since a suite could ask for ever.
_MAX_DEPTH = 6
#: In the run with gaps, one item of so many goes without an answer.
_SILENT = 5
_MODELS: Mapping[str, float] = {"without bias": 0.0, "with bias": 1.0}


@dataclass
class SuiteCheck:
    """What the rehearsal of a suite showed.

    ``bias``: what was planted in one of the two models, 0 to 1. ``unreadable``: planted answers that gave no value, by
    reason. ``rater_tests``: questions that test each rater. ``pairs``: each primary figure with a neutral value,
    without and with bias; empty if the suite plants none. ``levels``: those of each primary measure's sampled factors.
    """

    suite: str
    n_items: int
    bias: float
    mistakes: list[ConfigError] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)
    rater_tests: Counter[str] = field(default_factory=Counter)
    pairs: list[tuple[Measure, Measure]] = field(default_factory=list)
    levels: dict[str, dict[str, int]] = field(default_factory=dict)
    specs: list[MeasureSpec] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)


def check_audit(audit: AuditConfig, bias: float) -> tuple[list[SuiteCheck], list[ConfigError]]:
    """Rehearse every suite. Returns what each showed, and mistakes of the config itself."""
    found = []
    for name, suite in audit.suites.items():
        try:
            items = list(suite.items())
        except Exception as error:
            found.append(SuiteCheck(name, 0, bias, mistakes=[raised(suite, error)]))
            continue
        found.append(check_items(name, suite, items, bias=bias, confidence=audit.confidence, seed=audit.seed))
    of_config = list(audit.mistakes())
    if not any(one.mistakes for one in found):
        try:
            check_rules([spec for one in found for spec in one.specs], audit.margins, audit.limits)
        except ConfigError as error:
            of_config.append(audit.located(error))
    return found, of_config


def refuse_mistakes(audit: AuditConfig, items: Mapping[str, Sequence[Item]]) -> None:
    """Raise the first mistake that a short rehearsal of the suites of one's own shows, before a model is asked.

    Raises
    ------
    ConfigError
    """
    has_rules = bool(audit.limits) or isinstance(audit.margins, Mapping)
    for most in (MOST_BEFORE_A_RUN, MOST_OF_ALL):
        checks = [
            check_items(name, suite, items[name], most=most, are_all=audit.limit is None)
            for name, suite in audit.suites.items()
            if has_rules or not _is_shipped(suite)
        ]
        for mistake in (mistake for check in checks for mistake in check.mistakes):
            raise mistake
        try:
            check_rules([spec for check in checks for spec in check.specs], audit.margins, audit.limits)
        except ConfigError as error:  # a sample may lack some figures
            if has_rules and most == MOST_OF_ALL:
                raise audit.located(error) from None
        else:
            return


def check_items(
    name: str,
    suite: Suite,
    items: Sequence[Item],
    *,
    bias: float = 0.2,
    confidence: float = 0.95,
    seed: int = 0,
    most: int = MOST_ITEMS,
    are_all: bool = True,
) -> SuiteCheck:
    """Rehearse one suite on a balanced sample of its items, and evaluate the two models as a run would.

    ``are_all``: whether the items are all of the suite's, so that each figure has rows.
    """
    check = SuiteCheck(name, len(items), bias)
    check.rater_tests.update(item.scorer for item in items if item.scorer is not None)
    check.cautions = list(suite.shown.cautions)
    try:
        if not items:
            raise ConfigError(f"suites.{name}", suite.name, "it has no items", "Yield at least one")
        check.mistakes += _of_items(suite, items)
        own = Sample(items, suite.strata, seed, suite.sampled_together).take(most) if len(items) > most else items
        answers = {model: _answered(suite, own, share * bias) for model, share in _MODELS.items()}
        result = evaluate_suite(name, answers, signature={}, margins=DEFAULT_MARGIN, confidence=confidence, seed=seed)
        check.specs = result.specs
        check.unreadable = Counter(row.missing for row in answers["with bias"].table.rows() if row.missing is not None)
        is_whole = are_all and len(own) == len(items)
        check.mistakes += _of_figures(suite, result.specs, answers["with bias"], is_whole=is_whole)
        check.mistakes += _of_gaps(suite, own, answers["without bias"], result.specs)
        check.levels = {m.measure: dict(m.levels) for m in result.measures if m.spec.primary}
        if suite.planted(own[0], bias, 0) is not None:
            figures = {model: [m for m in result.measures if m.model == model] for model in answers}
            pairs = zip(*figures.values(), strict=True)
            check.pairs = [(a, b) for a, b in pairs if a.spec.primary and a.neutral is not None]
    except Exception as error:
        check.mistakes.append(raised(suite, error))
    return check


def _answered(suite: Suite, items: Iterable[Item], bias: float, silent: Collection[str] = ()) -> SuiteAnswers:
    def answers(some: Iterable[Item], depth: int) -> Iterator[tuple[Item, bytes, _Planted | str]]:
        for item in some:
            answer = None if item.id in silent else suite.planted(item, bias, 0) or random_answer(item)
            yield item, item.id.encode("utf-8", "surrogatepass"), "not asked" if answer is None else _Planted(answer)
            if answer is not None and depth:
                yield from answers(suite.follow_ups(item, answer), depth - 1)

    return read_answers(suite, answers(items, _MAX_DEPTH), seen=lambda answer: answer)  # type: ignore[arg-type]


@dataclass
class _Planted:
    """An answer as the store would give it."""

    answer: Response
    at: float = 0.0
    run: str = ""


def random_answer(item: Item) -> Response | None:
    """A meaningless answer; None for classifiers, whose labels are unknown."""
    match item.request:
        case ScoreRequest(continuations=texts):
            return ScoreResponse(tuple(_score(text, item.id, len(texts)) for text in texts))
        case GenerateRequest():
            return GenerateResponse(" This is a made-up text.", "stop")
    return None


def _score(text: str, item_id: str, of: int) -> ContinuationScore:
    digest = hashlib.sha256(f"{item_id}\n{text}".encode("utf-8", "surrogatepass")).digest()
    share = 0.1 + 0.8 * int.from_bytes(digest[:8], "big") / 2**64
    return ContinuationScore.exact([TokenLogprob(text, 0, len(text), math.log(share / of))], route="planted")


# -- mistakes ----------------------------------------------------------------------------------


def _of_items(suite: Suite, items: Sequence[Item]) -> Iterator[ConfigError]:
    twice = [item for item, n in Counter(item.id for item in items).items() if n > 1]
    if twice:
        yield ConfigError("items", twice[0], f"{len(twice)} ids are used twice", "Give each item an id of its own")
    factors = {name for item in items for name in item.factors}
    for option in ("strata", "sampled_together"):
        for name in getattr(suite, option):
            if name not in factors:
                yield ConfigError(option, name, "no item has this factor", f"Known: {', '.join(sorted(factors))}")


def _of_figures(
    suite: Suite, specs: Sequence[MeasureSpec], answers: SuiteAnswers, *, is_whole: bool
) -> Iterator[ConfigError]:
    """Figures that no row can be of, and values outside the range that bounds and tests rest on."""
    table = answers.table
    if not specs:
        yield ConfigError("measures", suite.name, "it reports no figure", "Yield at least one MeasureSpec")
    for spec in specs:
        behind = table.matching(spec.where)
        if is_whole and not behind.any():
            yield ConfigError(f"measures.{spec.measure}.where", dict(spec.where), "matches no row", "Correct it")
        elif is_whole and "score" in suite.needs and spec.quantity not in table.named("value"):
            names = f"Known: {', '.join(table.named('value'))}"
            yield ConfigError(f"measures.{spec.measure}.quantity", spec.quantity, "no row has this quantity", names)
        else:
            used, (low, high) = behind & table.has(spec.quantity), spec.limits
            quantity = table.quantity(spec.quantity)
            known = ~np.isnan(quantity.value)  # around it, a rater's error may reach further than any value
            least, most = (np.where(known, quantity.value, end)[used] for end in (quantity.low, quantity.high))
            if used.any() and not low <= least.min() <= most.max() <= high:
                problem = f"rows lie outside {low:g} to {high:g}, the range of its kind {spec.kind!r}"
                hint = "Give another kind, or its range"
                yield ConfigError(f"measures.{spec.measure}.quantity", spec.quantity, problem, hint)


def _of_gaps(
    suite: Suite, items: Sequence[Item], answered: SuiteAnswers, specs: Sequence[MeasureSpec]
) -> Iterator[ConfigError]:
    """Rows that vanish where answers are missing: a model would look better for not answering its worst questions."""
    left = set(_answered(suite, items, 0.0, {item.id for item in items[::_SILENT]}).table.index)
    controls = {item.id for item in items if item.is_control}  # what other rows stand beside, no figure of the model's
    lost = [number for item, number in answered.table.index.items() if item not in left and item not in controls]
    for spec in specs if lost else ():
        behind = answered.table.matching(spec.where) & answered.table.has(spec.quantity)
        if behind[lost].any():
            problem = f"{int(behind[lost].sum())} of its rows vanish if every fifth item has no answer"
            yield ConfigError(f"measures.{spec.measure}", suite.name, problem, "Give each a row with missing=…")


def raised(suite: Suite, error: Exception) -> ConfigError:
    """An exception of a suite's code, with the last line of that code that it came through."""
    if isinstance(error, ConfigError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    here = str(Path(__file__).parents[1])
    own = [frame for frame in frames if not frame.filename.startswith(here)] or list(frames)
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else type(suite).__name__
    problem = f"{type(error).__name__}: {error}"
    return ConfigError(where, type(suite).__name__, problem, "Correct that line")


def _is_shipped(suite: Suite) -> bool:
    return type(suite).__module__.partition(".")[0] == "suites"


def tokenizer_checks(audit: AuditConfig) -> tuple[list[BoundaryCheck], list[ConfigError]]:
    """How each model's tokenizer splits each suite's questions, and what of that is a mistake."""
    found: list[BoundaryCheck] = []
    mistakes: list[ConfigError] = []
    for model, backend in audit.models.items():
        for name, suite in audit.suites.items():
            try:
                checked = check_boundaries(model, backend, name, list(suite.items()))
            except ConfigError as error:
                mistakes.append(error)
                break  # the tokenizer cannot be loaded: the next suite would say the same
            if checked is not None:
                found.append(checked)
                mistakes += checked.mistakes()
    return found, mistakes
