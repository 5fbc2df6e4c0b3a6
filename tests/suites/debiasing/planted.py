"""Answers with planted effects, and the figures they give."""

import math

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from backends.base import ContinuationScore, ScoreResponse
from suites.common.expressions import GROUPS
from suites.debiasing import DebiasingPrompt

PROMPT = DebiasingPrompt(1, "Think of everyone alike.", "high", placebo="Look at the lake.")


def scored(item, suite, shares, coverage=0.5):
    """An answer that gives the groups these shares, spread evenly over their expressions."""
    if item.factors["bias"] == "reference":
        p = math.log(coverage)
        return ScoreResponse((ContinuationScore(p, p, p),))
    expressions = suite.tasks[item.factors["template"]].expressions
    logs = [math.log(coverage * shares[g] / len(expressions[g])) for g in GROUPS for _ in expressions[g]]
    return ScoreResponse(tuple(ContinuationScore(x, x, x) for x in logs))


def shares_of(gap, diverse, dominated_by):
    """Shares with a given stereotype gap."""
    lean = gap if dominated_by == "female" else -gap
    return {"male": (1 - diverse - lean) / 2, "female": (1 - diverse + lean) / 2, "diverse": diverse}


def rows_of(suite, gap_and_diverse):
    """Rows of a model that answers each item with a planted (gap, P̃(diverse))."""
    rows = []
    for item in suite.items():
        shares = shares_of(*gap_and_diverse(item), item.factors["dominated_by"])
        rows.append(suite.read(item, scored(item, suite, shares)))
    return suite.derive(rows)


def figures(suite, rows):
    specs = list(suite.measures(rows))
    measured = measure_table(Table.of(rows), specs, model="planted", suite=suite.name, signature={})
    return {(m.measure, tuple(sorted(m.where.items()))): m for m in measured}


def figure(found, measure, **where):
    return found[measure, tuple(sorted(where.items()))]
