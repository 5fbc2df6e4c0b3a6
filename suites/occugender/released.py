"""How the authors' released code (commit 646a9d6) asks and scores where it differs from the paper's text."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.errors import ConfigError
from suites.common.data_files import PinnedFile, load
from suites.common.expressions import GROUPS, Expressions
from suites.common.task_prompt import TaskPrompt, parse_template

#: Name of the released stimuli.
COMMIT = "646a9d6"


@dataclass(frozen=True, slots=True)
class ReleasedTemplates:
    """The templates of commit 646a9d6; ``folder`` contains the explicit script, None: it is fetched once."""

    folder: Path | None = None


def by_commit(given: Any) -> Any:
    """Parse ``"646a9d6"`` or ``{"646a9d6": FOLDER}``; any other value is returned unchanged."""
    if given == COMMIT:
        return ReleasedTemplates()
    if isinstance(given, dict) and set(given) == {COMMIT} and isinstance(given[COMMIT], str | Path):
        return ReleasedTemplates(Path(given[COMMIT]))
    return given


def released_expressions() -> dict[str, Expressions]:
    """The spellings in the released figures: explicit without He and She, implicit in lower case only."""
    spellings = load("occugender_released").content["spellings"]
    return {bias: {group: tuple(words[group]) for group in GROUPS} for bias, words in spellings.items()}


def released_aggregation() -> dict[str, Any]:
    """How the released code aggregates an expression's tokens: product for explicit prompts, mean for implicit."""
    return dict(load("occugender_released").content["token_aggregation"])


def implicit_templates(papers: Sequence[TaskPrompt]) -> list[TaskPrompt]:
    """The paper's implicit templates with the two mistakes of the released script."""
    changed = load("occugender_released").content["implicit_templates"]
    return [parse_template(changed.get(str(i), text.raw())) for i, text in enumerate(papers, start=1)]


def explicit_templates(folder: Path | None) -> list[TaskPrompt]:
    """The explicit templates of the released script, which is parsed and never run.

    Raises `ConfigError` if the script is missing, cannot be fetched, or is not that of the commit.
    """
    pinned = PinnedFile(**load("occugender_released").content["explicit_templates"])
    return templates_in(pinned.path(folder, field=f"templates.{COMMIT}").read_text("utf-8"))


def templates_in(script: str) -> list[TaskPrompt]:
    """The list ``prompts`` of the script, which puts ``Q:`` in front of each."""
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "prompts" for t in node.targets):
            return [parse_template(f"Q: {text}") for text in ast.literal_eval(node.value)]
    raise ConfigError(f"templates.{COMMIT}", None, "the script has no list of prompts", "Give the unchanged script")
