"""What to audit: models, suites and the rules of the comparison, each option checked before a model is loaded."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field

from backends.base import Backend
from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, checked_options, refused, refused_at
from suites.base import Suite

if TYPE_CHECKING:
    from audit.collect.executors import Executor

from backends.options.toml_lines import lines_of

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
            hint = "Use HFBackend, LlamaCppBackend, VLLMBackend, OpenAIBackend, AnthropicBackend or your own"
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
    """A limit as (at least, at most), from that or from a table; an infinite bound is an open one."""
    hint = "Give (at least, at most), None where open, e.g. (None, 0.3); or a table, e.g. {at_most = 0.3} in TOML"
    if isinstance(bounds, Mapping) and bounds and bounds.keys() <= {"at_least", "at_most"}:
        bounds = (bounds.get("at_least"), bounds.get("at_most"))
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


def _check_executor(executor: Any) -> Any:
    from audit.collect.executors import Executor

    if not isinstance(executor, Executor | None):
        raise refused("not an executor", "Leave it out, or give RayExecutor(…)")
    return executor


Margin = Annotated[float, Field(ge=0), OnError("not a margin", "Give a number, 0 or more, without quotes")]
Bounds = Annotated[tuple[float | None, float | None], BeforeValidator(_check_bounds)]
Group = Annotated[tuple[str, ...], AS_TUPLE]


class AuditConfig:
    """The checked options of an audit. `audit.Audit` says what they mean.

    Attributes
    ----------
    origin : Path or None
        The file that it was read from, for the lines in error messages.
    changed : mapping
        The options in which it differs from that file, among them ``models`` and ``suites`` if some were left out.
    """

    origin: Path | None = None
    changed: Mapping[str, Any] = MappingProxyType({})

    @checked_options
    def __init__(
        self,
        models: Annotated[Mapping[str, Backend], BeforeValidator(_check_models)],
        suites: Annotated[Sequence[Suite] | Mapping[str, Suite], BeforeValidator(_name_suites)],
        *,
        title: Annotated[str | None, OnError("not a text", 'Write it in quotes, e.g. title="March audit"')] = None,
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
        same_weights: Annotated[tuple[Group, ...], AS_TUPLE] = (),
        ladder: Annotated[tuple[Group, ...], AS_TUPLE] = (),
        runs: Annotated[
            Annotated[int, Field(ge=1, le=20)], OnError("not a number of runs", "Give 1 to 20, e.g. 3")
        ] = 1,
        small_sample: bool = False,
        until: Annotated[
            Literal["decided"] | Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
            OnError("unknown", 'Give "decided", half the width of an interval (e.g. 0.03), or leave it out'),
        ] = None,
        shard: Annotated[tuple[int, int] | None, BeforeValidator(_check_shard)] = None,
        executor: Annotated[Any, BeforeValidator(_check_executor)] = None,
        store_shards: Annotated[
            Annotated[int, Field(ge=1, le=256)] | None,
            OnError("not a number of shards", "Give 1 to 256, or leave it out"),
        ] = None,
    ) -> None:
        for option, path in (("db", db), ("out", out)):
            if not str(path):
                raise ConfigError(option, path, "empty", "Give a path")
        self.models = dict(models)
        self.suites = dict(cast(Mapping[str, Suite], suites))
        self.title = title or f"Bias audit: {', '.join(suite.title or suite.name for suite in self.suites.values())}"
        if any("\ud800" <= char <= "\udfff" for char in self.title):
            raise ConfigError("title", self.title, "holds half a character, which no file can hold", "Remove it")
        self.db, self.out = Path(db).expanduser(), Path(out).expanduser()
        self.seed, self.limit, self.confidence = seed, limit, confidence
        self.margins, self.limits = margins, dict(limits or {})
        self.same_weights, self.ladder = same_weights, ladder
        self.runs, self.small_sample, self.until = runs, small_sample, until
        self.shard = shard
        self.executor: Executor | None = executor
        self.store_shards = store_shards
        if shard is not None and until is not None:
            raise ConfigError("shard", shard, "a part of the items decides nothing", "Leave out `until`")
        for option, groups in (("same_weights", same_weights), ("ladder", ladder)):
            for name in (name for group in groups for name in group):
                if name not in self.models:
                    raise ConfigError(option, name, "not a model of this audit", f"Known: {', '.join(self.models)}")

    def check(self) -> None:
        """Raise `ConfigError` for anything that is wrong and can be detected without loading a model."""
        for error in self.mistakes():
            raise error
        for name, suite in self.suites.items():
            if next(iter(suite.items()), None) is None:
                raise ConfigError(f"suites.{name}", type(suite).__name__, "the suite has no items", "Widen its options")

    def mistakes(self) -> Iterator[ConfigError]:
        """What is wrong with the models, and with each suite's classifiers and raters, named by their places."""
        named = {f"models.{name}": backend for name, backend in self.models.items()}
        for name, suite in self.suites.items():
            named |= {f"suites.{name}.{scorer}": backend for scorer, backend in suite.scorers.items()}
        for place, backend in named.items():
            try:
                backend.check()
            except ConfigError as error:
                yield error.within(place)

    def only(self, models: Sequence[str] = (), suites: Sequence[str] = (), **changes: Any) -> Self:
        """The same audit restricted to the named models and suites (all if none are named), with changed options."""
        kept = _pick("--models", self.models, models)
        names: tuple[str, ...] = ("title", "db", "out", "seed", "limit", "confidence", "margins", "limits")
        names += ("runs", "small_sample", "until", "shard", "executor", "store_shards")
        options = {name: getattr(self, name) for name in names} | changes
        groups: dict[str, Any] = {
            option: tuple(tuple(name for name in group if name in kept) for group in getattr(self, option))
            for option in ("same_weights", "ladder")
        }
        found = type(self)(kept, _pick("--suites", self.suites, suites), **groups, **options)
        found.origin = self.origin
        narrowed = {option: tuple(names) for option, names in (("models", models), ("suites", suites)) if names}
        found.changed = {**self.changed, **changes, **narrowed}
        return found

    def located(self, error: ConfigError) -> ConfigError:
        """An error about one of the options with the line of a TOML config where it is written."""
        origin = self.origin
        return error if origin is None or origin.suffix != ".toml" else with_line(error, origin)


def _pick(option: str, available: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    for name in names:
        if name not in available:
            close = difflib.get_close_matches(name, available, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise ConfigError(option, name, "not in this audit", f"{hint}Known: {', '.join(available)}")
    return {name: value for name, value in available.items() if not names or name in names}


def with_line(error: ConfigError, path: Path) -> ConfigError:
    """The error with the file and line of its field, or of what the field is missing from, if they can be told."""
    if has_line(error.field):  # of another file
        return error
    try:
        line = _toml_line(path.read_text("utf-8"), error.field)
    except (OSError, ValueError):  # the file has changed since it was read
        return error
    if line is None:
        return error
    return ConfigError(f"{path.name}:{line}: {error.field}", error.value, error.problem, error.hint)


def has_line(field: str) -> bool:
    """Whether a field is named with a file and line of its own."""
    return re.search(r":\d+(: |$)", field) is not None


def _toml_line(text: str, field: str) -> int | None:
    """The line of a field, or of the table that it is missing from."""
    shown: Mapping[str, int] = {
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix("."): line
        for place, line in lines_of(text).items()
    }
    above = [name for name in shown if field == name or field.startswith((f"{name}.", f"{name}["))]
    return shown[max(above, key=len)] if above else None
