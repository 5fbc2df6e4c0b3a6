"""Credentials of a server: where they come from, and how they stay secret."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import itertools
import json
import os
import re
import stat
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from pydantic import AfterValidator

from backends.errors import BackendError, ConfigError
from backends.http.address import is_this_machine
from backends.options import refused_at

#: How to say that there is no key, in Python, in a file and on the command line.
NO_KEY_HINT = 'name no key (api_key_env=None, in a TOML file api_key_env = "", on the command line --api-key-env "")'
#: What helps where none was sent.
NO_KEY_SENT_HINT = "Put the key into a variable, and name that by api_key_env, on the command line by --api-key-env"
#: Characters. Shorter keys are ordinary words, and shorter parts of a key occur in ordinary texts.
_SHORTEST, _SHORTEST_PART = 4, 8
#: Characters of a key that stand together in no ordinary text.
_LONG = 12
#: Characters of a variable's name from which on one with small letters and digits is rather a key.
_LONGEST_WITH_DIGITS, _DIGIT = 20, re.compile(r"\d")
_ESCAPED_ASCII = re.compile(rb'\\u00[2-7]|\\[/"]')


@functools.cache
def _content(file: Path) -> str | None:
    """The file's content, read once: the event loop must not wait for a disk at every request."""
    return file.read_text().strip() or None


@functools.lru_cache(maxsize=64)  # a token is another one every hour, or every request
def _forms(key: str) -> tuple[str, ...]:
    """How a key may be written: plain, without its prefix (``sk-…``, ``hf_…``), in JSON, HTML, a URL, base64, spaced or
    reversed; longest first.

    Base64 of a longer text, such as ``user:key``, depends on the key's offset in it: all three forms are included,
    each without the characters that also encode neighbouring bytes.
    """
    rests = {key[mark.end() :] for mark in re.finditer("[-_]", key)}
    plain = {key} | {
        rest for rest in rests if len(rest) >= _LONG or (len(rest) >= _SHORTEST_PART and re.search(r"\d", rest))
    }
    forms = set(plain)
    for text in plain:
        forms |= {
            text.replace("/", "\\/"),
            html.escape(text),
            "".join(f"\\u{ord(char):04x}" for char in text),
            urllib.parse.quote(text, safe=""),
            "".join(f"%{byte:02X}" for byte in text.encode()),
        }
        for before in range(3):
            encoded = base64.b64encode(b"\0" * before + text.encode()).decode().rstrip("=")
            inner = encoded[-(-8 * before // 6) :]
            inner = inner[: len(inner) - (1 if (before + len(text)) % 3 else 0)]
            if len(inner) >= _SHORTEST_PART:
                forms |= {inner, inner.replace("+", "-").replace("/", "_")}
        forms |= {text.encode().hex(), " ".join(text), text[::-1]} if len(text) >= _SHORTEST_PART else set()
    for _ in range(2):  # JSON may stand within a text of JSON
        forms |= {json.dumps(form)[1:-1] for form in forms}
    return tuple(sorted(forms, key=len, reverse=True))


def _without_parts(text: str, key: str) -> str:
    """The text without any part of the key that is long enough to reveal something, such as its end after dots.

    Short parts that look like words are kept: a key may hold some.
    """
    inside, low, of_key = [False] * len(text), text.lower(), key.lower()
    for length in (_SHORTEST_PART, _LONG):
        for at in range(len(text) - length + 1):
            place = of_key.find(low[at : at + length])
            if place >= 0 and (length == _LONG or _looks_random(key[place : place + length])):
                inside[at : at + length] = [True] * length
    runs = itertools.groupby(zip(text, inside, strict=True), key=lambda pair: pair[1])
    return "".join("[key]" if hidden else "".join(char for char, _ in run) for hidden, run in runs)


def _looks_random(part: str) -> bool:
    return re.search(r"\d", part) is not None or len(re.findall("[a-z](?=[A-Z])", part)) > 1


def _variables(given: str | Sequence[str] | None) -> str | Sequence[str] | None:
    """Names of environment variables. A key that is given in place of one is refused, and not shown."""
    for name in (given,) if isinstance(given, str) else given or ():
        word = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
        if name and (
            not word or (len(name) >= _LONGEST_WITH_DIGITS and re.search("[a-z]", name) and _DIGIT.search(name))
        ):
            hint = "Give the name of the variable that holds the key, not the key"
            raise refused_at((), "…", "not the name of an environment variable", hint)
    return given


#: What ``api_key_env`` must hold.
VARIABLES = AfterValidator(_variables)


def check_key_for(urls: Sequence[str], key: Credential) -> None:
    """Raise `ConfigError` for a key that cannot be used, or is missing, or would reach a server unencrypted."""
    key.check(needed=not all(is_this_machine(httpx.URL(url).host) for url in urls))
    for url in map(httpx.URL, urls):
        if url.scheme == "http" and not is_this_machine(url.host) and (key.ends or key.read()):
            field = "base_url" if len(urls) == 1 else "urls"
            hint = f"Use https, or {NO_KEY_HINT}"
            raise ConfigError(field, str(url), "the key would be sent unencrypted", hint)


class Credential(ABC):
    """A key, a renewed token, or several keys in turn.

    It is read when it is used, and no repr or log shows it.
    """

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

    def missing(self) -> str:
        """Why no key was sent."""
        return "no key was sent"

    def source(self) -> str:
        """Where the key comes from, for a hint; empty if that says nothing."""
        return ""

    def secrets(self) -> Iterator[str]:
        """Every value that must never be shown or stored."""
        if value := self.read():
            yield value

    def replaced(self, value: str, error: BackendError, attempt: int) -> float | None:
        """Seconds after which a request that was refused with ``value`` is sent with another; None if there is none.

        ``attempt`` counts the refusals of this request, from 0.
        """
        return None

    def redact(self, text: str) -> str:
        """The text with the keys removed, in every form in which servers may repeat them."""
        for value in self.secrets():
            for form in _forms(value) if len(value) >= _SHORTEST else ():
                flags = re.I if "%" in form or len(form) >= _SHORTEST_PART else 0
                text = re.sub(re.escape(form), "[key]", text, flags=flags)
            for form in _forms(value) if len(value) >= _SHORTEST_PART else ():
                text = _without_parts(text, form)
        return text

    def is_repeated_by(self, body: bytes, parsed: Any) -> bool:
        """Whether a JSON body holds a key, plain or escaped; ``parsed`` is its content."""
        forms = [form.lower() for value in self.secrets() if len(value) >= _SHORTEST for form in _forms(value)]
        if not forms:
            return False
        body = body.lower()  # escapes may be in upper or lower case
        if any(form.encode() in body for form in forms):
            return True
        escaped = _ESCAPED_ASCII.search(body) is not None
        plain = json.dumps(parsed, ensure_ascii=False).lower() if escaped else ""
        return any(form in plain for form in forms)


class KeyRing(Credential):
    """Several keys, used in turn. One that is refused or used up is left out."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys, self._next, self._refused = tuple(keys), 0, set[str]()

    def __repr__(self) -> str:
        return f"KeyRing({list(self._keys)!r})"

    def read(self) -> str | None:
        left = [value for key in self._keys if (value := key.read()) and value not in self._refused]
        self._next += 1
        return left[self._next % len(left)] if left else next(filter(None, (key.read() for key in self._keys)), None)

    def check(self, *, needed: bool) -> None:
        for key in self._keys:
            key.check(needed=needed)

    def identity(self) -> str:
        return self._keys[0].identity()

    def source(self) -> str:
        return " and ".join(key.source() for key in self._keys)

    def secrets(self) -> Iterator[str]:
        yield from filter(None, (key.read() for key in self._keys))

    def replaced(self, value: str, error: BackendError, attempt: int) -> float | None:
        self._refused.add(value)
        if not self._refused.issuperset(self.secrets()):
            return 0.0
        self._refused.clear()  # what is refused with every key is not refused for its key
        return None


class ApiKey(Credential):
    """A key from the environment, or from a file that only its owner can read; never stored as an attribute."""

    def __init__(self, env: str | None, file: str | Path | None) -> None:
        self._env, self._file = env, Path(file) if file is not None else None
        self._field, self._source = ("key_file", str(file)) if file is not None else ("api_key_env", env)

    def __repr__(self) -> str:
        return f"ApiKey({self._field}={self._source!r})"

    def check(self, *, needed: bool) -> None:
        """Raise `ConfigError` if the key cannot be used, or a named key is needed and missing."""
        if self._file is not None:
            self._check_file(self._file)
        value = self.read()
        if value and re.search(r"[^\x21-\x7e]", value):
            raise ConfigError(self._field, self._source, "the key holds spaces or non-ASCII characters", "Fix it")
        if needed and self._source and not value:
            if self._file is not None:
                raise ConfigError(
                    self._field, self._source, "the file is empty, and the server is not local", "Write the key into it"
                )
            problem = f"environment variable {self._source} is not set, and the server is not local"
            raise ConfigError(self._field, self._source, problem, f"Set it, or {NO_KEY_HINT}")

    def read(self) -> str | None:
        """The key, or None."""
        if self._file is not None:
            return _content(self._file)
        return (os.environ.get(self._env) or "").strip() or None if self._env else None

    def source(self) -> str:
        return f"the key in {self._source} ({self._field})" if self._source else ""

    def missing(self) -> str:
        if self._file is not None:
            return "no key was sent: the key file is empty"
        return f"no key was sent: {self._env} is not set" if self._env else "no key was sent: api_key_env names none"

    def identity(self) -> str:
        """Distinguishes keys without revealing them; ``none`` for no key."""
        value = self.read()
        return hashlib.sha256(b"bias-audit key identity\0" + value.encode()).hexdigest()[:8] if value else "none"

    def _check_file(self, file: Path) -> None:
        try:
            mode = file.stat().st_mode
        except OSError as error:
            raise ConfigError("key_file", str(file), f"cannot be read ({error.strerror})", "Give a file") from None
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise ConfigError("key_file", str(file), "others may read it", f"Run: chmod 600 {file}")
