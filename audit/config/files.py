"""Reads an audit from a Python file or a TOML file."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import backends
import suites as suite_package
from audit.config.kinds import BACKENDS, SUITE_FILES, Kind, made, maker_by_name
from audit.config.options import AuditConfig, has_line, with_line
from backends.base import Backend
from backends.errors import ConfigError
from suites.base import Suite

A = TypeVar("A", bound=AuditConfig)
#: The fields of which a table needs one.
_NAMING: Mapping[Kind, tuple[str, ...]] = {"backend": ("backend", "model"), "suite": ("suite", "file")}


def load_audit(path: str | Path, of: type[A]) -> A:
    """Read an audit of class ``of`` from a Python file (one of its globals) or a TOML file.

    Raises
    ------
    ConfigError
        If the file does not exist, fails to run, or defines no audit.
    """
    path = Path(path)
    if not path.is_file():
        problem = "a folder" if path.is_dir() else "no such file"
        raise ConfigError("CONFIG", str(path), problem, "Give the path of a .py or .toml audit config")
    if path.suffix not in (".toml", ".py"):
        hint = "Rename it, or write the audit in one of the two"
        if path.name.lower().endswith(SUITE_FILES):
            hint = f"If it holds a suite: audit run --suite {path} --model …"
        raise ConfigError("CONFIG", str(path), "not a .py or .toml file", hint)
    audit = (_from_toml if path.suffix == ".toml" else _from_python)(path, of)
    audit.origin = path
    return audit


def _from_python(path: Path, of: type[A]) -> A:
    spec = importlib.util.spec_from_file_location(f"audit_config_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise ConfigError("CONFIG", str(path), f"it calls sys.exit({error.code!r})", "Remove that call") from None
    except Exception as error:
        # The loader gives the code an absolute file name, however the path was written.
        line = next((f.lineno for f in reversed(inspect.trace()) if f.filename == spec.origin), None)
        where = f"{path}:{line}" if line else str(path)
        if isinstance(error, ConfigError):
            field = error.field if has_line(error.field) else f"{where}: {error.field}"
            raise ConfigError(field, error.value, error.problem, error.hint) from None
        raise ConfigError(
            "CONFIG", where, f"running it raised {type(error).__name__}: {error}", "Fix that line"
        ) from error
    finally:
        sys.path.pop(0)
    audits = {name: value for name, value in vars(module).items() if isinstance(value, of)}
    if "audit" in audits:
        return audits["audit"]
    if len(audits) == 1:
        return next(iter(audits.values()))
    problem = f"it defines {len(audits)} audits ({', '.join(audits)})" if audits else "it defines no Audit"
    raise ConfigError("CONFIG", str(path), problem, "Name the one to run `audit`: audit = Audit(models=…, suites=…)")


def _from_toml(path: Path, of: type[A]) -> A:
    try:
        text = path.read_text("utf-8")
        fields = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("CONFIG", str(path), f"not valid TOML: {error}", "Fix the file") from None
    try:
        return _of_tables(fields, path, of)
    except ConfigError as error:
        raise with_line(error, path) from None


def _of_tables(fields: dict[str, Any], path: Path, of: type[A]) -> A:
    if "kind" in fields and not fields.keys() & {"models", "suites"}:
        hint = f"Run it as one: audit run --suite {path} --model …"
        raise ConfigError("kind", fields["kind"], "this file holds a suite, not an audit", hint)
    models = _tables(fields, "models", 'e.g. [models.mine] backend = "hf", model = "path-or-hub-id"')
    fields["models"] = {name: _model(f"models.{name}", table, path.parent) for name, table in models.items()}
    suites = _tables(fields, "suites", 'e.g. [suites.occugender] suite = "OccuGender"')
    fields["suites"] = {
        name: _from_file(f"suites.{name}", table, path.parent)
        if isinstance(table, Mapping) and _file_of(table) is not None
        else _build(f"suites.{name}", table, "suite", path.parent)
        for name, table in suites.items()
    }
    return of(**fields)


def _model(field: str, table: Any, folder: Path) -> Backend:
    """The backend that a table describes; a ``model`` alone is named as on the command line."""
    if isinstance(table, Mapping) and "backend" not in table and isinstance(table.get("model"), str):
        for name in table:
            if name not in ("model", "api_key_env"):
                hint = f"Name its backend too, e.g. one of: {', '.join(BACKENDS)}"
                raise ConfigError(f"{field}.{name}", table[name], "an option of a backend that is not named", hint)
        found = _relative_to(folder, table, {"model": ("fake",)})
        try:
            return backends.named_backend(found["model"], api_key_env=found.get("api_key_env"))
        except ConfigError as error:
            option = "api_key_env" if error.field == "api_key_env" else "model"
            raise ConfigError(f"{field}.{option}", error.value, error.problem, error.hint) from None
    built: Backend = _build(field, table, "backend", folder)
    return built


def _file_of(table: Mapping[str, Any]) -> Any:
    """The file that a table names in ``file`` or ``suite``; None if it names none."""
    suite = table.get("suite")
    is_file = isinstance(suite, str) and suite.lower().endswith(SUITE_FILES)
    return table.get("file", suite if is_file else None)


def _from_file(field: str, table: Mapping[str, Any], folder: Path) -> Suite:
    """The suite of a table that names a file; the table's other fields override the file's."""
    file = _file_of(table)
    if "file" in table and "suite" in table:
        raise ConfigError(f"{field}.suite", table["suite"], "a file is given as well", "Keep one of the two")
    options = {name: value for name, value in table.items() if name not in ("file", "suite")}
    if not isinstance(file, str) or not (folder / file).is_file():
        hint = f"Looked for {(folder / file).absolute()}" if isinstance(file, str) else "Give a path in quotes"
        raise ConfigError(f"{field}.file", file, "no such file", hint)
    try:
        suite: Suite = suite_package.from_file(folder / file, **options)
    except ConfigError as error:
        raise _placed(error, field, options) from None
    return suite


def _placed(error: ConfigError, field: str, options: Mapping[str, Any]) -> ConfigError:
    """The error under its table's field; of an option that is written there, without the name of a suite's file."""
    option = re.sub(r"^[^:]+: ", "", error.field)
    if option.split(".")[0] in options:
        return ConfigError(f"{field}.{option}", error.value, error.problem, error.hint)
    return error if error.field == field else error.within(field)


def _tables(fields: Mapping[str, Any], name: str, example: str) -> Mapping[str, Any]:
    tables = fields.get(name)
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError(name, tables, "missing or not a table", f"Write one table for each, {example}")
    return tables


def _build(field: str, table: Any, kind_field: Kind, folder: Path) -> Any:
    """The backend or suite that a table describes; ``kind_field`` is the field with its class."""
    if not isinstance(table, Mapping):
        raise ConfigError(field, table, "not a table", f"Write it as [{field}]")
    options = dict(table)
    kind = options.pop(kind_field, None)
    if kind is None:
        for name in options:
            if close := difflib.get_close_matches(name, _NAMING[kind_field], n=1, cutoff=0.7):
                raise ConfigError(f"{field}.{name}", options[name], "unknown field", f"Did you mean {close[0]!r}?")
    maker = maker_by_name(kind_field, kind, f"{field}.{kind_field}")
    try:
        return made(kind_field, maker, _relative_to(folder, options, getattr(maker, "path_options", {})), field)
    except ConfigError as error:
        raise _placed(error, field, options) from None


def _relative_to(folder: Path, options: Mapping[str, Any], paths: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """The options, with paths that exist in the config's folder made relative to it."""
    found = dict(options)
    for name, value in options.items():
        if isinstance(value, Mapping):
            found[name] = _relative_to(folder, value, paths)
        elif name in paths and isinstance(value, str) and value and value not in paths[name]:
            found[name] = str(folder / value) if (folder / value).exists() else value
    return found
