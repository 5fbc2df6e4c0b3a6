"""How long a report is, and how it looks: `python -m tests.audit.report.length REPORT.html --pictures FOLDER`.

It opens a page in headless Chromium and prints its words, screens and printed sheets (A4), of the first page, as it
opens, and with every part unfolded. With ``--pictures`` it also writes the page as PNG: wide, on a telephone, dark, and
as printed (PDF). It prints figures to look at and never fails.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from tests.audit.report.opened import CHROMIUM, Opened

WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
SHEET = re.compile(rb"/Type\s*/Page\b")


class Length(NamedTuple):
    """How much a reader sees: words on the page, screens at 1440 × 900 and 390 × 844 pixels, sheets of A4."""

    words: int
    wide: float
    phone: float
    sheets: int


def unfold_all(page: Page) -> None:
    """Open every folded part, also those within parts."""
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    page.wait_for_selector("html[data-plots=drawn]", timeout=120_000)


def length(page: Page, part: str = "body") -> Length:
    """The length of what an open page shows in ``part`` now."""
    screens = []
    for viewport in (PHONE, WIDE):
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        page.wait_for_timeout(300)
        tall = page.locator(part).evaluate("part => part.getBoundingClientRect().height")
        screens.append(round(tall / viewport["height"], 1))
    printed = len(SHEET.findall(page.pdf(format="A4"))) if part == "body" else _sheets_of(page, part)
    return Length(len(page.locator(part).inner_text().split()), screens[1], screens[0], printed)


def _sheets_of(page: Page, part: str) -> int:
    """Sheets of a part that ends its sheet: those of the page without the other parts."""
    hide = "(others, hidden) => others.forEach((other) => (other.hidden = hidden))"
    others = page.locator(f"main > section:not({part})")
    others.evaluate_all(hide, True)
    sheets = len(SHEET.findall(page.pdf(format="A4")))
    others.evaluate_all(hide, False)
    return sheets


def lengths(browser: Browser, report: Path) -> dict[str, Length]:
    """The first page, the page as it opens, and all of it."""
    page = Opened(browser, report, unfold=False, viewport=WIDE).page
    found = {"first page": length(page, "#answer"), "as it opens": length(page)}
    unfold_all(page)
    found["all unfolded"] = length(page)
    page.close()
    return found


def pictures(browser: Browser, report: Path, folder: Path) -> None:
    """The page as people see it, as PNG files, and its print as PDF."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in {
        "wide": {"viewport": WIDE},
        "phone": {"viewport": PHONE},
        "dark": {"viewport": WIDE, "color_scheme": "dark"},
    }.items():
        page = Opened(browser, report, unfold=False, **options).page
        page.screenshot(path=folder / f"{name}.png")
        page.screenshot(path=folder / f"{name}-whole.png", full_page=True)
        if name == "wide":
            page.pdf(path=folder / "print.pdf", format="A4")
        page.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("report", type=Path)
    arguments.add_argument("--pictures", type=Path)
    given = arguments.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        print(f"{'':14}{'words':>8}{'screens':>9}{'on a phone':>12}{'sheets':>8}")
        for name, found in lengths(browser, given.report.resolve()).items():
            print(f"{name:14}{found.words:8}{found.wide:9}{found.phone:12}{found.sheets:8}")
        if given.pictures:
            pictures(browser, given.report.resolve(), given.pictures)
        browser.close()


if __name__ == "__main__":
    main()
