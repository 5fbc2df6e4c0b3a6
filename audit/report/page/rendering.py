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
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pooch
import vl_convert
from markupsafe import Markup, escape

from audit.report.charts.vega_specs import COLOURS, SHAPES
from audit.report.formatting import (
    MISSING,
    factor_label,
    json_for_script,
    level,
    level_label,
    measure_label,
    percent,
    significant,
    visible,
)
from audit.report.phrases import is_weak, prompts_below
from backends.files import atomic_write

_SYMBOLS = {
    "circle": "M8 2a6 6 0 1 1 0 12a6 6 0 1 1 0-12z",
    "square": "M3 3h10v10H3z",
    "triangle-up": "M8 2l6.5 11.5h-13z",
    "diamond": "M8 1l5.5 7L8 15L2.5 8z",
    "triangle-down": "M8 14L1.5 2.5h13z",
    "cross": "M6 2h4v4h4v4h-4v4H6v-4H2V6h4z",
    "triangle-right": "M14 8L2.5 14.5v-13z",
    "triangle-left": "M2 8l11.5-6.5v13z",
}


def render_page(template: str, scripts: Sequence[str], data: Any, **context: Any) -> str:
    """The whole page: ``template`` with its ``context``, and ``data`` for its ``scripts``, which run as one."""
    style, script, vega = _asset("report.css"), "".join(map(_asset, scripts)), _vega()
    policy = (
        f"default-src 'none'; script-src {_source_hash(vega)} {_source_hash(script)}; "
        f"style-src {_source_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
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
    return _environment().get_template(template).render(policy=policy, style=Markup(style), **context)


def _with_code(text: str) -> Markup:
    """The text with backticks converted to code."""
    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in parts)


def _source_hash(source: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


def _asset(name: str) -> str:
    return resources.files("audit.report.page").joinpath("templates", name).read_text("utf-8")


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


@functools.cache
def _environment() -> jinja2.Environment:
    """Templates that escape all values, and make invisible characters visible."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("audit.report.page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda x: visible(x) if type(x) is str else MISSING if x is None else x,
    )
    environment.filters |= {
        "factor": factor_label,
        "level": level_label,
        "measure": measure_label,
        "count": "{:,}".format,
        "confidence": level,
        "digits": significant,
        "prompts_below": prompts_below,
        "percent": lambda x: MISSING if x is None else percent(x),
        "with_code": _with_code,
        "pretty": lambda x: json.dumps(x, ensure_ascii=False, indent=1, default=str),
    }
    environment.tests["weak"] = is_weak
    environment.globals |= {
        "model_class": lambda i: f"m{i % COLOURS}",
        "model_symbol": lambda i: _SYMBOLS[SHAPES[i % len(SHAPES)]],
    }
    return environment
