"""`audit probe`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from audit.cli.shared import FAILED, OK, Json
from audit.report.formatting import say, say_json
from backends.errors import BackendError, ConfigError

_CONFIGS = (".py", ".toml")


def probe(
    target: Annotated[
        str,
        typer.Argument(
            metavar="URL|CONFIG",
            help="Base URL of an OpenAI-style server, e.g. http://127.0.0.1:8000/v1; URL#MODEL, anthropic:MODEL, or an "
            "audit config, whose servers are probed with their own options.",
        ),
    ],
    model: Annotated[str | None, typer.Option("--model", help="With a URL: the model as the server knows it.")] = None,
    models: Annotated[
        list[str] | None, typer.Option("--models", "-m", help="Of a config: only these models (repeatable).")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help='Environment variable that holds the key; "" for a server that needs none. Default: OPENAI_API_KEY.'
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Test empirically what a server can do and whether its log-probabilities are true.

    Exits with 1 if a server cannot be probed, or contradicts its log-probabilities, so that none of them is used.
    """
    is_config = target.endswith(_CONFIGS) and "://" not in target
    if not is_config:
        backends: Mapping[str, Any] = {"": _of_server(target, model, models, api_key_env)}
    else:
        for option, value in (("--model", model), ("--api-key-env", api_key_env)):
            if value is not None:
                hint = "Name its models by --models" if option == "--model" else "Write it into the config's model"
                raise ConfigError(option, value, "a config is given", hint)
        backends = _of_config(Path(target), models or ())
    found = asyncio.run(_reports(backends))
    if as_json:
        reports = {name: _json(one) for name, one in found.items()}
        say_json(reports if is_config else reports[""])
    else:
        for name, one in found.items():
            label = f"models.{name}: " if name else ""
            say(f"{label}{one if isinstance(one, BackendError) else one.render_text()}")
    raise typer.Exit(
        FAILED if any(isinstance(one, BackendError) or one.is_distrusted for one in found.values()) else OK
    )


def _of_server(target: str, model: str | None, models: Any, api_key_env: str | None) -> Any:
    from backends import OpenAIBackend, named_backend

    if models:
        raise ConfigError("--models", models[0], "no config is given", "Name the server's model by --model")
    if model is not None:
        key = "OPENAI_API_KEY" if api_key_env is None else api_key_env
        return OpenAIBackend(target, model=model, api_key_env=key)
    backend = named_backend(target, api_key_env=api_key_env)
    if not isinstance(backend, OpenAIBackend):
        raise ConfigError("URL", target, "not a server", "Give its URL and --model, or a config")
    return backend


def _of_config(config: Path, names: Any) -> Mapping[str, Any]:
    from audit import load_audit
    from backends import OpenAIBackend

    audit = load_audit(config).only(names)
    audit.check_models()
    found = {name: backend for name, backend in audit.models.items() if isinstance(backend, OpenAIBackend)}
    if not found:
        raise ConfigError("models", list(audit.models), "none of them is a server", "Only servers are probed")
    return found


async def _reports(backends: Mapping[str, Any]) -> dict[str, Any]:
    """The report of each; of several, an error in place of one that cannot be had."""
    found: dict[str, Any] = {}
    for name, backend in backends.items():
        backend.check()
        try:
            found[name] = await backend.probe()
        except BackendError as error:
            if not name:
                raise
            found[name] = error
        finally:
            await backend.close()
    return found


def _json(report: Any) -> Any:
    return {"error": report.to_json()} if isinstance(report, BackendError) else report.to_json()
