"""`audit view` as it is used: started by its command, looked at in Chromium, keyboard alone."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from audit import StoredResult
from tests.audit.report.accessible import violations
from tests.audit.report.opened import CHROMIUM
from tests.audit.report.view.test_view import HOSTILE, result

__all__ = ["result"]  # the fixture
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def address(result: StoredResult) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "audit.cli", "view", "--db", str(result._db), "--port", str(port), "--no-open"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    line = served.stdout.readline()
    yield line.split(" is shown at ")[1].split()[0]
    served.terminate()
    assert served.wait(100) is not None


def test_a_reader_goes_from_runs_to_an_answer_by_keyboard(address: str, browser: Browser) -> None:
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    for _ in range(500):  # it listens soon after it says so
        try:
            page.goto(address)
            break
        except Exception:
            page.wait_for_timeout(200)
    found = violations(page)
    page.get_by_role("table").get_by_role("link").first.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    found += violations(page)
    page.get_by_role("link", name=re.compile("OccuGender|Which gender", re.I)).last.press("Enter")
    page.get_by_role("searchbox").fill("nurse")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("nurse")
    found += violations(page)
    page.get_by_role("table").get_by_role("link").first.press("Enter")
    expect(page.get_by_role("columnheader", name="Log-probability (nats)")).to_have_count(2)
    found += violations(page)
    assert found == []
    assert complaints == []
    page.close()
