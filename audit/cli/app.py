"""The commands assembled, and the entry point that turns errors into messages and exit codes.

Exit codes: 0 done; 1 incomplete or failed; 2 usage or config; 3 a gate found a regression; 130 interrupted; 141 nobody
reads the output any more (``| head``).
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import select
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from audit.cli import before, nights, results
from audit.cli.cache import cache
from audit.cli.run import run
from audit.cli.servers import probe
from audit.cli.shared import CLOSED_PIPE, FAILED, OK, USAGE
from audit.report.plain_text import make_encodable, say
from backends.errors import AuditError, ConfigError

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Audit language models for bias: ask models, store answers, compare figures, report.",
    epilog="Start with: audit run --suite OccuGender --model fake --limit 200",
)
for _command in (
    *(run, before.init, before.check, before.plan, results.report, results.compare, results.export, results.view),
    *(results.show, results.history, results.correlate, nights.gate, nights.schedule, probe),
):
    app.command()(_command)
app.command("log-to")(results.log_to)
app.command("ls")(results.list_entries)
app.command("suite-schema")(before.suite_schema)
app.add_typer(cache, name="cache")
app.add_typer(nights.baselines, name="baseline")


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"bias-audit {importlib.metadata.version('bias-audit')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before the command."""


def run_command(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the given command; errors become messages and exit codes."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars of libraries would mix with the audit's own
    # Hundreds of thousands of rows live until the end: scanning them for cycles took a fifth of the time.
    gc.set_threshold(50_000, 20, 100)
    make_encodable()
    try:
        app(args=list(arguments) if arguments is not None else None, standalone_mode=True)
    except AuditError as error:
        _fail(f"Error: {error}", USAGE if isinstance(error, ConfigError) else FAILED)
    except SystemExit as left:  # what typer makes of a closed pipe
        raise SystemExit(CLOSED_PIPE if left.code == FAILED and _reader_is_gone() else left.code) from None
    except BrokenPipeError:
        os._exit(CLOSED_PIPE)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(f"Error: {error.filename}: {error.strerror}. Use another path, or make this one accessible.", FAILED)
    sys.exit(OK)


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more."""
    if not hasattr(select, "poll"):
        return False
    stdout = select.poll()
    stdout.register(1, 0)  # an error is reported without being asked for
    return any(event & select.POLLERR for _, event in stdout.poll(0))


def _fail(message: str, code: int) -> NoReturn:
    say(message, to_stderr=True)
    sys.exit(code)
