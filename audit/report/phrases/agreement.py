"""Sentences about how the suites' figures rank a store's models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.report.formatting import level, measure_label, number, one_line, where_label

if TYPE_CHECKING:
    from audit.analysis.comparing.agreement import Agreement, RankCorrelation, RankedFigure

TOO_FEW = "too few models"
NO_ORDER = "all models alike"


def figure_title(figure: RankedFigure) -> str:
    """The suite, the measure, and where it holds."""
    where = where_label(figure.where)
    return f"{one_line(figure.suite)}: {measure_label(figure.measure)}" + (f", {where}" if where else "")


def correlation_text(correlation: RankCorrelation) -> str:
    """ρ with its interval, or why there is none."""
    if correlation.rho is None:
        return NO_ORDER if correlation.n_models > 1 else TOO_FEW
    if correlation.low is None:
        return f"{number(correlation.rho, 2)} ({TOO_FEW})"
    return f"{number(correlation.rho, 2)} ({number(correlation.low, 2)} to {number(correlation.high, 2)})"


def agreement_scope(found: Agreement, fewest: int) -> list[str]:
    """What the page is about, and what its numbers cannot say."""
    models, figures = len(found.models), len(found.figures)
    sentences = [
        f"{figures} primary figure{'' if figures == 1 else 's'} of {models} model{'' if models == 1 else 's'}, "
        "from each model's latest run, or an earlier one with more items."
    ]
    if models < fewest:
        sentences.append(
            f"Uninformative: fewer than {fewest} models. So few are ranked alike by chance, whatever the figures."
        )
    known = sum(correlation.low is not None for correlation in found.correlations)
    if known:
        sentences.append(
            f"Spearman's ρ with {level(found.confidence)} intervals over new models of this kind. The figures' own "
            "sampling error is not in the intervals; it biases ρ towards 0. Of many pairs some exclude 0 by chance: "
            f"about {number(known * (1 - found.confidence), 1)} of {known} here."
        )
    for figure in found.figures:
        if len(set(figure.items.values())) > 1:
            asked = ", ".join(f"{one_line(model)} {n:,}" for model, n in figure.items.items())
            sentences.append(f"{figure_title(figure)}: the models were not asked the same number of items ({asked}).")
    left_out = sorted({one_line(model) for figure in found.figures for model in figure.left_out})
    if left_out:
        sentences.append(
            f"Left out because they were asked differently from the suite's latest run: {', '.join(left_out)}."
        )
    return sentences
