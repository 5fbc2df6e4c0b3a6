"""`audit probe`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from audit.cli.shared import Json
from audit.report.formatting import say, say_json


def probe(
    url: Annotated[str, typer.Argument(help="Base URL of an OpenAI-style server, e.g. http://127.0.0.1:8000/v1")],
    model: Annotated[str, typer.Option("--model", help="Model name as the server knows it.")],
    api_key_env: Annotated[
        str, typer.Option(help='Environment variable that holds the key; "" for a server that needs none.')
    ] = "OPENAI_API_KEY",
    as_json: Json = False,
) -> None:
    """Test empirically what a server can do and whether its log-probabilities are true."""
    from backends import OpenAIBackend

    async def ask() -> Any:
        backend = OpenAIBackend(url, model=model, api_key_env=api_key_env)
        backend.check()
        try:
            return await backend.probe()
        finally:
            await backend.close()

    report = asyncio.run(ask())
    say_json(report.to_json()) if as_json else say(report.render_text())
