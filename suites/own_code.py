"""Mistakes in a suite's own code: the error names its file and line."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from backends.checked_fields import WrongField, matches, wrong_value
from backends.errors import ConfigError
from suites.base import Item, Suite

#: Items whose fields are checked while they are made: the first. The rehearsal checks the fields of all.
_CHECKED = 1000


def items_of(suite: Suite, *, checked: float = _CHECKED) -> Iterator[Item]:
    """The suite's items. An exception of its code, or anything else than an item, becomes a `ConfigError`.

    Parameters
    ----------
    checked : float
        So many of the first items have their fields checked.
    """
    method = inspect.getattr_static(type(suite), "items")
    if isinstance(method, property):
        raise placed(suite, "items", "items", "a property, not a method", "Remove @property")
    try:
        made: Any = suite.items()
        if made is None:
            raise placed(suite, "items", None, "it returned None", "Is a yield missing? Write yield Item(…)")
        items = iter(made)
    except ConfigError as error:
        raise located(suite, error) from None
    except Exception as error:
        raise raised(suite, error, "items") from error
    number, is_right = 0, matches(Item)
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except Exception as error:
            raise raised(suite, error, "items") from error
        if number < checked and not is_right(item):
            raise _misbuilt(suite, items, item)
        number += 1
        yield item


def _misbuilt(suite: Suite, items: Iterator[Any], item: object) -> ConfigError:
    """An item with a wrong field, at the line that yielded it."""
    if isinstance(item, Item):
        wrong = wrong_value(item, Item, "Item")
        assert wrong is not None
    else:
        wrong = WrongField(
            suite.name, item, f"a {type(item).__name__}, not an Item", "Yield Item(id, request, factors)"
        )
    code, line = _code(suite, "items"), None
    while (frame := getattr(items, "gi_frame", None)) is not None:  # yield from another generator
        frame_: FrameType = frame
        code, line = frame_.f_code, frame_.f_lineno
        items = getattr(items, "gi_yieldfrom", None) or iter(())
    if code is None or line is None:
        return placed(suite, "items", wrong.value, f"{wrong.place}: {wrong.problem}", wrong.hint)
    return ConfigError(f"{_shown(code.co_filename)}:{line}: {wrong.place}", wrong.value, wrong.problem, wrong.hint)


def raised(suite: Suite, error: Exception, method: str) -> ConfigError:
    """An exception that came up in or behind a method of the suite, with the line in the suite's own file."""
    if isinstance(error, ConfigError):
        return located(suite, error)
    frame = _own_frame(suite, error)
    if frame is None:
        return placed(suite, method, suite.name, f"{method}: {type(error).__name__}: {error}", "Fix that method")
    problem = f"{frame.name} raised {type(error).__name__}: {error}"
    return ConfigError(f"{_shown(frame.filename)}:{frame.lineno}", frame.line, problem, "Fix that line")


def located(suite: Suite, error: ConfigError) -> ConfigError:
    """A refused value with the line of the suite's own file that gave it; unchanged for suites that ship."""
    frame = _own_frame(suite, error)
    if frame is None or _ships(type(suite)):
        return error
    return ConfigError(
        f"{_shown(frame.filename)}:{frame.lineno}: {error.field}", error.value, error.problem, error.hint
    )


def _own_frame(suite: Suite, error: Exception) -> traceback.FrameSummary | None:
    own = _files_of(suite)
    frames = traceback.extract_tb(error.__traceback__)
    return next((f for f in reversed(frames) if os.path.realpath(f.filename) in own), None)


def placed(suite: Suite, method: str | None, value: object, problem: str, hint: str) -> ConfigError:
    """A mistake, placed at the line where a method of the suite begins, or its class."""
    return ConfigError(place_of(suite, method), value, problem, hint)


def misfit(suite: Suite, method: str | None, wrong: WrongField) -> ConfigError:
    """A wrong field of what a method of the suite returned, or of the class itself."""
    place = f"{place_of(suite, method)}: {wrong.place}"
    return ConfigError(place, wrong.value, wrong.problem, wrong.hint)


def place_of(suite: Suite, method: str | None) -> str:
    """File and line where a method of the suite begins, or its class, and the suite's name."""
    code = _code(suite, method) if method else None
    if code is not None:
        return f"{_shown(code.co_filename)}:{code.co_firstlineno}: {suite.name}"
    code = _code(suite, "items")
    if code is None:  # the method is not a Python function
        return f"suites.{suite.name}"
    return f"{_shown(code.co_filename)}:{_line_of_class(suite, code)}: {suite.name}"


def _code(suite: Suite, method: str) -> CodeType | None:
    found = inspect.getattr_static(type(suite), method)
    code_of: Any = found.fget if isinstance(found, property) else found
    return getattr(inspect.unwrap(code_of), "__code__", None)


def _line_of_class(suite: Suite, code: CodeType) -> int:
    """The line where the suite's class begins; if it is not in that method's file, the method's line."""
    with contextlib.suppress(OSError, SyntaxError):
        for node in ast.walk(ast.parse(Path(code.co_filename).read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name == type(suite).__name__:
                return node.lineno
    return code.co_firstlineno


def is_own(suite: Suite, name: str) -> bool:
    """Whether an attribute or a method comes from a class that does not ship."""
    defined = next((of for of in type(suite).__mro__ if name in vars(of)), type(suite))
    return not _ships(defined)


def _ships(of: type) -> bool:
    return of.__module__.startswith("suites.")


def _files_of(suite: Suite) -> frozenset[str]:
    """The files of the suite's class and of the classes that it inherits from, without those that ship."""
    classes = [one for one in type(suite).__mro__ if not _ships(one)] or [type(suite)]
    found = (getattr(inspect.unwrap(one), "__code__", None) for of in classes for one in _methods(of))
    return frozenset(os.path.realpath(code.co_filename) for code in found if code is not None)


def _methods(of: type) -> Iterator[Any]:
    for one in vars(of).values():
        one = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if callable(one):
            yield one


def _shown(path: str) -> str:
    """The path relative to the working folder, if it is inside that."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path
