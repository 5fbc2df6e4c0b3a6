"""A page in a real browser, with all that it complained about and asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Opened:
    """A page with all that it complained about and asked for; its folded parts are opened, if ``unfold``."""

    def __init__(self, browser: Browser, path: Path, *, unfold: bool = True, **options: object) -> None:
        self.page: Page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})  # type: ignore[arg-type]
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-plots=drawn]", timeout=60_000)
        if unfold:
            self.unfold()

    def unfold(self) -> None:
        """Open the parts that a reader finds folded, and wait until their plots are drawn."""
        self.page.evaluate("for (const part of document.querySelectorAll('details.more')) part.open = true")
        self.wait_until_drawn()

    def wait_until_drawn(self) -> None:
        """Wait until what was just unfolded is drawn."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
        self.page.wait_for_selector("html[data-plots=drawn]", timeout=60_000)
