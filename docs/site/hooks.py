"""The hooks that mkdocs calls: generated pages, and what the theme keeps from keyboards and screen readers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_spec = importlib.util.spec_from_file_location("docs_pages", Path(__file__).with_name("pages.py"))
assert _spec is not None
assert _spec.loader is not None
_pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_pages)


#: A link to a file beside docs/, which is no page of the site.
_OUTSIDE = re.compile(r"\[[^\]]+\]\((?:\.\./)+([^)#]+)[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """The files of docs/ and the generated ones."""
    for path, text in _pages.pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without links that leave the site: files of the repository are named."""
    return _OUTSIDE.sub(r"`\1`", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """The page with each table in a part that the keyboard can scroll: the theme's own takes no focus."""
    reached = '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>'
    return html.replace("<table>", reached).replace("</table>", "</table></div>")


def on_post_page(output: str, **_: Any) -> str:
    """The page with a name for its search: the theme's dialog has none."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page of errors."""
    return on_post_page(output_content)
