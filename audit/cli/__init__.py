"""The command `audit`: one module per topic, assembled in `app`.

Takes arguments and config files, calls one function of a lower layer for each command, prints the outcome and sets
the exit code. Commands import what they need when they are called, so that `audit --help` loads no engine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command `audit` in this process.

    Ctrl-C exits with 130 at once, until a run's own handler ends it in order. An exception instead would be printed
    where Python cannot raise it, as in the callbacks of imports.
    """
    signal.signal(signal.SIGINT, _exit_interrupted)
    from audit.cli.app import run_command

    run_command(arguments)


def _exit_interrupted(_number: int, _frame: object) -> NoReturn:
    os.write(2, b"Interrupted.\n")
    os._exit(130)
