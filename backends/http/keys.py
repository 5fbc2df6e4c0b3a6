"""Credentials of a server: keys from variables or a file, and tokens that are renewed. None of them is ever shown."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import re
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from pydantic import AfterValidator

from backends.errors import BackendError, ConfigError, ErrorKind, MissingExtra
from backends.http.address import is_this_machine
from backends.options import refused_at

#: How to say that there is no key, in Python, in a file and on the command line.
NO_KEY_HINT = 'name no key (api_key_env=None, in a TOML file api_key_env = "", on the command line --api-key-env "")'
#: What helps where none was sent.
NO_KEY_SENT_HINT = "Put the key into a variable, and name that by api_key_env, on the command line by --api-key-env"
#: A key below this many characters, or of letters alone, is a word that answers may hold.
_SHORTEST_KEY = 12
#: Characters of a variable's name from which on one with small letters and digits is rather a key.
_LONGEST_WITH_DIGITS = 20
#: How often a token that is refused for its age is renewed for one request: a new one may end before it is sent.
_RENEWALS = 3
_FOR_ITS_AGE = re.compile(r"expired|not yet", re.I)
#: Seconds after which a source that gave the same token is asked again: its clock may be behind the server's.
_PAUSES = (0.0, 1.0, 2.0)
#: Sources of tokens by name: the module that each needs, the package that has it, its extra, and how to sign in.
_NAMED = {
    "azure": (
        *("azure.identity", "azure-identity", "azure"),
        "Sign in (az login), or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    ),
    "google": (
        *("google.auth.transport.requests", "google-auth", "google"),
        "Sign in (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS",
    ),
}
_AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def _variables(given: str | Sequence[str] | None) -> str | Sequence[str] | None:
    """Names of environment variables. A key that is given in place of one is refused, and not shown."""
    for name in (given,) if isinstance(given, str) else given or ():
        looks_like_a_key = len(name) >= _LONGEST_WITH_DIGITS and re.search("[a-z]", name) and re.search(r"\d", name)
        if name and (looks_like_a_key or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)):
            hint = "Give the name of the variable that holds the key, not the key"
            raise refused_at((), "…", "not the name of an environment variable", hint)
    return given


#: What ``api_key_env`` must hold.
VARIABLES = AfterValidator(_variables)


class Credential(ABC):
    """Keys or a token, read when they are used."""

    #: Whether it holds for some time only, and reading it may take a while.
    ends = False

    @abstractmethod
    def read(self) -> str | None:
        """The key or token to send now, or None."""

    @abstractmethod
    def check(self, *, needed: bool) -> None:
        """Raise `ConfigError` if it cannot be used, or is needed and missing."""

    @abstractmethod
    def identity(self) -> str:
        """Distinguishes keys without revealing them; ``none`` for no key."""

    @abstractmethod
    def secrets(self) -> Iterator[str]:
        """Every value that must never be shown or stored."""

    @abstractmethod
    def has_another(self, value: str, error: BackendError, attempt: int) -> bool:
        """Whether a request that was refused with ``value`` may be sent again with another; ``attempt`` from 0.

        It may block for some seconds.
        """

    def source(self) -> str:
        """Where it comes from, for a hint."""
        return ""

    def missing(self) -> str:
        """Why none was sent."""
        return "no key was sent"

    def redact(self, text: str, *, words: bool = True) -> str:
        """The text without the keys, as they are or as JSON writes them; those that are words only if ``words``."""
        for value in self.secrets():
            is_word = len(value) < _SHORTEST_KEY or value.isalpha()
            if words or not is_word:
                for form in {value, json.dumps(value)[1:-1], value.replace("/", "\\/")}:
                    text = text.replace(form, "[key]")
        return text


class ApiKeys(Credential):
    """Keys from variables, used in turn, or one from a file that only its owner can read. Read anew at each use."""

    def __init__(self, variables: Sequence[str], file: str | Path | None) -> None:
        self._variables, self._file = tuple(variables), None if file is None else Path(file)
        self._next, self._refused = 0, set[str]()

    def __repr__(self) -> str:
        return f"ApiKeys({self.source()!r})"

    def read(self) -> str | None:
        found = list(self.secrets())
        left = [value for value in found if value not in self._refused] or found
        self._next += 1
        return left[self._next % len(left)] if left else None

    def secrets(self) -> Iterator[str]:
        values = [_content(self._file)] if self._file else [os.environ.get(name, "") for name in self._variables]
        yield from filter(None, (value.strip() for value in values))

    def check(self, *, needed: bool) -> None:
        if self._file is not None:
            _check_file(self._file)
            self._check_one("key_file", str(self._file), _content(self._file), needed, "the file is empty")
        for name in self._variables if self._file is None else ():
            problem = f"environment variable {name} is not set"
            self._check_one("api_key_env", name, os.environ.get(name, ""), needed, problem)

    @staticmethod
    def _check_one(field: str, source: str, value: str, needed: bool, problem: str) -> None:
        if re.search(r"[^\x21-\x7e]", value.strip()):
            raise ConfigError(field, source, "the key holds spaces or non-ASCII characters", "Fix it")
        if needed and not value.strip():
            hint = f"Set it, or {NO_KEY_HINT}" if field == "api_key_env" else "Write the key into it"
            raise ConfigError(field, source, f"{problem}, and the server is not local", hint)

    def identity(self) -> str:
        value = next(self.secrets(), "")
        return hashlib.sha256(b"bias-audit key identity\0" + value.encode()).hexdigest()[:8] if value else "none"

    def source(self) -> str:
        field, names = ("key_file", [str(self._file)]) if self._file else ("api_key_env", self._variables)
        return f"the key in {' and '.join(names)} ({field})" if names else ""

    def missing(self) -> str:
        if self._file is not None:
            return "no key was sent: the key file is empty"
        names = " and ".join(self._variables)
        return f"no key was sent: {names} is not set" if names else "no key was sent: api_key_env names none"

    def has_another(self, value: str, error: BackendError, attempt: int) -> bool:
        self._refused.add(value)
        if not self._refused.issuperset(self.secrets()):
            return True
        self._refused.clear()  # what is refused with every key is not refused for its key
        return False


@functools.cache
def _content(file: Path) -> str:
    """The file's content, read once: the event loop must not wait for a disk at every request."""
    return file.read_text()


def _check_file(file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise ConfigError("key_file", str(file), f"cannot be read ({error.strerror})", "Give a file") from None
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise ConfigError("key_file", str(file), "others may read it", f"Run: chmod 600 {file}")


class BearerToken(Credential):
    """A token that is renewed by its source, also when the server refuses it.

    Parameters
    ----------
    source : callable or str
        A function that returns a valid token, such as `azure.identity.get_bearer_token_provider` makes or
        `aws_bedrock_token_generator.provide_token` is; ``"module:function"`` for such a one; ``"azure"`` for Entra,
        ``"google"`` for the application default credentials.
    """

    ends = True

    def __init__(self, source: Callable[[], str] | str) -> None:
        self._name = source if isinstance(source, str) else ""
        self._source: Callable[[bool], str] | None = None if isinstance(source, str) else lambda _: source()
        self._last = ""
        self._renewing = threading.Lock()

    def __repr__(self) -> str:
        return "BearerToken()"

    def read(self) -> str | None:
        self._last = self._token(anew=False)
        return self._last

    def has_another(self, value: str, error: BackendError, attempt: int) -> bool:
        is_old = _FOR_ITS_AGE.search(error.message) is not None
        if error.kind != "auth" or attempt >= (_RENEWALS if is_old else 1):
            return False
        for pause in _PAUSES if is_old else _PAUSES[:1]:
            time.sleep(pause)
            with self._renewing:  # of several requests that are refused together, one renews it
                if self._last == value:
                    self._last = self._token(anew=True)
            if self._last != value:
                return True
        return False

    def check(self, *, needed: bool) -> None:
        if self._name in _NAMED:
            module, package, extra, _ = _NAMED[self._name]
            if not _is_there(module):
                raise MissingExtra("token", package, extra)
        elif self._name:
            self._source = _source(self._name)

    def identity(self) -> str:
        return "token"

    def secrets(self) -> Iterator[str]:
        if self._last:
            yield self._last

    def _token(self, *, anew: bool) -> str:
        try:
            self._source = self._source or _source(self._name)
            return self._source(anew)
        except Exception as error:
            *_, sign_in = _NAMED.get(self._name, ("Check that you are signed in",))
            named = f"token={self._name!r}" if self._name else "the function of token"
            # Who has given one token will give the next: what gives them is down for a moment.
            kind: ErrorKind = "connection" if self._last else "auth"
            message = f"{named} gives no token ({type(error).__name__})"
            raise BackendError(
                kind, message, retryable=bool(self._last), hint=f"{sign_in}; check this machine's clock"
            ) from None


def _source(name: str) -> Callable[[bool], str]:
    """What gives the tokens of a name; its argument: whether a remembered one will not do."""
    if name == "azure":
        return _azure()
    if name == "google":
        return _google()
    function = _function(name)
    return lambda _: function()


def _azure() -> Callable[[bool], str]:
    from azure.identity import DefaultAzureCredential, get_bearer_token_provider

    logging.getLogger("azure.identity").setLevel(logging.ERROR)  # it warns of every way to sign in that is not used
    providers: list[Callable[[], str]] = []

    def token(anew: bool) -> str:
        if anew or not providers:  # a new credential remembers no token
            providers[:] = [get_bearer_token_provider(DefaultAzureCredential(), _AZURE_SCOPE)]
        return providers[0]()

    return token


def _google() -> Callable[[bool], str]:
    import google.auth
    from google.auth.transport.requests import Request

    credentials, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])

    def token(anew: bool) -> str:
        if anew or not credentials.valid:
            credentials.refresh(Request())
        return str(credentials.token)

    return token


def _function(name: str) -> Callable[[], str]:
    """The function that ``module:function`` names. Raises `ConfigError` if there is none."""
    module, _, attribute = name.partition(":")
    found: Any = None
    if attribute and _is_there(module):
        found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        hint = f"Name one as module:function, or write {' or '.join(map(repr, _NAMED))}"
        raise ConfigError("token", name, "no such function", hint)
    return found  # type: ignore[no-any-return]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def credential(
    names: str | Sequence[str] | None, file: str | Path | None, token: Callable[[], str] | str | None
) -> Credential:
    """The credential that a backend's options name: a token, a key from a file, or keys from variables."""
    if token is not None:
        return BearerToken(token)
    return ApiKeys([names] if isinstance(names, str) and names else list(names or ()), file)


def check_key_for(urls: Sequence[str], key: Credential) -> None:
    """Raise `ConfigError` for a key that cannot be used, or is missing, or would reach a server unencrypted."""
    key.check(needed=not all(is_this_machine(httpx.URL(url).host) for url in urls))
    for url in map(httpx.URL, urls):
        if url.scheme == "http" and not is_this_machine(url.host) and (key.ends or key.read()):
            field = "base_url" if len(urls) == 1 else "urls"
            hint = f"Use https, or {NO_KEY_HINT}"
            raise ConfigError(field, str(url), "the key would be sent unencrypted", hint)
