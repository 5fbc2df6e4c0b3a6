"""`audit probe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.shared import FAILED, OK, Json, say, say_json, tell_on_terminal
from backends.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from backends import OpenAIBackend

_CONFIGS = (".py", ".toml")
#: Lines, JSON, and whether the server cannot be trusted or asked.
_Found = tuple[Sequence[str], Any, bool]


def probe(
    target: Annotated[
        str,
        typer.Argument(
            metavar="URL|CONFIG",
            help="Base URL of an OpenAI-style server, e.g. http://127.0.0.1:8000/v1; URL#MODEL, anthropic:MODEL, or an "
            "audit config, whose servers are probed with their own options.",
        ),
    ],
    model: Annotated[str | None, typer.Option(help="With a URL: the model as the server knows it.")] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help='Environment variable that holds the key; "" for none. Default: OPENAI_API_KEY for https, none for '
            "http, ANTHROPIC_API_KEY for anthropic:MODEL."
        ),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Make all experiments: some hundred requests, minutes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Look at a server by at most 20 requests: what it accepts, and whether its log-probabilities can be used.

    Exits with 1 if a server cannot be asked, or contradicts itself, so that none of its log-probabilities is used.
    """
    import asyncio

    from backends.telling import TELL

    def tell(line: str) -> None:
        tell_on_terminal(line.rstrip("\r") + "\r")  # on a terminal, what was found replaces it

    TELL.set(tell)
    is_config = target.endswith(_CONFIGS) and "://" not in target
    for option, value in (("--model", model), ("--api-key-env", api_key_env)):
        if is_config and value is not None:
            raise ConfigError(option, value, "a config is given", "Write it into the config's model")
    backends = _of_config(Path(target)) if is_config else {"": _of_server(target, model, api_key_env)}
    found = asyncio.run(_looks(backends, thorough))
    tell("")
    if as_json:
        say_json({name: one for name, (_, one, _) in found.items()} if is_config else found[""][1])
    else:
        for name, (lines, _, _) in found.items():
            say("\n".join(f"models.{name}: {line}" if name else line for line in lines))
    raise typer.Exit(FAILED if any(is_bad for _, _, is_bad in found.values()) else OK)


def _of_server(target: str, model: str | None, api_key_env: str | None) -> OpenAIBackend:
    from backends import OpenAIBackend, named_backend

    backend = named_backend(target if model is None else f"{target}#{model}", api_key_env=api_key_env)
    if not isinstance(backend, OpenAIBackend):
        raise ConfigError("URL", target, "not a server", "Give its URL and --model, or a config")
    return backend


def _of_config(config: Path) -> Mapping[str, OpenAIBackend]:
    from audit import load_audit
    from backends import OpenAIBackend

    audit = load_audit(config)
    for mistake in audit.mistakes():
        raise mistake
    found = {name: backend for name, backend in audit.models.items() if isinstance(backend, OpenAIBackend)}
    if not found:
        raise ConfigError("models", list(audit.models), "none of them is a server", "Only servers are probed")
    return found


async def _looks(backends: Mapping[str, OpenAIBackend], thorough: bool) -> dict[str, _Found]:
    """What was found of each, or why it cannot be asked."""
    found: dict[str, _Found] = {}
    for name, backend in backends.items():
        backend.check()
        try:
            look = await backend.probe()
            made = await backend.experiments() if thorough else ()
        except BackendError as error:
            found[name] = [str(error)], {"error": error.to_json()}, True
        else:
            as_json = {**look.model_dump(mode="json"), "experiments": [one._asdict() for one in made]}
            is_distrusted = bool(look.lists) and not any(look.capabilities.routes)
            is_bad = is_distrusted or any(one.passed is False for one in made)
            found[name] = [*look.lines, *map(str, made)], as_json, is_bad
        finally:
            await backend.close()
    return found
