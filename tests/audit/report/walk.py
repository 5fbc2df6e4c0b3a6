"""No serious violation of WCAG on any page that people see: `python -m tests.audit.report.walk`.

Three fake models answer four suites; axe-core then reads the run's report (all unfolded) and its other pages, every
kind of page of `audit view`, and with ``--site FOLDER`` each page of the built documentation: in light, dark, and on a
telephone. It prints a line for each page, and fails if there is any violation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser, Error, Page, sync_playwright

from audit import Audit, StoredResult
from backends.stand_ins.fake import FakeBackend
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from tests.audit.report.accessible import violations
from tests.audit.report.length import PHONE, WIDE, unfold_all
from tests.audit.report.opened import CHROMIUM

MODES = {
    "light": {"viewport": WIDE},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": PHONE},
}
EACH = 2  # pages of one kind that are read
MOST_DRAWN = 500  # pictures: a trend of four suites folds 1,500 more of the same kind, which take minutes


def audited(folder: Path, limit: int) -> StoredResult:
    """Four suites on three fake models, one of which writes what cannot be read."""
    models = {
        "even": FakeBackend("even"),
        "org/other": FakeBackend("other"),
        "قالت": FakeBackend("mute", generate=lambda *_: "<b>hm?</b>"),
    }
    suites = [OccuGender(), DebiasingPositions(), MGBR(), GenderPair()]
    config = Audit(models, suites, title="Four", db=folder / "a.db", out=folder / "out", limit=limit, small_sample=True)
    found: list[StoredResult] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(config.run())))  # Playwright has a loop here
    thread.start()
    thread.join()
    return found[0]


def served_pages(page: Page, address: str) -> Iterator[str]:
    """The pages that links lead to from ``address``, a few of each kind, and one that does not exist."""
    left, seen, times = [address], {address}, dict[str, int]()
    while left:
        url = left.pop(0)
        kind = re.sub(r"(?<=/item/).*|[^/]*\d[^/]*", "#", urlsplit(url).path)  # items are named by words, too
        times[kind] = times.get(kind, 0) + 1
        if times[kind] > EACH:
            continue
        yield url
        page.goto(url)
        for link in page.locator("a[href]").evaluate_all("links => links.map((a) => a.getAttribute('href'))"):
            target = urljoin(url, link).split("#")[0]
            if target.startswith(address) and target not in seen:
                seen.add(target)
                left.append(target)
    yield urljoin(address, "run/none")


def read(browser: Browser, url: str) -> list[str]:
    """The violations of a page in every mode; a report is unfolded first."""
    found = []
    for mode, options in MODES.items():
        page = browser.new_page(reduced_motion="reduce", bypass_csp=True, **options)  # type: ignore[arg-type]
        page.goto(url)
        if page.locator("script#data").count():
            page.wait_for_selector("html[data-plots=drawn]", timeout=120_000)
            if page.locator(".canvas").count() < MOST_DRAWN:
                unfold_all(page)
        found += [f"{mode}: {violation}" for violation in violations(page)]
        if page.evaluate("document.documentElement.scrollWidth > innerWidth + 1"):
            found.append(f"{mode}: wider than the screen")
        page.close()
    print(f"{len(found):3} {url}", flush=True)
    return [f"{url} {one}" for one in found]


def serve(result: StoredResult) -> tuple[subprocess.Popen[str], str]:
    """`audit view` on a free port, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "audit.cli", "view", "--db", str(result._db), "--port", str(port), "--no-open"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    return served, served.stdout.readline().split(" is shown at ")[1].split()[0]


class Quiet(SimpleHTTPRequestHandler):
    """A folder's files, without a line for each on the terminal."""

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def site_of(folder: Path) -> Iterator[list[str]]:
    """The addresses of a built site's pages while it is served; the page of errors finds its style in no other way."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pages = sorted(folder.rglob("*.html"))
    try:
        yield [f"http://127.0.0.1:{server.server_port}/{page.relative_to(folder).as_posix()}" for page in pages]
    finally:
        server.shutdown()
        server.server_close()


def walk(browser: Browser, folder: Path, site: Path | None, limit: int) -> list[str]:
    """Every violation found."""
    result = audited(folder, limit)
    files = result.write()
    written = [files["html"], files["certificate"], folder / "agreement.html"]
    asked = [sys.executable, "-m", "audit.cli", "correlate", "--db", str(result._db), "--html", str(written[-1])]
    subprocess.run(asked, check=True, stdout=subprocess.DEVNULL)
    found = [one for file in written for one in read(browser, file.as_uri())]
    served, address = serve(result)
    try:
        page = browser.new_page()
        for _ in range(50):  # it listens soon after it says so
            try:
                page.goto(address)
                break
            except Error:
                page.wait_for_timeout(200)
        for url in list(served_pages(page, address)):
            found += read(browser, url)
    finally:
        served.terminate()
        served.wait(20)
    if site is not None:
        with site_of(site) as pages:
            found += [one for url in pages for one in read(browser, url)]
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--site", type=Path, help="the built documentation")
    arguments.add_argument("--limit", type=int, default=60)
    given = arguments.parse_args()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        found = walk(browser, Path(folder), given.site, given.limit)
        browser.close()
    print("\n".join(found) or "No serious violation.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
