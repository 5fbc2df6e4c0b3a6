"""The command `audit`: one module per topic, assembled in `app`.

Takes arguments and config files, calls one function of a lower layer for each command, prints the outcome and sets
the exit code. Commands import what they need when they are called, so that `audit --help` loads no engine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point. Ctrl-C ends it quietly, even while modules are still being imported."""
    try:
        from audit.cli.app import run_command

        run_command(arguments)
    except KeyboardInterrupt:
        os.write(2, b"Interrupted.\n")
        raise SystemExit(130) from None
