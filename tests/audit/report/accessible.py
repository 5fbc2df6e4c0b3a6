"""axe-core on an open page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page


def violations(page: Page) -> list[str]:
    """Serious and critical violations of WCAG on the page, a line for each place."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
