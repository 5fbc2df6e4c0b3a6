"""The command `audit`: one module for each subject, put together in `app`.

Takes arguments and config files, calls one function of a lower layer for each verb, prints its outcome and exits with
a code. What a verb needs is imported when it is called, so that `audit --help` loads no engine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the command. Ctrl-C ends it quietly, while it is still being imported too."""
    try:
        from audit.cli.app import run_command

        run_command(arguments)
    except KeyboardInterrupt:
        os.write(2, b"Interrupted.\n")
        raise SystemExit(130) from None
