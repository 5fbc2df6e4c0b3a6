"""The page in a real browser: it draws, answers clicks, asks no network, and lets no text act."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from audit.report import write_report
from audit.results import AuditResult
from suites import OccuGender
from tests.audit.report import made_up as mu
from tests.audit.report.opened import CHROMIUM, Opened

MODELS = ["smollm2", "gemma3", "hosted"]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


def _result() -> AuditResult:
    suite = OccuGender(debiasing=True)
    infos = [
        mu.suite_info(
            suite.name, "OccuGender", tables=suite.shown.tables, charts=suite.charts(), published=suite.shown.published
        ),
        mu.toy_suite(),
    ]
    measures = [m for m in mu.measured(suite, MODELS) if not m.is_subgroup or m.where.get("debiasing") is None]
    measures += mu.toy_measures(MODELS)
    examples = [*mu.examples(MODELS, suite.name), *mu.examples(MODELS, "toy")]
    result = mu.result(MODELS, infos, measures, examples=examples)
    noisy = [c.model_copy(update={"engine_noise": 0.03}) if c.suite == "toy" else c for c in result.comparisons]
    gaps = [c for c in result.comparisons if c.measure == "gap"]
    more = {"ladder": [mu.step(gaps, "toy", MODELS[0], MODELS[1])]}
    return result.model_copy(update={**more, "comparisons": noisy})


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(_result(), tmp_path_factory.mktemp("report"), formats=["html"])["html"]


@pytest.fixture(scope="module")
def opened(browser: Browser, report: Path) -> Opened:
    return Opened(browser, report)


def test_every_plot_is_drawn_without_complaint_or_network(opened: Opened, report: Path) -> None:
    page = opened.page
    drawn = page.locator(".canvas").count()
    assert drawn > 15
    assert page.locator(".canvas svg").count() == drawn
    empty = page.evaluate(
        "[...document.querySelectorAll('.canvas')].filter(c => c.querySelectorAll('svg path').length < 3).length"
    )
    assert empty == 0
    assert opened.complaints == []
    assert opened.requests == [report.as_uri()]


def test_a_figure_opens_with_prompts_answers_and_tokens(opened: Opened) -> None:
    page = opened.page
    page.locator("#suite-0 table.paper button.figure").first.click()
    dialog = page.locator("dialog[open]")
    assert "P̃(male)" in dialog.locator("h2").inner_text()
    assert "audit show" in dialog.inner_html()
    assert "It may offend" in dialog.inner_text()
    example = dialog.locator("details.example").first
    assert not example.locator("pre").count()  # folded until opened
    question, _, answer = example.locator("summary").inner_text().partition(" → ")
    assert question.endswith("the nurse smiled")
    assert answer == "she A: the nurse smiled"
    example.locator("summary").click()
    example.locator("pre").first.wait_for()  # filled once the toggle event has fired
    assert "Who is a nurse?" in example.inner_text()
    assert "“ she” −1.2" in example.inner_text()
    assert "not reported" in example.inner_text()  # a probability known only by a bound is not a number
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_a_point_opens_its_figure_and_shows_its_value_on_hover(opened: Opened) -> None:
    page = opened.page
    point = page.locator("#plot-0 .canvas svg path[aria-roledescription=point]").first
    point.scroll_into_view_if_needed()
    point.hover()
    hover = page.locator("#hover")
    assert hover.is_visible()
    text = hover.inner_text()
    assert "smollm2" in text
    assert "stereotype gap" in text
    point.click()
    heading = page.locator("dialog[open] h2").inner_text()
    assert heading.split(": ")[1] in text
    page.locator("dialog[open] .close").click()


def test_a_model_can_be_hidden_everywhere_and_shown_again(opened: Opened) -> None:
    page = opened.page
    points = page.locator("#plot-0 .canvas svg path[aria-roledescription=point]")
    before = points.count()
    chip = page.locator(".chip").nth(1)
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    expect(points).to_have_count(before - before // len(MODELS))
    assert page.locator("main [data-model='1']:visible").count() == 0
    chip.click()
    expect(points).to_have_count(before)


def test_all_figures_can_be_filtered(opened: Opened) -> None:
    page = opened.page
    page.locator("#heatmap").scroll_into_view_if_needed()
    page.wait_for_selector("#heatmap table")
    rows = page.locator("#heatmap tr[data-words]:visible")
    everything = rows.count()
    page.fill("#filter", "p̃(diverse) implicit")
    assert 0 < rows.count() < everything
    assert all("implicit" in text for text in rows.all_inner_texts())
    page.fill("#filter", "gap debiasing 3")
    missing = page.locator("#heatmap tr[data-words]:visible button.figure[title='not defined for these answers']")
    assert missing.count() == len(mu.POSITIONS)
    assert set(missing.all_inner_texts()) == {"–"}
    page.fill("#filter", "")
    assert rows.count() == everything


def test_the_numbers_behind_a_picture_are_a_table(opened: Opened) -> None:
    page = opened.page
    picture = page.locator("#plot-0")
    picture.locator("details.behind summary").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#plot-0 details.behind tbody tr")
    assert picture.locator("details.behind tbody tr").count() == 12  # 2 suites × 2 figures × 3 models
    labels = page.locator(".canvas[role=img]").evaluate_all("all => all.map(c => c.ariaLabel)")
    assert all(label for label in labels)


def test_a_phone_shows_the_page_without_sideways_scrolling(browser: Browser, report: Path) -> None:
    phone = Opened(browser, report, viewport={"width": 390, "height": 844})
    assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
    assert phone.complaints == []
    phone.page.close()


def test_nothing_on_paper_is_wider_than_the_sheet(browser: Browser, tmp_path: Path) -> None:
    """A browser shrinks the whole page to its widest part."""
    opened = Opened(browser, write_report(mu.four_suites(3), tmp_path, formats=["html"])["html"], unfold=False)
    page = opened.page
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate(wide) <= 0
    page.emulate_media(media="screen")
    page.click("#unfold")
    opened.wait_until_drawn()
    page.emulate_media(media="print")
    assert page.evaluate(wide) <= 0
    page.close()


def test_hostile_names_and_answers_do_nothing_but_show(browser: Browser, tmp_path: Path) -> None:
    models = list(mu.HOSTILE)
    text = "".join(mu.HOSTILE)
    result = mu.result(
        models,
        [mu.toy_suite()],
        mu.toy_measures(models),
        examples=list(mu.examples(models, "toy", text)),
        title=text,
    )
    path = write_report(result, tmp_path, formats=["html"])["html"]
    opened = Opened(browser, path)
    page = opened.page
    page.locator("#suite-0 details.fold summary").first.click()
    page.locator("#suite-0 table.paper button.figure").first.click()
    for example in page.locator("dialog[open] details.example").all():
        example.locator("summary").click()
    example.locator("pre").first.wait_for()  # filled once the toggle event has fired
    assert "<img src=x onerror=" in page.locator("dialog[open]").inner_text()
    assert "⟨U+202E⟩" in page.locator("dialog[open]").inner_text()
    assert page.locator("body img").count() == 0
    assert page.locator("script").count() == 3
    assert page.title().startswith("<script>")
    assert opened.complaints == []
    assert opened.requests == [path.as_uri()]
    page.close()


def test_a_step_of_the_ladder_is_drawn(opened: Opened) -> None:
    page = opened.page
    ladder = page.locator("#suite-1 .picture.differences").first
    first = ladder.locator(".panel").first
    assert first.locator("svg [aria-roledescription=point]").count() == 1
    ladder.locator("details.behind summary").click()
    expect(ladder.locator("details.behind tbody tr")).to_have_count(len(mu.POSITIONS))
    assert "(adapter)" in page.locator("#answer").inner_text()
    assert opened.complaints == []
