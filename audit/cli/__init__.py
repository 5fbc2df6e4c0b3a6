"""The command `audit`."""

from __future__ import annotations

from audit.cli.commands import app, main

__all__ = ["app", "main"]
