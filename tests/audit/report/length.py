"""How a report looks: `python -m tests.audit.report.length REPORT.html FOLDER` writes it as PNG and PDF."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.audit.report.opened import CHROMIUM, Opened

WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


def unfold_all(page: Page) -> None:
    """Open every folded part, also those within parts."""
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    page.wait_for_selector("html[data-plots=drawn]", timeout=120_000)


def sheets(page: Page, part: str = "body") -> int:
    """The sheets of A4 that the page takes, or a part that ends its sheet without the other parts."""
    hide = "(others, hidden) => others.forEach((other) => (other.hidden = hidden))"
    others = page.locator(f"main > section:not({part})" if part != "body" else "none")
    others.evaluate_all(hide, True)
    printed = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    others.evaluate_all(hide, False)
    return printed


def main(report: Path, folder: Path) -> None:
    """The page as people see it; printed straight away, as `chromium --print-to-pdf` does."""
    folder.mkdir(parents=True, exist_ok=True)
    looks = {
        "wide": {"viewport": WIDE},
        "phone": {"viewport": PHONE},
        "dark": {"viewport": WIDE, "color_scheme": "dark"},
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, options in looks.items():
            page = Opened(browser, report, unfold=False, **options).page
            page.screenshot(path=folder / f"{name}.png")
            page.screenshot(path=folder / f"{name}-whole.png", full_page=True)
            page.close()
        page = browser.new_page()
        page.goto(report.as_uri())
        page.pdf(path=folder / "print.pdf", format="A4")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
