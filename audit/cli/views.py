"""`audit view`."""

from __future__ import annotations

import socket
import webbrowser
from typing import Annotated

import typer

from audit.cli.shared import DEFAULT_DB, Db, open_store
from audit.report.formatting import say
from backends.errors import ConfigError, MissingExtra


def view(
    db: Db = DEFAULT_DB,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 8321,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Browse a store: runs, models, items and answers, models side by side, the trend. For this machine only."""
    try:
        import uvicorn

        from audit.report.view.app import view_app
    except ImportError:
        raise MissingExtra("audit view", "starlette and uvicorn", "view") from None
    from audit.report.page import trend_page
    from audit.schedule.scheduled_audit import read_history

    with open_store(db) as store, socket.socket() as listening:
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                "--port", port, (error.strerror or "cannot be had").lower(), "Give another port"
            ) from None
        app = view_app(store, lambda: trend_page(read_history(store, store.path), "All audits of this store", runs="/"))
        address = f"http://127.0.0.1:{port}/"
        say(f"{store.path.name} is shown at {address} until Ctrl-C")
        if open_browser:
            webbrowser.open(address)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False)).run(sockets=[listening])
