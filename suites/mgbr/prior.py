"""The control: what a model would answer without a list, and scores corrected for it.

With log-probabilities of the correct count c and of c + r, after a list and after the same question without one,

    accuracy_without_list       log p(c) > log p(c + r)
    prior_corrected_accuracy    log p(c | list) - log p(c) > log p(c + r | list) - log p(c + r)

The second compares pointwise mutual information (Holtzman et al. 2021, arXiv:2104.08315, eq. 1). A tie is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from backends.base import ScoreRequest, ScoreResponse
from suites.base import UNKNOWN_SHARE, Factor, IdentifiedInterval, Item, Row, flag
from suites.common.contrasts import contrast
from suites.mgbr.design import Design, row_id

#: Prefix of the quantities that hold the log-probability of a count; the count's text follows.
LOG_PROBABILITY = "log p:"


def read_control(item: Item, response: ScoreResponse) -> Row:
    """The log-probability of every count."""
    return Row(item.id, item.factors, log_probabilities(item, response))


def log_probabilities(item: Item, response: ScoreResponse) -> dict[str, IdentifiedInterval]:
    """The continuations' log-probabilities in nats; one without a lower bound is left out."""
    assert isinstance(item.request, ScoreRequest)
    found = {}
    for text, score in zip(item.request.continuations, response.scores, strict=True):
        if score.exactness == "exact":
            found[LOG_PROBABILITY + text] = IdentifiedInterval.exact(score.high)
        elif score.low is not None and math.isfinite(score.low):
            found[LOG_PROBABILITY + text] = IdentifiedInterval(None, score.low, score.high)
    return found


def prior_rows(design: Design, lists: Sequence[Row], controls: Sequence[Row]) -> Iterator[Row]:
    """Each instance by the control alone, and each list and instance corrected for the control."""
    by_question = {(row.factors["condition"], row.factors[design.factor]): row for row in controls}
    without: dict[tuple[Factor, ...], Row] = {}
    for row in lists:
        control = by_question.get((row.factors["condition"], row.factors[design.factor]))
        if control is None:
            continue
        corrected = _corrected(design, row, control)
        yield corrected
        place = (row.factors["condition"], row.factors[design.factor], row.factors["instance"])
        if not design.has_occupations(row.factors):
            yield _without_list(design, row, control)
            without[place] = corrected
        elif place in without:  # a list without occupations comes before the one with them
            factors = {name: level for name, level in row.factors.items() if name != "test_set"}
            factors["kind"] = "prior_corrected_pair"
            names = {"prior_corrected_accuracy": "prior_corrected_bias_score"}
            yield contrast(row_id(factors), without[place], corrected, names, factors)


def _corrected(design: Design, row: Row, control: Row) -> Row:
    """Whether reading one list raises the odds of its correct count."""
    factors = {**row.factors, "kind": "prior_corrected"}
    sources = row.items + control.items
    if missing := row.missing or control.missing:
        return Row(row_id(factors), factors, {}, missing, sources, row.memberships)
    of_list, of_control = _log_odds(design, row, row), _log_odds(design, row, control)
    right = UNKNOWN_SHARE if of_list is None or of_control is None else _is_above_0(of_list - of_control)
    return Row(row_id(factors), factors, {"prior_corrected_accuracy": right}, None, sources, row.memberships)


def _without_list(design: Design, row: Row, control: Row) -> Row:
    """Whether the correct count of an instance is likelier even without its list."""
    factors: dict[str, Factor] = {**row.factors, "kind": "no_list"}
    if control.missing:
        return Row(row_id(factors), factors, {}, control.missing, control.items)
    odds = _log_odds(design, row, control)
    values = {"accuracy_without_list": UNKNOWN_SHARE if odds is None else _is_above_0(odds)}
    return Row(row_id(factors), factors, values, None, control.items)


def _log_odds(design: Design, row: Row, scored: Row) -> IdentifiedInterval | None:
    """log p(correct) - log p(correct + r) for one row's list, in nats, from the scores in ``scored``."""
    correct = design.instance(row.factors).correct(design.group_of(row.factors))
    counts = (correct, correct + design.instance(row.factors).r)
    right, wrong = (scored.values.get(LOG_PROBABILITY + design.count(count)) for count in counts)
    return None if right is None or wrong is None else right - wrong


def _is_above_0(odds: IdentifiedInterval) -> IdentifiedInterval:
    if odds.low > 0 or odds.high <= 0:
        return flag(odds.low > 0)
    return UNKNOWN_SHARE
