"""The errors of the project, and what each one says.

    AuditError                  anything this project raises on purpose
    ├── ConfigError             bad input; found before any model is loaded (exit code 2)
    │   └── MissingExtra        an optional dependency is not installed
    └── BackendError            a model could not answer; a value that is stored and counted
        ├── UncheckedError      a check at a run's end could not be made
        └── StoppedError        a stop came before the request was computed; neither stored nor counted

Every message names what is wrong and how to fix it. A `BackendError` is returned, not raised,
by `Backend.run`, so that one failed request never shifts or hides its neighbours.
"""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

ErrorKind = Literal[
    "rate_limited",  # the server asks to slow down (429)
    "timeout",  # no whole answer within the time limit
    "connection",  # refused, reset, or closed too early
    "server",  # the server failed (5xx)
    "auth",  # key missing, wrong or without permission
    "quota",  # paid budget or quota is used up
    "not_found",  # no such model or route
    "bad_request",  # the server refuses this request for good
    "malformed",  # an answer that cannot be read
    "inconsistent",  # an answer that can be read and cannot be true
    "unsupported",  # the model or engine cannot do this
    "context_length",  # prompt and answer do not fit the context
    "out_of_memory",
    "internal",  # a bug of ours or of the engine
]
#: Former names of kinds, as older stores hold them.
_OLDER_KINDS = {"untruthful": "inconsistent"}
ERROR_KINDS: frozenset[str] = frozenset(get_args(ErrorKind))

#: Python's default repr of an object; messages show its type alone.
_ADDRESS = re.compile(r"<[\w.<>]*?(\w+) object at 0x[0-9a-fA-F]+>")

#: Seconds. If a server asks for a longer pause, the request is given up.
LONGEST_ASKED_PAUSE = 300.0


def one_line(error: BaseException) -> str:
    """The kind of an error and the first words of its text, at most 300 characters of it."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")


class AuditError(Exception):
    """Base of every error this project raises on purpose."""


class ConfigError(AuditError):
    """Bad input. Names the field, the value, the problem and a hint.

    Parameters
    ----------
    field : str
        Path of the field, e.g. ``models.hosted.base_url``.
    value : object
        The value as given. Never pass a secret.
    problem : str
        What is wrong with it, in one clause.
    hint : str
        What to do about it, in one clause.
    """

    def __init__(self, field: str, value: object, problem: str, hint: str) -> None:
        self.field, self.value, self.problem, self.hint = field, value, problem, hint
        shown = _ADDRESS.sub(r"\1", repr(value))
        super().__init__(f"{field} = {shown}: {problem}. {hint}{'' if hint.endswith('?') else '.'}")

    def within(self, parent: str) -> ConfigError:
        """The same error with its field placed under ``parent``."""
        return ConfigError(f"{parent}.{self.field}", self.value, self.problem, self.hint)


#: Extras that bring another torch and transformers than ``hf``.
_WHERE = {"vllm": ", in an environment of its own"}


class MissingExtra(ConfigError):
    """An optional dependency is not installed; the message carries the pip command.

    ``given`` is what was written in the field; None: nothing that is not the package itself.
    """

    def __init__(self, field: str, module: str, extra: str, *, given: object = None) -> None:
        super().__init__(
            field,
            module if given is None else given,
            f"the package {module!r} is not installed",
            f'Install it with: pip install "bias-audit[{extra}]"' + _WHERE.get(extra, ""),
        )


class BackendError(AuditError):
    """A model could not answer one request.

    Parameters
    ----------
    kind : ErrorKind
        One of a closed list.
    message : str
        Details for people. Never holds a key or a whole response body.
    retryable : bool
        Whether the same request may succeed later.
    retry_after : float, optional
        Seconds the server asked to wait; overrides any backoff.
    hint : str
        One action that may help.
    unloaded : bool
        Whether the model could not be loaded, so that no other request could be answered either.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        hint: str = "",
        unloaded: bool = False,
    ) -> None:
        self.kind: ErrorKind = kind
        self.unloaded = unloaded
        self.message, self.retryable, self.retry_after, self.hint = message, retryable, retry_after, hint
        super().__init__(f"{kind}: {message}" + (f" ({hint})" if hint else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return BackendError.from_json, (self.to_json(),)

    @classmethod
    def of(cls, error: Exception) -> BackendError:
        """Any exception of a local engine, its cause in one line. Not for servers: the text might hold a key."""
        if isinstance(error, BackendError):
            return error
        if isinstance(error, ConfigError):  # found only by loading
            return cls("unsupported", f"{error.field} = {error.value!r}: {error.problem}", hint=error.hint)
        return cls("internal", one_line(error))

    @classmethod
    def of_loading(cls, error: Exception) -> BackendError:
        """`of`, for what kept a model from being loaded."""
        known = cls.of(error)
        return cls(known.kind, known.message, hint=known.hint, unloaded=True)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; `from_json` reads it back."""
        return {
            "kind": self.kind,
            "message": self.message,
            "retryable": self.retryable,
            "retry_after": self.retry_after,
            "hint": self.hint,
            **({"unloaded": True} if self.unloaded else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BackendError:
        """Read back what `to_json` wrote."""
        return cls(
            _OLDER_KINDS.get(data["kind"], data["kind"]),
            data["message"],
            retryable=data["retryable"],
            retry_after=data["retry_after"],
            hint=data["hint"],
            unloaded=data.get("unloaded", False),
        )


class UncheckedError(BackendError):
    """A check at a run's end could not be made; the message says which, and why."""


class StoppedError(BackendError):
    """A batch was stopped before this request was computed. It did not fail: it has no answer, and may be asked again.

    Whoever takes it for any other `BackendError` counts it as missing.
    """

    def __init__(self) -> None:
        super().__init__("internal", "stopped before it was computed", retryable=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoppedError, ()
