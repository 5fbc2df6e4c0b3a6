"""The page of agreement: what it says, and that it says when it can say nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from audit.analysis.comparing.agreement import agreement
from audit.report import write_agreement
from audit.report.page import agreement_page
from tests.audit.analysis.comparing.test_agreement import run
from tests.audit.report import made_up as mu
from tests.audit.report.opened import Opened

SIX = {f"model {i}": float(i) for i in range(6)}
OTHER = {f"model {i}": value for i, value in enumerate([1.0, 0.0, 3.0, 2.0, 5.0, 4.0])}


def test_the_page_shows_values_ranks_and_correlations() -> None:
    page = agreement_page(agreement([run({"one": SIX, "two": OTHER})]), "Store")
    assert "0.83 (" in page
    assert "5.000 (1)" in page
    assert "Uninformative" not in page
    (row,) = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))["rows"]
    assert row["v"] == pytest.approx(0.828571, abs=1e-6)


def test_few_models_are_called_uninformative() -> None:
    few = {"a": 0.1, "b": 0.2}
    page = agreement_page(agreement([run({"one": few, "two": few})]), "Store")
    assert "Uninformative: fewer than 5 models" in page
    assert "(too few models)" in page


def test_a_store_of_one_suite_says_so(tmp_path: Path) -> None:
    path = write_agreement(agreement([run({"one": SIX})]), tmp_path / "new" / "agreement.html", title="Store")
    assert "has no primary figures from two suites" in path.read_text("utf-8")
    assert "No run has a result yet" in agreement_page(agreement([]), "Store")


def test_no_name_acts() -> None:
    values = {name: float(i) for i, name in enumerate(mu.HOSTILE)}
    page = agreement_page(agreement([run({"one": values, "two": values})]), "".join(mu.HOSTILE))
    shown = re.sub(r"<script.*?</script>", "<acts>", page, flags=re.DOTALL)
    assert shown.count("<acts>") == 3
    assert "<img" not in shown


@pytest.mark.browser
def test_the_picture_is_drawn(browser, tmp_path: Path) -> None:
    found = agreement([run({"one": SIX, "two": OTHER, "three": {**SIX, "model 0": 9.0}})])
    opened = Opened(browser, write_agreement(found, tmp_path / "agreement.html", title="Store"))
    assert opened.complaints == []
    assert opened.page.locator(".canvas path[aria-roledescription=point]").count() == 3
