"""Mistakes in a suite's own code: the error names its file and line."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from backends.errors import ConfigError
from suites.base import Item, Suite


def items_of(suite: Suite) -> Iterator[Item]:
    """The suite's items. An exception of its code, or anything else than an item, becomes a `ConfigError`."""
    items = iter(suite.items())
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except Exception as error:
            raise raised(suite, error) from error
        if not isinstance(item, Item):
            raise placed(
                suite, "items", item, f"a {type(item).__name__}, not an Item", "Yield Item(id, request, factors)"
            )
        yield item


def raised(suite: Suite, error: Exception) -> ConfigError:
    """An exception of the suite's own code, with its line in the suite's file."""
    if isinstance(error, ConfigError):
        return error
    own = _file_of(suite)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if os.path.realpath(f.filename) == own), None)
    if frame is None:
        return placed(suite, "measures", suite.name, f"{type(error).__name__}: {error}", "Fix its rows or figures")
    problem = f"{frame.name} raised {type(error).__name__}: {error}"
    return ConfigError(f"{_shown(frame.filename)}:{frame.lineno}", frame.line, problem, "Fix that line")


def placed(suite: Suite, method: str | None, value: object, problem: str, hint: str) -> ConfigError:
    """A mistake, placed at the line where a method of the suite begins, or its class."""
    code = _code(suite, method or "items")
    if code is None:  # the method is not a Python function
        return ConfigError(f"suites.{suite.name}", value, problem, hint)
    line = code.co_firstlineno if method else _line_of_class(suite, code)
    return ConfigError(f"{_shown(code.co_filename)}:{line}: {suite.name}", value, problem, hint)


def _code(suite: Suite, method: str) -> CodeType | None:
    found = inspect.unwrap(getattr(type(suite), method))
    return getattr(found, "__code__", None)


def _line_of_class(suite: Suite, code: CodeType) -> int:
    """The line where the suite's class begins; if it is not in that method's file, the method's line."""
    with contextlib.suppress(OSError, SyntaxError):
        for node in ast.walk(ast.parse(Path(code.co_filename).read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name == type(suite).__name__:
                return node.lineno
    return code.co_firstlineno


def _file_of(suite: Suite) -> str:
    code = _code(suite, "items")
    return "" if code is None else os.path.realpath(code.co_filename)


def _shown(path: str) -> str:
    """The path relative to the working folder, if it is inside that."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path
