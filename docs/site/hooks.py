"""The hook that mkdocs calls: it adds the generated pages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_spec = importlib.util.spec_from_file_location("docs_pages", Path(__file__).with_name("pages.py"))
assert _spec is not None
assert _spec.loader is not None
_pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_pages)


def on_files(files: Files, config: Any) -> Files:
    """The files of docs/ and the generated ones."""
    for path, text in _pages.pages():
        files.append(File.generated(config, path, content=text))
    return files
