"""The documentation's generated pages: one for each suite and each backend, and the command line's help.

Their texts come from docstrings and the suites' own data; nothing is fetched and no model is loaded.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterator

import typer
import typer.main

import backends
import suites
from audit.cli.app import app
from suites.base import Item, Suite

BACKENDS = (
    "HFBackend",
    "LlamaCppBackend",
    "VLLMBackend",
    "OpenAIBackend",
    "AnthropicBackend",
    "FakeBackend",
    "RecordedBackend",
)
_TABLE_RULE = re.compile(r"^\s*=+( +=+)+\s*$")


def pages() -> Iterator[tuple[str, str]]:
    """(path, Markdown) of every generated page."""
    names = [name for name in suites.__all__ if _is_suite(name)]
    yield from ((f"suites/{name}.md", suite_page(name)) for name in names)
    yield from ((f"backends/{name}.md", backend_page(name)) for name in BACKENDS)
    yield "command-line.md", command_line_page()


def suite_page(name: str) -> str:
    """A suite's questions, paper and formulas, how to read its headline, an example, and its options."""
    suite: type[Suite] = getattr(suites, name)
    module = sys.modules[suite.__module__]
    parts = [f"# {name}", _markdown(module.__doc__ or _first_line(suite)), "## How to read it", _reading(suite)]
    parts += [
        "## An example",
        _example(suite),
        "## In a config",
        f"```python\nfrom suites import {name}\n\n{name}()\n```",
    ]
    return "\n\n".join([*parts, "## Options", f"::: suites.{name}"]) + "\n"


def backend_page(name: str) -> str:
    """A backend's docstring with all its options."""
    return f"# {name}\n\n{_first_line(getattr(backends, name))}\n\n::: backends.{name}\n"


def command_line_page() -> str:
    """The help of every command, as `audit COMMAND --help` prints it."""
    parts = ["# Command line", "Exit codes: 0 done; 1 incomplete or failed; 2 usage or config; 3 a gate found a "
             "regression; 130 interrupted; 141 nobody reads the output any more."]  # fmt: skip
    root = typer.main.get_command(app)
    context = root.make_context("audit", [], resilient_parsing=True)
    for command, words in _commands(root, context, "audit"):
        parts += [f"## {words}", f"```text\n{command}\n```"]
    return "\n\n".join(parts) + "\n"


def _commands(group: typer.main.Any, context: typer.main.Any, words: str) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        own = command.context_class(command, info_name=f"{words} {name}", terminal_width=96)
        if hasattr(command, "list_commands"):
            yield from _commands(command, own, f"{words} {name}")
        else:
            yield command.get_help(own), f"{words} {name}"


def _is_suite(name: str) -> bool:
    found = getattr(suites, name)
    return inspect.isclass(found) and issubclass(found, Suite) and found is not Suite


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0]


def _reading(suite: type[Suite]) -> str:
    meanings = dict(getattr(suite, "meanings", {}))
    if not meanings:
        return "Its figures are in their own units, given by the formulas above."
    lines = [
        f"- `{name}`: {'; or '.join(s.format(points='*n*') for s in filter(None, (meaning.above, meaning.below)))}"
        for name, meaning in meanings.items()
    ]
    return "\n".join(["The report puts it in plain words. *n* counts hundredths: 47 is a value of 0.47.", "", *lines])


def _example(suite: type[Suite]) -> str:
    if suite.__module__.startswith("suites.benchmarks") and suite is not suites.GeneralAbility:
        return "Its questions are not part of this project: the first run fetches them and checks their sha256."
    item = next(iter(suite().items()))
    prompt, answers = _asked(item)
    factors = ", ".join(f"{name}: {level}" for name, level in item.factors.items() if level not in (None, True))
    return f"```text\n{prompt}\n```\n\n{answers}\n\nIts factors: {factors}."


def _asked(item: Item) -> tuple[str, str]:
    """An item's question, and what is read from the answer."""
    request = item.request
    prompt = request.prompt if isinstance(request.prompt, str) else json.dumps(request.prompt, ensure_ascii=False)
    continuations = [str(getattr(c, "text", c)) for c in itertools.islice(getattr(request, "continuations", ()), 6)]
    if not continuations:
        return prompt, "The model writes a text."
    return prompt, "Scored: the probabilities of " + ", ".join(f"`{text}`" for text in continuations) + " and others."


def _markdown(docstring: str) -> str:
    """A docstring as Markdown: its ruled tables are kept as written, in a code block."""
    lines: list[str] = []
    in_table = False
    rules = 0
    for line in inspect.cleandoc(docstring).split("\n"):
        if _TABLE_RULE.match(line):
            rules += 1
            if not in_table:
                lines.append("```text")
                in_table = True
            lines.append(line)
            if rules % 3 == 0:
                lines.append("```")
                in_table = False
            continue
        lines.append(line)
    return "\n".join([*lines, "```"] if in_table else lines)
