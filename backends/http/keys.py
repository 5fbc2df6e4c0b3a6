"""Credentials of a server: a key from a variable, or tokens that a function gives. None of them is ever shown."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Callable, Sequence

import httpx
from pydantic import AfterValidator

from backends.errors import BackendError, ConfigError
from backends.options import refused_at

#: How to say that there is no key, in Python, in a file and on the command line.
NO_KEY_HINT = 'name no key (api_key_env=None, in a TOML file api_key_env = "", on the command line --api-key-env "")'
#: What helps where none was sent.
NO_KEY_SENT_HINT = "Put the key into a variable, and name that by api_key_env, on the command line by --api-key-env"
#: A key below this many characters, or of letters alone, is a word that answers may hold.
_SHORTEST_KEY = 12
#: Characters of a variable's name from which on one with small letters and digits is rather a key.
_LONGEST_WITH_DIGITS = 20


def _variable(given: str | None) -> str | None:
    """The name of an environment variable. A key that is given in place of it is refused, and not shown."""
    looks_like_a_key = len(given or "") >= _LONGEST_WITH_DIGITS and re.search("[a-z].*[0-9]|[0-9].*[a-z]", given or "")
    if given and (looks_like_a_key or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", given)):
        hint = "Give the name of the variable that holds the key, not the key"
        raise refused_at((), "…", "not the name of an environment variable", hint)
    return given


#: What ``api_key_env`` must hold.
VARIABLE = AfterValidator(_variable)


class Credential:
    """A key from a variable, or a token from a function that returns a valid one; read when it is used."""

    def __init__(self, variable: str | None = None, token: Callable[[], str] | None = None) -> None:
        self._variable, self._source = variable, token
        #: Whether it holds for some time only, and reading it may take a while.
        self.ends = token is not None
        self._last = ""

    def __repr__(self) -> str:
        return f"Credential({self.source()!r})"

    def read(self) -> str | None:
        """The key or token to send now, or None."""
        if self._source is None:
            return self.secret() or None
        try:
            self._last = self._source().strip()
        except Exception as error:
            # Who has given one token will give the next: what gives them is down for a moment.
            message = f"the function of token gives none ({type(error).__name__})"
            hint = "Check that you are signed in, and this machine's clock"
            raise BackendError(
                "connection" if self._last else "auth", message, retryable=bool(self._last), hint=hint
            ) from None
        return self._last

    def secret(self) -> str:
        """The value that must never be shown or stored; empty if there is none."""
        return self._last if self.ends else os.environ.get(self._variable or "", "").strip()

    def identity(self) -> str:
        """Distinguishes keys without revealing them; ``none`` for no key."""
        if self.ends:
            return "token"
        value = self.secret()
        return hashlib.sha256(b"bias-audit key identity\0" + value.encode()).hexdigest()[:8] if value else "none"

    def source(self) -> str:
        """Where a key comes from, for a hint."""
        return "the function of token" if self.ends else f"the key in {self._variable} (api_key_env)"

    def redact(self, text: str, *, words: bool = True) -> str:
        """The text without the key, as it is or as JSON writes it; a key that is a word only if ``words``."""
        value = self.secret()
        is_word = len(value) < _SHORTEST_KEY or value.isalpha()
        if value and (words or not is_word):
            for form in {value, json.dumps(value)[1:-1], value.replace("/", "\\/")}:
                text = text.replace(form, "[key]")
        return text


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_key_for(urls: Sequence[str], key: Credential, variable: str | None) -> None:
    """Raise `ConfigError` for a key that cannot be used, or is missing, or would reach a server unencrypted."""
    secret = key.secret()
    if re.search(r"[^\x21-\x7e]", secret):
        raise ConfigError("api_key_env", variable, "the key holds spaces or non-ASCII characters", "Fix it")
    for url in (url for url in map(httpx.URL, urls) if not is_this_machine(url.host)):
        if variable and not key.ends and not secret:
            problem = "it is empty or not set, and the server is not local"
            raise ConfigError("api_key_env", variable, problem, f"Set it, or {NO_KEY_HINT}")
        if url.scheme == "http" and (key.ends or secret):
            field = "base_url" if len(urls) == 1 else "urls"
            raise ConfigError(field, str(url), "the key would be sent unencrypted", f"Use https, or {NO_KEY_HINT}")
