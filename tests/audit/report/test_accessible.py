"""No serious violation of WCAG, by axe-core, on the pages that a run writes: light and dark, all unfolded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from audit.report import write_report
from tests.audit.report import made_up as mu
from tests.audit.report.accessible import violations
from tests.audit.report.opened import CHROMIUM, Opened

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_report(
        mu.four_suites(3), tmp_path_factory.mktemp("accessible"), formats=["html", "certificate", "json"]
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_has_no_serious_violation(files: dict[str, Path], browser: Browser, scheme: str) -> None:
    opened = Opened(browser, files["html"], color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    assert violations(opened.page) == []
    opened.page.close()


def test_the_certificate_has_no_serious_violation(files: dict[str, Path], browser: Browser) -> None:
    page = browser.new_page(bypass_csp=True)
    page.goto(files["certificate"].as_uri())
    assert violations(page) == []
    page.close()


def test_every_chart_keeps_its_description(files: dict[str, Path], browser: Browser) -> None:
    opened = Opened(browser, files["html"])
    charts = opened.page.get_by_role("img").filter(has=opened.page.locator("svg.marks"))
    labels = [chart.get_attribute("aria-label") or "" for chart in charts.all()]
    assert len(labels) > 5
    assert [label for label in labels if not label.endswith("The numbers are in the table below the picture.")] == []
    opened.page.close()
