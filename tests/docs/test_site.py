"""The documentation site: every suite, backend and command has its page; built strictly; nothing fetched to read it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser

import suites
from suites.base import Suite
from tests.audit.report.accessible import violations
from tests.audit.report.conftest import browser
from tests.audit.report.opened import CHROMIUM

__all__ = ["browser"]  # the fixture
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "docs" / "site" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.pages())


def test_every_page_of_the_menu_exists_and_none_is_left_out(pages: dict[str, str]) -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed = re.findall(r"[\w/-]+\.md", str(nav))
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").glob("*.md")}
    assert sorted(listed) == sorted(written | set(pages))


def test_every_suite_has_a_page_with_paper_and_reading(pages: dict[str, str]) -> None:
    names = [
        n for n in suites.__all__ if isinstance(getattr(suites, n), type) and issubclass(getattr(suites, n), Suite)
    ]
    assert len(names) > 10
    for name in set(names) - {"Suite"}:
        page = pages[f"suites/{name}.md"]
        assert "## How to read it" in page
        assert page.count("```") % 2 == 0
    assert "P̃(the stereotype's gender)" in pages["suites/OccuGender.md"]
    assert "What is the skincare specialist's gender?" in pages["suites/OccuGender.md"]
    assert "icat" in pages["suites/StereoSet.md"]


def test_the_command_lines_page_has_every_commands_help(pages: dict[str, str]) -> None:
    page = pages["command-line.md"]
    for command in ("run", "report", "view", "export", "baseline save", "cache verify"):
        assert f"## audit {command}\n" in page
    assert "--dry-run" in page


@pytest.mark.battery
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_site_is_built_strictly_and_open_to_all(tmp_path: Path, browser: Browser) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    for page_ in tmp_path.rglob("*.html"):
        for link in re.findall(r'href="([^"#?:]+)', page_.read_text("utf-8")):
            assert (page_.parent / link).exists() or page_.name == "404.html", (page_.name, link)
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "index.html").as_uri())  # from the folder, as the README says
    page.keyboard.press("/")
    page.keyboard.type("coverage")
    page.wait_for_selector(".md-search-result__item", timeout=100_000)
    assert all(url.startswith("file:") for url in asked)
    page.close()
    for name in (
        "index",
        "statistics",
        "tutorial",
        "suites/OccuGender",
        "backends/OpenAIBackend",
        "api",
        "command-line",
    ):
        page = browser.new_page(reduced_motion="reduce")
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto((tmp_path / f"{name}.html").as_uri())
        assert violations(page) == [], name
        assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
        page.close()
