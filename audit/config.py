"""What to audit: models, suites and the rules of judgement; from Python or from a TOML file.

Everything that can be seen to be wrong is told here, before any model is loaded.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib.util
import inspect
import math
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import backends
import suites as suite_package
from backends.base import Backend
from backends.errors import ConfigError
from suites.base import Suite

if TYPE_CHECKING:
    from audit.results import AuditResult

#: Names of backends in a TOML config.
BACKENDS = {"hf": "HFBackend", "llamacpp": "LlamaCppBackend", "openai": "OpenAIBackend", "fake": "FakeBackend"}
#: Options that may be a path to read from, in tables too, and the names that they take beside one.
_PATHS: Mapping[str, Collection[str]] = {
    "model": (),
    "adapter": (),
    "key_file": (),
    "bolukbasi": (),
    "pairs": ("built-in", "published"),
    "toxicity": ("profanity", "paper"),
    "regard": ("vader", "paper"),
}
_SUITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class Audit:
    """An audit: which suites are asked of which models, and how the answers are judged.

    Parameters
    ----------
    models : mapping of str to Backend
        The models by the names that the report shows.
    suites : sequence or mapping of str to Suite
        The suites. Two of one kind (say raw and chat) need names of their own: give a mapping.
    title : str
        Heading of the report.
    db : path
        The store of answers. Answers found there are not asked again.
    out : path
        Folder for the report.
    seed : int
        Seed of samples and resampling.
    limit : int, optional
        Ask only about so many items of each suite: a balanced sample, the same for every model.
    confidence : float
        Level of all intervals, in (0, 1).
    margins : float or mapping of measure name to float
        Differences smaller than this do not matter: two models within it are "equivalent". A figure
        without a better side (``p_female``, the ``effect`` of a text) is gated only if named here.
    limits : mapping, optional
        Absolute limits that a gate enforces, e.g. ``{"stereotype_gap": (None, 0.3)}`` as (at
        least, at most), decided on the interval.
    same_weights : sequence of groups of model names
        Models with the same weights on different engines, where the weights' hashes do not show
        it (a server's do not). What differs within a group is reported as engine noise.

    Raises
    ------
    ConfigError
        Naming the field, the value and the mend.
    """

    def __init__(
        self,
        models: Mapping[str, Backend],
        suites: Sequence[Suite] | Mapping[str, Suite],
        *,
        title: str = "Gender bias audit",
        db: str | Path = "audit.db",
        out: str | Path = "audit-out",
        seed: int = 0,
        limit: int | None = None,
        confidence: float = 0.95,
        margins: float | Mapping[str, float] = 0.02,
        limits: Mapping[str, tuple[float | None, float | None]] | None = None,
        same_weights: Sequence[Sequence[str]] = (),
    ) -> None:
        self.models = _checked_models(models)
        self.suites = _named_suites(suites)
        self.title, self.db, self.out = title, Path(db).expanduser(), Path(out).expanduser()
        self.seed, self.limit, self.confidence = seed, limit, confidence
        self.margins = margins
        self.limits = {name: _as_limit(name, bounds) for name, bounds in dict(limits or {}).items()}
        self.same_weights = tuple(tuple(group) for group in same_weights)
        if not isinstance(title, str):
            raise ConfigError("title", title, "not a text", 'Write it in quotes, e.g. title="March audit"')
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError("seed", seed, "not a whole number", "Give one, e.g. 0")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise ConfigError("limit", limit, "not a number of items", "Give 1 or more, or leave it out")
        if not _is_number(confidence) or not 0 < confidence < 1:
            raise ConfigError("confidence", confidence, "not a confidence level", "Give a value between 0 and 1")
        for name, margin in _as_margins(margins).items():
            if not _is_number(margin) or not margin >= 0:
                raise ConfigError(f"margins.{name}", margin, "not a margin", "Give 0 or more")
        for name in (name for group in self.same_weights for name in group):
            if name not in self.models:
                raise ConfigError("same_weights", name, "no model of this audit", f"Known: {', '.join(self.models)}")

    def check(self) -> None:
        """Raise `ConfigError` for anything that can be seen to be wrong without loading a model."""
        for name, backend in self.models.items():
            try:
                backend.check()
            except ConfigError as error:
                raise error.within(f"models.{name}") from None
        for name, suite in self.suites.items():
            if next(iter(suite.items()), None) is None:
                raise ConfigError(f"suites.{name}", type(suite).__name__, "the suite has no items", "Widen its options")

    def only(self, models: Sequence[str] = (), suites: Sequence[str] = ()) -> Audit:
        """The same audit narrowed to some models and suites; nothing named means all."""
        kept = _pick("--models", self.models, models)
        return Audit(
            kept,
            _pick("--suites", self.suites, suites),
            title=self.title,
            db=self.db,
            out=self.out,
            seed=self.seed,
            limit=self.limit,
            confidence=self.confidence,
            margins=self.margins,
            limits=self.limits,
            same_weights=[[name for name in group if name in kept] for group in self.same_weights],
        )

    async def run(self, **options: Any) -> AuditResult:
        """Ask what is missing, judge, and return the result. See `audit.run.run_audit`."""
        from audit.run import run_audit

        return await run_audit(self, **options)

    def run_sync(self, **options: Any) -> AuditResult:
        """`run`, for callers without an event loop."""
        return asyncio.run(self.run(**options))


def load_audit(path: str | Path) -> Audit:
    """Read an audit from a Python file (a global of type `Audit`) or a TOML file.

    Raises
    ------
    ConfigError
        When the file is not there, cannot be run, or holds no audit.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError("CONFIG", str(path), "no such file", "Give the path of a .py or .toml audit config")
    if path.suffix == ".toml":
        return _from_toml(path)
    if path.suffix == ".py":
        return _from_python(path)
    raise ConfigError("CONFIG", str(path), "not a .py or .toml file", "Rename it, or write the audit in one of the two")


def _from_python(path: Path) -> Audit:
    spec = importlib.util.spec_from_file_location(f"audit_config_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:
        # The loader gives the code an absolute file name, however the path was written.
        line = next((f.lineno for f in reversed(inspect.trace()) if f.filename == spec.origin), None)
        where = f"{path}:{line}" if line else str(path)
        raise ConfigError(
            "CONFIG", where, f"running it raised {type(error).__name__}: {error}", "Mend that line"
        ) from error
    finally:
        sys.path.pop(0)
    found = {name: value for name, value in vars(module).items() if isinstance(value, Audit)}
    if "audit" in found:
        return found["audit"]
    if len(found) == 1:
        return next(iter(found.values()))
    problem = f"it defines {len(found)} audits ({', '.join(found)})" if found else "it defines no Audit"
    raise ConfigError("CONFIG", str(path), problem, "Name the one to run `audit`: audit = Audit(models=…, suites=…)")


def _from_toml(path: Path) -> Audit:
    try:
        fields = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("CONFIG", str(path), f"not valid TOML: {error}", "Mend the file") from None
    models = _table(fields, "models", 'e.g. [models.mine] backend = "hf", model = "path-or-hub-id"')
    suites = _table(fields, "suites", 'e.g. [suites.occugender] suite = "OccuGender"')
    fields["models"] = {
        name: _build(
            f"models.{name}", entry, "backend", BACKENDS, lambda kind: getattr(backends, BACKENDS[kind]), path.parent
        )
        for name, entry in models.items()
    }
    names = {name: name for name in suite_package.__all__}
    fields["suites"] = {
        name: _build(f"suites.{name}", entry, "suite", names, lambda kind: getattr(suite_package, kind), path.parent)
        for name, entry in suites.items()
    }
    audit: Audit = _called(Audit, fields, "")
    return audit


def _table(fields: Mapping[str, Any], name: str, example: str) -> Mapping[str, Any]:
    table = fields.get(name)
    if not isinstance(table, Mapping) or not table:
        raise ConfigError(name, table, "missing or not a table", f"Write one table for each, {example}")
    return table


def _build(
    field: str,
    entry: Any,
    kind_field: str,
    kinds: Mapping[str, str],
    class_of: Callable[[str], Callable[..., Any]],
    folder: Path,
) -> Any:
    if not isinstance(entry, Mapping):
        raise ConfigError(field, entry, "not a table", f"Write it as [{field}]")
    options = dict(entry)
    kind = options.pop(kind_field, None)
    if kind not in kinds:
        raise ConfigError(f"{field}.{kind_field}", kind, "unknown", f"Use one of: {', '.join(kinds)}")
    # A server's model is a name that means nothing here, whatever lies beside the config.
    paths = {name: words for name, words in _PATHS.items() if (kind, name) != ("openai", "model")}
    return _called(class_of(kind), _relative_to(folder, options, paths), field)


def _relative_to(folder: Path, options: Mapping[str, Any], paths: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """The options, each path of them taken from the config's folder where it lies there; else as it is."""
    found = dict(options)
    for name, value in options.items():
        if isinstance(value, Mapping):
            found[name] = _relative_to(folder, value, paths)
        elif name in paths and isinstance(value, str) and value and value not in paths[name]:
            found[name] = str(folder / value) if (folder / value).exists() else value
    return found


def _called(target: Callable[..., Any], options: Mapping[str, Any], field: str) -> Any:
    """Call a constructor by keyword; an unknown or missing field becomes a clear error."""
    prefix = f"{field}." if field else ""
    known = [
        p.name for p in inspect.signature(target).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "Remove it."
            raise ConfigError(f"{prefix}{name}", value, "unknown field", f"{hint} Known fields: {', '.join(known)}")
    for parameter in inspect.signature(target).parameters.values():
        if parameter.default is parameter.empty and parameter.name in known and parameter.name not in options:
            raise ConfigError(f"{prefix}{parameter.name}", None, "missing", "Give it")
    try:
        return target(**options)
    except ConfigError as error:
        raise (error.within(field) if field else error) from None
    except (TypeError, ValueError) as error:
        name = getattr(target, "__name__", str(target))
        raise ConfigError(field or "CONFIG", dict(options), f"{name} refused it: {error}", "Mend that value") from error


def _checked_models(models: Mapping[str, Backend]) -> dict[str, Backend]:
    if not isinstance(models, Mapping) or not models:
        raise ConfigError("models", models, "no models", "Give a mapping of names to backends")
    for name, backend in models.items():
        if not isinstance(name, str) or not name.strip():
            raise ConfigError("models", name, "not a name", "Name each model with a text")
        if not isinstance(backend, Backend):
            raise ConfigError(
                f"models.{name}", backend, "not a backend", "Use HFBackend, LlamaCppBackend, OpenAIBackend or your own"
            )
    return dict(models)


def _named_suites(suites: Sequence[Suite] | Mapping[str, Suite]) -> dict[str, Suite]:
    named: dict[str, Suite] = {}
    if not isinstance(suites, (Mapping, Sequence)) or not suites:
        raise ConfigError("suites", suites, "no suites", "Give at least one, e.g. suites=[OccuGender()]")
    pairs = list(suites.items()) if isinstance(suites, Mapping) else [(getattr(s, "name", ""), s) for s in suites]
    for name, suite in pairs:
        if not isinstance(suite, Suite):
            raise ConfigError(f"suites.{name}", suite, "not a suite", "Use one of the package `suites`, or your own")
        if not _SUITE_NAME.fullmatch(name):
            raise ConfigError("suites", name, "not a suite name", "Use letters, digits and . _ + -")
        if name in named:
            raise ConfigError(
                "suites", name, "named twice", f'Give a mapping: suites={{"{name}": …, "{name}-chat": …}}'
            )
        named[name] = suite
    return named


def _as_margins(margins: float | Mapping[str, float]) -> Mapping[str, float]:
    return margins if isinstance(margins, Mapping) else {"default": margins}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _as_limit(name: str, bounds: Any) -> tuple[float | None, float | None]:
    """A checked (at least, at most). An infinite side is open: TOML has no other way to write that."""
    field, hint = f"limits.{name}", "Give (at least, at most), None where open, e.g. (None, 0.3)"
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise ConfigError(field, bounds, "not a pair", hint)
    if not all(bound is None or (_is_number(bound) and not math.isnan(bound)) for bound in bounds):
        raise ConfigError(field, bounds, "not numbers", hint)
    least, most = (None if bound is None or math.isinf(bound) else float(bound) for bound in bounds)
    if least is None and most is None:
        raise ConfigError(field, bounds, "open on both sides, so nothing is limited", hint)
    if least is not None and most is not None and least > most:
        raise ConfigError(field, bounds, "at least is more than at most, so no figure can keep it", hint)
    return least, most


def _pick(option: str, known: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise ConfigError(option, name, "not in this audit", f"{hint}Known: {', '.join(known)}")
    return {name: value for name, value in known.items() if not names or name in names}
