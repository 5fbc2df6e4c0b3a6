"""What to audit: models, suites and the rules of the comparison; from Python or from a TOML file.

Every error that can be detected without a model is reported here, before one is loaded.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import math
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import BeforeValidator, Field

import backends
import suites as suite_package
from backends.base import Backend
from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, checked_options, refused, refused_at
from backends.plugins import plugins
from backends.toml_lines import lines_of
from suites.base import Suite
from suites.own_code import items_of

#: Names of backends in a TOML config.
BACKENDS = {
    "hf": "HFBackend",
    "llamacpp": "LlamaCppBackend",
    "openai": "OpenAIBackend",
    "anthropic": "AnthropicBackend",
    "fake": "FakeBackend",
    "recorded": "RecordedBackend",
}
#: File endings of suites.
SUITE_FILES = (".csv", ".tsv", ".jsonl", ".parquet", ".toml")
_SUITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def _check_models(models: Any) -> Any:
    hint = 'Give one backend or more by name, e.g. models={"mine": HFBackend(…)}'
    if not isinstance(models, Mapping):
        raise refused("not a mapping of names to backends", hint)
    if not models:
        raise refused("no models", hint)
    for name, backend in models.items():
        if not isinstance(name, str) or not name.strip():
            raise refused("a model without a name", "Name each model with a text")
        if not name.isprintable():
            raise refused_at((name,), name, "control or invisible characters in a model's name", "Remove them")
        if not isinstance(backend, Backend):
            hint = "Use HFBackend, LlamaCppBackend, OpenAIBackend, AnthropicBackend or your own"
            raise refused_at((name,), backend, "not a backend", hint)
    return models


def _name_suites(suites: Any) -> dict[str, Suite]:
    """A sequence or mapping of suites, by name."""
    if not isinstance(suites, Mapping | Sequence) or isinstance(suites, str):
        raise refused("not a list of suites", "Write it as a list, e.g. suites=[OccuGender()]")
    if not suites:
        raise refused("no suites", "Give at least one, e.g. suites=[OccuGender()]")
    named: dict[str, Suite] = {}
    entries = suites.items() if isinstance(suites, Mapping) else enumerate(suites)
    for place, suite in entries:
        if isinstance(suite, type) and issubclass(suite, Suite):
            raise refused_at((place,), suite, "a class, not an instance", f"Write {suite.__name__}()")
        if not isinstance(suite, Suite):
            raise refused_at(
                (place,), suite, "not a suite", "Use one of the package `suites`, `suites.from_file`, or your own"
            )
        name = suite.name if isinstance(place, int) else place
        if not isinstance(name, str) or not _SUITE_NAME.fullmatch(name):
            raise refused(f"{name!r} is not a valid suite name", "Use letters, digits and . _ + -")
        if name in named:
            hint = f'Give a mapping: suites={{"{name}": …, "{name}-chat": …}}'
            raise refused(f"two suites are called {name!r}", hint)
        named[name] = suite
    return named


def _check_bounds(bounds: Any) -> tuple[float | None, float | None]:
    """A limit as (at least, at most). An infinite bound counts as None, since TOML cannot write None."""
    hint = "Give (at least, at most), None where open, e.g. (None, 0.3)"
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise refused("not a pair", hint)
    for bound in bounds:
        is_number = isinstance(bound, int | float) and not isinstance(bound, bool) and not math.isnan(bound)
        if bound is not None and not is_number:
            raise refused("not numbers", hint)
    least, most = (None if bound is None or math.isinf(bound) else float(bound) for bound in bounds)
    if least is None and most is None:
        raise refused("both sides are open, so this limits nothing", hint)
    if least is not None and most is not None and least > most:
        raise refused("the lower limit exceeds the upper limit, so no figure can meet it", hint)
    return least, most


def _check_shard(shard: Any) -> Any:
    """A part of an audit as (number, of how many), from that or from text such as 2/3."""
    if shard is None:
        return None
    parts = shard.split("/") if isinstance(shard, str) else shard
    is_pair = isinstance(parts, Sequence) and len(parts) == 2 and all(str(part).isdecimal() for part in parts)
    if not is_pair or not 1 <= int(parts[0]) <= int(parts[1]):
        raise refused("not a part", "Give I/N, e.g. 2/3 for the second of three")
    return int(parts[0]), int(parts[1])


Margin = Annotated[float, Field(ge=0), OnError("not a margin", "Give a number, 0 or more, without quotes")]
Bounds = Annotated[tuple[float | None, float | None], BeforeValidator(_check_bounds)]
Group = Annotated[tuple[str, ...], AS_TUPLE]


class AuditConfig:
    """The checked options of an audit. `audit.Audit` says what they mean."""

    @checked_options
    def __init__(
        self,
        models: Annotated[Mapping[str, Backend], BeforeValidator(_check_models)],
        suites: Annotated[Sequence[Suite] | Mapping[str, Suite], BeforeValidator(_name_suites)],
        *,
        title: Annotated[
            str, OnError("not a text", 'Write it in quotes, e.g. title="March audit"')
        ] = "Gender bias audit",
        db: str | Path = "audit.db",
        out: str | Path = "audit-out",
        seed: Annotated[int, OnError("not a whole number", "Give one, e.g. 0")] = 0,
        limit: Annotated[
            Annotated[int, Field(ge=1)] | None, OnError("not a number of items", "Give 1 or more, or leave it out")
        ] = None,
        confidence: Annotated[
            float, Field(gt=0, lt=1), OnError("not a confidence level", "Give a number between 0 and 1, without quotes")
        ] = 0.95,
        margins: Margin | Mapping[str, Margin] = 0.02,
        limits: Mapping[str, Bounds] | None = None,
        largest_change: Annotated[
            Annotated[float, Field(ge=0)] | None, OnError("not a change", "Give a number, 0 or more, or leave it out")
        ] = None,
        unseen_log_odds: Annotated[
            float, Field(ge=0, le=20), OnError("not log-odds", "Give a number from 0 (no room) to 20; 1 by default")
        ] = 1.0,
        same_weights: Annotated[tuple[Group, ...], AS_TUPLE] = (),
        ladder: Annotated[tuple[Group, ...], AS_TUPLE] = (),
        small_sample: bool = False,
        until: Annotated[
            Literal["decided"] | Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
            OnError("unknown", 'Give "decided", half the width of an interval (e.g. 0.03), or leave it out'),
        ] = None,
        shard: Annotated[tuple[int, int] | None, BeforeValidator(_check_shard)] = None,
    ) -> None:
        for option, path in (("db", db), ("out", out)):
            if not str(path):
                raise ConfigError(option, path, "empty", "Give a path")
        self.models = dict(models)
        self.suites = dict(cast(Mapping[str, Suite], suites))
        self.title, self.db, self.out = title, Path(db).expanduser(), Path(out).expanduser()
        self.seed, self.limit, self.confidence = seed, limit, confidence
        self.margins, self.limits = margins, dict(limits or {})
        self.same_weights, self.ladder = same_weights, ladder
        self.largest_change, self.small_sample, self.until = largest_change, small_sample, until
        self.unseen_log_odds, self.shard = unseen_log_odds, shard
        if shard is not None and until is not None:
            raise ConfigError("shard", shard, "a part of the items decides nothing", "Leave out `until`")
        for option, groups in (("same_weights", same_weights), ("ladder", ladder)):
            for name in (name for group in groups for name in group):
                if name not in self.models:
                    raise ConfigError(option, name, "not a model of this audit", f"Known: {', '.join(self.models)}")

    def check(self) -> None:
        """Raise `ConfigError` for anything that is wrong and can be detected without loading a model."""
        self.check_models()
        for name, suite in self.suites.items():
            if next(items_of(suite), None) is None:
                raise ConfigError(f"suites.{name}", type(suite).__name__, "the suite has no items", "Widen its options")

    def check_models(self) -> None:
        """Like `check`, but only for the models."""
        for name, backend in self.models.items():
            try:
                backend.check()
            except ConfigError as error:
                raise error.within(f"models.{name}") from None

    def only(self, models: Sequence[str] = (), suites: Sequence[str] = (), **changes: Any) -> Self:
        """The same audit restricted to the named models and suites (all if none are named), with changed options."""
        kept = _pick("--models", self.models, models)
        names: tuple[str, ...] = ("title", "db", "out", "seed", "limit", "confidence", "margins", "limits")
        names += ("largest_change", "unseen_log_odds", "small_sample", "until", "shard")
        options = {name: getattr(self, name) for name in names} | changes
        groups: dict[str, Any] = {
            option: tuple(tuple(name for name in group if name in kept) for group in getattr(self, option))
            for option in ("same_weights", "ladder")
        }
        return type(self)(kept, _pick("--suites", self.suites, suites), **groups, **options)


A = TypeVar("A", bound=AuditConfig)


def load_audit(path: str | Path, of: type[A]) -> A:
    """Read an audit of class ``of`` from a Python file (one of its globals) or a TOML file.

    Raises
    ------
    ConfigError
        If the file does not exist, fails to run, or defines no audit.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError("CONFIG", str(path), "no such file", "Give the path of a .py or .toml audit config")
    if path.suffix == ".toml":
        return _from_toml(path, of)
    if path.suffix == ".py":
        return _from_python(path, of)
    raise ConfigError("CONFIG", str(path), "not a .py or .toml file", "Rename it, or write the audit in one of the two")


def _from_python(path: Path, of: type[A]) -> A:
    spec = importlib.util.spec_from_file_location(f"audit_config_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        # The loader gives the code an absolute file name, however the path was written.
        line = next((f.lineno for f in reversed(inspect.trace()) if f.filename == spec.origin), None)
        where = f"{path}:{line}" if line else str(path)
        if isinstance(error, ConfigError):
            raise ConfigError(f"{where}: {error.field}", error.value, error.problem, error.hint) from None
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
        raise _with_line(error, path, text) from None


def _with_line(error: ConfigError, path: Path, text: str) -> ConfigError:
    """The error with the line of its field, or of the table that the field is missing from."""
    if re.search(r":\d+(: |$)", error.field):  # of another file, named with its own line
        return error
    shown = {
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix("."): line
        for place, line in lines_of(text).items()
    }
    above = [name for name in shown if error.field == name or error.field.startswith((f"{name}.", f"{name}["))]
    if not above:
        return error
    line = shown[max(above, key=len)]
    return ConfigError(f"{path.name}:{line}: {error.field}", error.value, error.problem, error.hint)


def _of_tables(fields: dict[str, Any], path: Path, of: type[A]) -> A:
    models = _tables(fields, "models", 'e.g. [models.mine] backend = "hf", model = "path-or-hub-id"')
    fields["models"] = {name: _build(f"models.{name}", table, "backend", path.parent) for name, table in models.items()}
    suites = _tables(fields, "suites", 'e.g. [suites.occugender] suite = "OccuGender"')
    fields["suites"] = {
        name: _from_file(f"suites.{name}", table, path.parent)
        if isinstance(table, Mapping) and _file_of(table) is not None
        else _build(f"suites.{name}", table, "suite", path.parent)
        for name, table in suites.items()
    }
    return of(**fields)


def own_kinds(of: Literal["backend", "suite"]) -> dict[str, Callable[[], Any]]:
    """The classes of this package that a config can name, as functions that import them."""
    if of == "backend":
        return {kind: partial(getattr, backends, name) for kind, name in BACKENDS.items()}
    return {name: partial(getattr, suite_package, name) for name in suite_package.__all__}


def kinds(of: Literal["backend", "suite"]) -> dict[str, Callable[[], Any]]:
    """Those, and the classes of other packages; where names clash, a config means this package's."""
    added = plugins("backends" if of == "backend" else "suites")
    return {**{name: plugin.load for name, plugin in added.items()}, **own_kinds(of)}


def class_by_name(of: Literal["backend", "suite"], name: object, field: str) -> Any:
    """The backend or suite class of that name. Raises `ConfigError` if there is none, or it is something else."""
    known = kinds(of)
    if not isinstance(name, str) or name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        did = f"Did you mean {close[0]!r}? " if close else ""
        file = f", or a suite's file ({', '.join(SUITE_FILES)})" if of == "suite" else ""
        raise ConfigError(field, name, "unknown", f"{did}Use one of: {', '.join(known)}{file}")
    found = known[name]()
    if not (isinstance(found, type) and issubclass(found, Backend if of == "backend" else Suite)):
        raise ConfigError(field, name, f"a {type(found).__name__}, not a {of} class", "Fix the plugin")
    return found


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
        raise ConfigError(f"{field}.file", file, "no such file", f"Looked in {folder}")
    try:
        suite: Suite = suite_package.from_file(folder / file, **options)
    except ConfigError as error:
        raise error.within(field) from None
    return suite


def _tables(fields: Mapping[str, Any], name: str, example: str) -> Mapping[str, Any]:
    tables = fields.get(name)
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError(name, tables, "missing or not a table", f"Write one table for each, {example}")
    return tables


def _build(field: str, table: Any, kind_field: Literal["backend", "suite"], folder: Path) -> Any:
    """The backend or suite that a table describes; ``kind_field`` is the field with its class."""
    if not isinstance(table, Mapping):
        raise ConfigError(field, table, "not a table", f"Write it as [{field}]")
    options = dict(table)
    kind = options.pop(kind_field, None)
    found = class_by_name(kind_field, kind, f"{field}.{kind_field}")
    try:
        return found(**_relative_to(folder, options, found.path_options))
    except ConfigError as error:
        raise error.within(field) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(field, options, f"{kind} rejected it: {error}", "Fix that value") from error


def _relative_to(folder: Path, options: Mapping[str, Any], paths: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """The options, with paths that exist in the config's folder made relative to it."""
    found = dict(options)
    for name, value in options.items():
        if isinstance(value, Mapping):
            found[name] = _relative_to(folder, value, paths)
        elif name in paths and isinstance(value, str) and value and value not in paths[name]:
            found[name] = str(folder / value) if (folder / value).exists() else value
    return found


def _pick(option: str, available: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    for name in names:
        if name not in available:
            close = difflib.get_close_matches(name, available, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise ConfigError(option, name, "not in this audit", f"{hint}Known: {', '.join(available)}")
    return {name: value for name, value in available.items() if not names or name in names}
