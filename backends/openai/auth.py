"""The key of an endpoint: where it comes from, and how it stays secret."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from backends.errors import ConfigError

#: How to name no key, in each place where one can be named.
NAME_NONE = 'name no key (api_key_env=None, in a TOML file api_key_env = "", on the command line --api-key-env "")'
_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]|\\/")


@functools.cache
def _content(file: Path) -> str | None:
    """Read once: the event loop must not wait for a disk at every request."""
    return file.read_text().strip() or None


class ApiKey:
    """A key from the environment, or from a file that only its owner can read.

    It is read when it is used and never stored as an attribute, so that no repr or log shows it.
    """

    def __init__(self, env: str | None, file: str | Path | None) -> None:
        self._env, self._file = env, Path(file) if file is not None else None
        self._field, self._source = ("key_file", str(file)) if file is not None else ("api_key_env", env)

    def __repr__(self) -> str:
        return f"ApiKey({self._field}={self._source!r})"

    def check(self, *, needed: bool) -> None:
        """Raise `ConfigError` when the key cannot be used, or the named key is needed and missing."""
        if self._file is not None:
            self._check_file(self._file)
        value = self.read()
        if value and re.search(r"[^\x21-\x7e]", value):
            raise ConfigError(self._field, self._source, "the key holds blanks or characters beyond ASCII", "Fix it")
        if needed and self._source and not value:
            if self._file is not None:
                raise ConfigError(
                    self._field, self._source, "the file is empty, and the server is not local", "Write the key into it"
                )
            problem = f"environment variable {self._source} is not set, and the server is not local"
            raise ConfigError(self._field, self._source, problem, f"Set it, or {NAME_NONE}")

    def read(self) -> str | None:
        """The key, or None."""
        if self._file is not None:
            return _content(self._file)
        return (os.environ.get(self._env) or "").strip() or None if self._env else None

    def identity(self) -> str:
        """Distinguishes keys without revealing them; ``none`` for no key."""
        value = self.read()
        return hashlib.sha256(b"bias-audit key identity\0" + value.encode()).hexdigest()[:8] if value else "none"

    def redact(self, text: str) -> str:
        """The text with the key taken out: servers repeat keys in their error messages."""
        value = self.read()
        return text.replace(value, "[key]") if value and len(value) >= 4 else text

    def is_repeated_by(self, body: bytes, parsed: Any) -> bool:
        """Whether a JSON body holds the key, plainly or behind escapes; ``parsed`` is its content."""
        value = self.read()
        if not value or len(value) < 4:
            return False
        escaped = _ESCAPED_ASCII.search(body) is not None
        return value.encode() in body or (escaped and value in json.dumps(parsed, ensure_ascii=False))

    def _check_file(self, file: Path) -> None:
        try:
            mode = file.stat().st_mode
        except OSError as error:
            raise ConfigError("key_file", str(file), f"cannot be read ({error.strerror})", "Give a file") from None
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise ConfigError("key_file", str(file), "others may read it", f"Run: chmod 600 {file}")
