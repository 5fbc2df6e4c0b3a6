"""A model behind Anthropic's own API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator

from backends.anthropic.client import MessagesClient
from backends.errors import ConfigError
from backends.http.client import HttpClient
from backends.http.options import Headers, Url, Variable
from backends.openai.backend import OpenAIBackend
from backends.openai.options import OpenAIOptions

_VERSION = {"anthropic-version": "2023-06-01"}
#: Options of OpenAI-style servers that this API has no use for.
_ELSEWHERE = ("urls", "token", "service_tier", "batch", "query", "tokenizer")


def _with_version(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {**_VERSION, **headers}


class AnthropicOptions(OpenAIOptions):
    """`OpenAIOptions` with Anthropic's address and key. ``reasoning_effort`` is sent as ``output_config.effort``."""

    base_url: Url = "https://api.anthropic.com/v1"
    api_key_env: Variable = "ANTHROPIC_API_KEY"
    key_header: str = "x-api-key"
    headers: Annotated[Headers, AfterValidator(_with_version)] = _VERSION


class AnthropicBackend(OpenAIBackend):
    """A model behind ``/v1/messages``: it generates texts; scores are estimated from ``samples`` drawn answers.

    Which parameters the model accepts (a temperature, a prefill) is found by a look, as for `OpenAIBackend`.

    Parameters
    ----------
    model : str
        ``claude-…``, as the API knows it.
    **options
        The fields of `AnthropicOptions`: ``samples``, ``prices``, ``extra_body`` (``{"thinking": {"type":
        "adaptive"}}``)…
    """

    engine: ClassVar[str] = "anthropic"
    options_type: ClassVar[type[OpenAIOptions]] = AnthropicOptions
    client_type: ClassVar[type[HttpClient]] = MessagesClient

    def __init__(self, model: str, **options: Any) -> None:
        for name in options:
            if name in _ELSEWHERE:
                raise ConfigError(name, options[name], "not an option of Anthropic's API", "Remove it")
        options.setdefault("base_url", AnthropicOptions.model_fields["base_url"].default)
        super().__init__(model=model, **options)

    def __repr__(self) -> str:
        return f"AnthropicBackend({self.model!r})"
