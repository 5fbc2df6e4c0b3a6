"""Suites, backends and scorers of other installed packages: found by their entry points, imported when named.

[project.entry-points."bias_audit.suites"]      a class of `suites.base.Suite`, or a function that returns one
[project.entry-points."bias_audit.backends"]    a class of `backends.base.Backend`, or a function that returns one
[project.entry-points."bias_audit.scorers"]     a function without arguments that returns a
                                                `suites.common.text_scorer.TextScorer`
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any, Literal

from backends.errors import ConfigError

PluginKind = Literal["suites", "backends", "scorers"]


@dataclass(frozen=True)
class Plugin:
    """An entry point of another package. ``packages``: all that register this name; usually one."""

    name: str
    packages: tuple[str, ...]
    entry_point: importlib.metadata.EntryPoint

    def load(self) -> Any:
        """Import it.

        Raises
        ------
        ConfigError
            When it cannot be imported, or two packages register the name.
        """
        where = f"{self.entry_point.group}.{self.name}"
        if len(self.packages) > 1:
            raise ConfigError(where, self.packages, "several packages register this name", "Uninstall all but one")
        try:
            return self.entry_point.load()
        except Exception as error:
            problem = f"the package {self.packages[0]} cannot be imported: {type(error).__name__}: {error}"
            raise ConfigError(
                where, self.entry_point.value, problem, "Reinstall the package, or remove the option"
            ) from error


def plugins(kind: PluginKind) -> dict[str, Plugin]:
    """The plugins of installed packages, by name. Nothing is imported."""
    found: dict[str, Plugin] = {}
    for entry in importlib.metadata.entry_points(group=f"bias_audit.{kind}"):
        package = entry.dist.name if entry.dist is not None else "unknown"
        before = found[entry.name].packages if entry.name in found else ()
        found[entry.name] = Plugin(entry.name, tuple(sorted({*before, package})), entry)
    return dict(sorted(found.items()))
