"""A page as one HTML file that needs no network: template, style sheet, scripts and data in one.

Its content security policy allows only the scripts and the style sheet written into the page, by their hashes;
nothing is loaded, nothing is evaluated from text (Vega interprets its expressions).
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.metadata
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pooch
import vl_convert
from markupsafe import Markup

from audit.report.plain_text import json_for_script
from audit.report.templating import environment
from backends.files import atomic_write


def render_page(template: str, scripts: Sequence[str], data: Any, **context: Any) -> str:
    """The whole page: ``template`` with its ``context``, and ``data`` for its ``scripts``, which run as one."""
    style, script, vega = _asset("report.css"), "".join(map(_asset, scripts)), _vega()
    policy = (
        f"default-src 'none'; script-src {_source_hash(vega)} {_source_hash(script)}; "
        f"style-src {_source_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        environment()
        .get_template(template)
        .render(
            policy=policy,
            style=Markup(style),
            script=Markup(script),
            vega=Markup(vega),
            data=Markup(json_for_script(data)),
            **context,
        )
    )


def render_sheet(template: str, *, form_action: str = "'none'", **context: Any) -> str:
    """A page without scripts: ``template`` with its ``context``. ``form_action``: where its forms may lead."""
    style = _asset("report.css")
    sources = f"default-src 'none'; style-src {_source_hash(style)}; img-src data:"
    policy = f"{sources}; base-uri 'none'; form-action {form_action}"
    return environment().get_template(template).render(policy=policy, style=Markup(style), **context)


def _source_hash(source: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


def _asset(name: str) -> str:
    return resources.files("audit.report").joinpath("templates", name).read_text("utf-8")


@functools.cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; bundling takes seconds, so it is kept for the next report."""
    version = importlib.metadata.version("vl-convert-python")
    kept = Path(pooch.os_cache("bias-audit")) / f"vega-{version}.js"
    if kept.is_file():
        return kept.read_text("utf-8")
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with contextlib.suppress(OSError):  # a report needs no cache
        atomic_write(kept, script)
    return script
