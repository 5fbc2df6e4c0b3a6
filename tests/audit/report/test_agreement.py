"""The page of agreement: what it says, and that it says when it can say nothing."""

from __future__ import annotations

from pathlib import Path

from audit.analysis.comparing.agreement import agreement
from audit.report import write_agreement
from audit.report.page.sheets import agreement_page
from tests.audit.analysis.comparing.test_agreement import run

SIX = {f"model {i}": float(i) for i in range(6)}
OTHER = {f"model {i}": value for i, value in enumerate([1.0, 0.0, 3.0, 2.0, 5.0, 4.0])}


def test_the_page_shows_values_ranks_and_correlations() -> None:
    page = agreement_page(agreement([run({"one": SIX, "two": OTHER})]), "Store")
    assert "0.83 (" in page  # Spearman's, by hand: 1 − 6 · 6 / (6 · 35)
    assert "5.000 (1)" in page
    assert "Uninformative" not in page


def test_few_models_are_called_uninformative() -> None:
    few = {"a": 0.1, "b": 0.2}
    page = agreement_page(agreement([run({"one": few, "two": few})]), "Store")
    assert "Uninformative: fewer than 5 models" in page
    assert "(too few models)" in page


def test_a_store_of_one_suite_says_so(tmp_path: Path) -> None:
    path = write_agreement(agreement([run({"one": SIX})]), tmp_path / "new" / "agreement.html", title="Store")
    assert "has no primary figures from two suites" in path.read_text("utf-8")
    assert "No run has a result yet" in agreement_page(agreement([]), "Store")
