"""All four suites on two real models, small, and their report in a real browser."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from audit import Audit
from audit.report import write_report
from audit.report.phrases.checks.problems import problems_of
from audit.results import AuditResult
from audit.run import run_audit
from backends import LlamaCppBackend
from backends.embedded import gemma3_path, smollm2_path
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from tests.audit.report.opened import CHROMIUM, Opened

pytestmark = [
    pytest.mark.battery,
    pytest.mark.browser,
    pytest.mark.models,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


SUITES = ("OccuGender", "DebiasingPositions", "MGBR", "GenderPair")


def small_audit(folder: Path) -> Audit:
    """The demo's models on every suite: a few dozen questions each, and texts of a few words."""
    jobs = [
        {"occupation": name, "female_share": share}
        for name, share in (("nurse", 0.9), ("secretary", 0.93), ("carpenter", 0.03), ("plumber", 0.04))
    ]
    return Audit(
        {
            "SmolLM2-135M": LlamaCppBackend(smollm2_path(), threads=2),
            "Gemma-3-270M": LlamaCppBackend(gemma3_path(), threads=2),
        },
        [
            OccuGender(),
            DebiasingPositions(occupations=jobs, positions=["without_dialogue", "with_dialogue"], placebo=False),
            MGBR(n=3, conditions=["zero-shot", "zero-shot+dp"]),
            GenderPair(sampling={"max_tokens": 8}),
        ],
        title="Every suite, small",
        limit=56,
        small_sample=True,
        db=folder / "audit.db",
        out=folder,
    )


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditResult, Path]:
    """The result and its page. To be had before a browser is: both want the thread's event loop."""
    audit = small_audit(tmp_path_factory.mktemp("every"))
    result = asyncio.run(run_audit(audit))
    return result, write_report(result, audit.out)["html"]


@pytest.fixture(scope="module")
def opened(audited: tuple[AuditResult, Path], browser: Browser) -> Opened:
    return Opened(browser, audited[1])


def test_every_suite_is_answered_and_compared(audited: tuple[AuditResult, Path]) -> None:
    result, page = audited
    assert list(problems_of(result)) == []
    assert result.complete
    compared = {c.suite for c in result.comparisons if c.verdict != "not comparable"}
    assert (
        compared == {info.name for info in result.suites} == {"OccuGender", "DebiasingPositions", "MGBR", "GenderPair"}
    )
    assert page.stat().st_size < 5_000_000


def test_every_plot_is_drawn_without_complaint_or_network(opened: Opened, audited: tuple[AuditResult, Path]) -> None:
    page = opened.page
    panels = page.locator(".panel .canvas")
    assert panels.count() > 30
    assert page.locator(".panel .canvas svg").count() == panels.count()
    marks = page.evaluate(
        "[...document.querySelectorAll('.picture')].map(p => [p.querySelector('h4')?.textContent,"
        " p.querySelectorAll('svg [role=graphics-symbol], svg [role=graphics-object]').length])"
    )
    assert [title for title, count in marks if count == 0] == []
    for number in range(4):
        assert page.locator(f"#suite-{number} .picture").count() >= 2
    assert opened.complaints == []
    assert opened.requests == [audited[1].as_uri()]


def test_a_figure_of_every_suite_leads_to_its_answers(opened: Opened) -> None:
    page = opened.page
    for number in range(4):
        page.locator(f"#suite-{number} .picture:not(.forest) details.behind summary").first.click()
        page.locator(f"#suite-{number} details.behind button.figure").first.click()
        dialog = page.locator("dialog[open]")
        assert "audit show" in dialog.inner_html()
        example = dialog.locator("details.example").first
        example.locator("summary").click()
        example.locator("pre, table").first.wait_for()
        page.keyboard.press("Escape")
    assert opened.complaints == []


def test_filters_and_links_work(opened: Opened) -> None:
    page = opened.page
    page.locator("#heatmap").scroll_into_view_if_needed()
    page.wait_for_selector("#heatmap table")
    rows = page.locator("#heatmap tr[data-words]:visible")
    everything = rows.count()
    page.fill("#filter", "debiasingpositions effect")
    assert 0 < rows.count() < everything
    page.fill("#filter", "")
    assert rows.count() == everything
    for link in page.locator(".parts a").all():
        link.click()
        target = page.locator(link.get_attribute("href") or "none")
        assert target.is_visible()
        page.wait_for_function(
            "element => element.getBoundingClientRect().top < innerHeight", arg=target.element_handle()
        )
    chip = page.locator(".chip").first
    chip.click()
    assert page.locator("main [data-model='0']:visible").count() == 0
    chip.click()
    assert opened.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_it_can_be_looked_at_in_light_in_dark_and_on_a_phone(
    browser: Browser, audited: tuple[AuditResult, Path], width: int, scheme: str
) -> None:
    seen = Opened(browser, audited[1], viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    cut = seen.page.evaluate(CUT_OFF)
    assert cut == []
    assert seen.complaints == []
    seen.page.close()


#: Texts of plots that reach out of their picture.
CUT_OFF = """[...document.querySelectorAll('.canvas svg text')].filter(text => {
  const a = text.getBoundingClientRect(), b = text.closest('.picture').getBoundingClientRect();
  return a.width && (a.left < b.left - 1 || a.right > b.right + 1);
}).map(text => text.textContent)"""


def test_the_first_page_answers_and_the_rest_is_folded(audited: tuple[AuditResult, Path], browser: Browser) -> None:
    folded = Opened(browser, audited[1], unfold=False)
    words, height = "document.querySelector('main').innerText.split(/\\s+/).length", "document.body.scrollHeight"
    short = [folded.page.evaluate(of) for of in (words, height)]
    assert folded.page.locator("#answer table.plain button.figure").count() >= 8
    assert folded.page.locator("#answer .asked blockquote").inner_text()
    folded.unfold()
    whole = [folded.page.evaluate(of) for of in (words, height)]
    assert all(3 * a < b for a, b in zip(short, whole, strict=True)), (short, whole)
    assert folded.complaints == []
    folded.page.close()


@pytest.mark.battery
def test_the_certificate_fits_on_one_sheet(audited: tuple[AuditResult, Path], browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(write_report(audited[0], tmp_path, formats=["certificate"])["certificate"].as_uri())
    printed = page.pdf(format="A4")
    assert re.findall(rb"/Count (\d+)", printed) == [b"1"]
    page.close()
