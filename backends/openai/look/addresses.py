"""Why a server answers nothing: another path, a model that it does not list, Azure's version left out."""

from __future__ import annotations

import difflib
from typing import Any

from backends.errors import BackendError
from backends.openai.look.session import Looking

#: Failures that another path may explain: a missing route, a web page in place of an answer.
_OF_PATHS = ("not_found", "malformed", "bad_request", "unsupported")
#: Models named in a message.
_MOST_NAMED = 5


async def unanswered(look: Looking) -> BackendError:
    """Why neither texts nor chats are answered, with what would help where that can be found."""
    error = look.refusal or BackendError("not_found", "no endpoint answers")
    if error.kind not in _OF_PATHS:
        return error
    if (under_v1 := await elsewhere(look, error)) is not None:
        return under_v1
    if error.kind != "not_found":
        return error
    if "/deployments/" in look.api.client.base_url and "api-version" not in look.api.extras.query:
        hint = (
            'Azure needs its version here: query={"api-version": "2024-10-21"}, or a base_url that ends in /openai/v1'
        )
        return BackendError(error.kind, error.message, hint=hint)
    return await _unlisted_model(look) or error


async def elsewhere(look: Looking, error: BackendError) -> BackendError | None:
    """The error with the right address, if the API is under ``/v1`` of the one given."""
    url = look.api.client.base_url
    if url.endswith("/v1"):
        return None
    body = {"model": look.api.model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16}
    answer = await look.ask(look.api.client.post, "/v1/chat/completions", body)
    if isinstance(answer, BackendError) and answer.kind in ("not_found", "malformed", "server", error.kind):
        return None
    return BackendError("not_found", f"{error.message} at {url}", hint=f"Set base_url to {url}/v1: it answers there")


async def _unlisted_model(look: Looking) -> BackendError | None:
    """The error that names the server's models, if it lists some and not the one that is asked for."""
    answer, model = await look.ask(look.api.client.get, "models"), look.api.model
    listed: Any = answer.get("data") if isinstance(answer, dict) else None
    found = [one["id"] for one in listed if isinstance(one, dict) and one.get("id")] if isinstance(listed, list) else []
    if not found or model in found:
        return None
    near = difflib.get_close_matches(model, found, n=_MOST_NAMED) or found[:_MOST_NAMED]
    rest = "" if len(found) <= len(near) else f" (of {len(found)})"
    return BackendError(
        "not_found",
        f"the server lists no model {model!r}",
        hint=f"Set model to one that it lists: {', '.join(near)}{rest}",
    )
