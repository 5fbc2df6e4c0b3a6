"""The command `audit`: one module for each subject, put together in `app`.

Takes arguments and config files, calls one function of a lower layer for each verb, prints its outcome and exits with
a code. What a verb needs is imported when it is called, so that `audit --help` loads no engine.
"""

from __future__ import annotations

from audit.cli.app import app, main

__all__ = ["app", "main"]
