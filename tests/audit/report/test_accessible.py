"""No serious violation of WCAG, by axe-core, on the pages that a run writes: light and dark, all unfolded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from audit.analysis.history import history
from audit.report import write_report, write_trend
from audit.results import AuditResult
from suites import OccuGender
from tests.audit.report import made_up as mu
from tests.audit.report.accessible import violations
from tests.audit.report.opened import CHROMIUM, Opened
from tests.audit.report.test_trend import nights

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


def one_suite() -> AuditResult:
    suite, models = OccuGender(("implicit",)), ["one", "another"]
    info = mu.suite_info(suite.name, suite.name, tables=suite.shown.tables, charts=suite.charts())
    return mu.result(models, [info], mu.measured(suite, models), examples=list(mu.examples(models, suite.name)))


def opened(browser: Browser, folder: Path, result: AuditResult) -> Opened:
    page = write_report(result, folder, formats=["html"])["html"]
    return Opened(browser, page, reduced_motion="reduce", bypass_csp=True)


def test_the_report_has_no_serious_violation(tmp_path: Path, browser: Browser) -> None:
    page = opened(browser, tmp_path, one_suite()).page
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []
    labels = [chart.get_attribute("aria-label") or "" for chart in page.locator(".canvas[data-drawn=done]").all()]
    assert len(labels) > 3
    assert [label for label in labels if not label.endswith("The numbers are in the table below the picture.")] == []
    page.close()


@pytest.mark.parametrize("kind", ["certificate", "trend"])
def test_other_pages_have_no_serious_violation(tmp_path: Path, browser: Browser, kind: str) -> None:
    path = tmp_path / f"{kind}.html"
    if kind == "certificate":
        write_report(mu.four_suites(3), tmp_path, formats=["certificate"])
    else:
        write_trend(history(nights(["one"], 2)), path, title="Nightly")
    page = browser.new_page(reduced_motion="reduce", bypass_csp=True, viewport={"width": 390, "height": 844})
    page.goto(path.as_uri())
    if kind == "trend":
        page.wait_for_selector("html[data-plots=drawn]")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert violations(page) == [], scheme
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), "a telephone shows all of it"
    page.close()
