"""A run's log: one JSON object per line in a file of its own, and on the terminal with -v.

No secret is written: anything that looks like a key, and the values of environment variables that hold
keys, are removed from every line, tracebacks included.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from backends.files import private, private_folder

MAX_BYTES = 5 * 2**20
KEPT_FILES = 3

_ROOT = logging.getLogger("audit")
_ROOT.addHandler(logging.NullHandler())  # silent unless `run_log` is asked for

_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.I)
_SECRET_LOOKS = re.compile(r"(?i)\bbearer\s+[^\s\"',}]+|\b(?:sk|pk|hf|ghp|xox[a-z])[-_][A-Za-z0-9_\-]{8,}")
_SHORTEST = 6


def redact(text: str) -> str:
    """The text without anything that is, or looks like, a key."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _SECRET_NAMES.search(name):
            text = text.replace(value, "[secret]")
    return _SECRET_LOOKS.sub("[secret]", text)


def logger(name: str) -> Any:
    """A structured logger: ``logger("scheduler").info("retry", model=..., kind=...)``."""
    return structlog.wrap_logger(
        logging.getLogger(f"audit.{name}"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


@contextlib.contextmanager
def run_log(folder: Path, run_id: str, *, verbose: bool = False) -> Iterator[Path]:
    """Within this block, log to ``folder/RUN_ID.jsonl``; yields that path.

    The file is rotated at 5 MiB, and three older ones are kept. ``verbose`` also logs to stderr, in a readable form.
    """
    path = private_folder(folder) / f"{run_id}.jsonl"
    file = _PrivateFile(path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8", errors="backslashreplace")
    file.setFormatter(_Redacted(structlog.processors.JSONRenderer(sort_keys=True)))
    handlers: list[logging.Handler] = [file]
    if verbose:
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setFormatter(_Redacted(structlog.dev.ConsoleRenderer(colors=False)))
        handlers.append(terminal)
    level = _ROOT.level
    _ROOT.setLevel(logging.DEBUG)
    for handler in handlers:
        _ROOT.addHandler(handler)
    try:
        yield path
    finally:
        for handler in handlers:
            _ROOT.removeHandler(handler)
            try:
                handler.close()
            except OSError as error:  # the disk may be full: the answers are what counts
                print(f"The log {path} is not complete: {error.strerror}.", file=sys.stderr)
        _ROOT.setLevel(level)


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A log that only its owner can read, since it contains prompts."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, errors=self.errors, opener=private)


class _Redacted(structlog.stdlib.ProcessorFormatter):
    """Renders a line, then removes secrets from all of it."""

    def __init__(self, renderer: Any) -> None:
        super().__init__(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.processors.format_exc_info],
        )

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
