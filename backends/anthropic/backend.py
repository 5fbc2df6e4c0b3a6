"""A model behind Anthropic's own API."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from backends.anthropic.client import MessagesClient
from backends.http.address import server_url
from backends.http.client import HttpClient
from backends.http.keys import VARIABLES
from backends.http.usage import PriceTable
from backends.openai.backend import AtLeastOne, CostLimit, OpenAIBackend, OptionalPath, OptionalText, Seconds
from backends.openai.protocol.request_extras import ExtraBody, Headers
from backends.options import OnError, checked_options

_VERSION = {"anthropic-version": "2023-06-01"}


class AnthropicBackend(OpenAIBackend):
    """A model behind ``/v1/messages``: it generates texts; scores are estimated from ``samples`` drawn answers.

    Which parameters the model accepts (a temperature, a prefill) is tested empirically, as for `OpenAIBackend`.

    Parameters
    ----------
    model : str
        ``claude-…``, as the API knows it.
    base_url : str
        Up to and including the version.
    extra_body : mapping, optional
        Fields added to each request: ``{"thinking": {"type": "adaptive"}}``.
    reasoning_effort : str, optional
        Sent as ``output_config.effort``.

    The other options are those of `OpenAIBackend`.
    """

    engine: ClassVar[str] = "anthropic"
    client_type: ClassVar[type[HttpClient]] = MessagesClient

    @checked_options
    def __init__(
        self,
        model: Annotated[str, Field(min_length=1), OnError("not a text", "Name the model as the server knows it")],
        *,
        base_url: Annotated[str, AfterValidator(server_url)] = "https://api.anthropic.com/v1",
        api_key_env: Annotated[str | None, VARIABLES] = "ANTHROPIC_API_KEY",
        key_file: OptionalPath = None,
        timeout: Seconds = 120.0,
        max_in_flight: AtLeastOne = 8,
        samples: AtLeastOne | None = None,
        prices: PriceTable | None = None,
        max_cost: CostLimit = None,
        probe_folder: OptionalPath = None,
        reasoning_effort: OptionalText = None,
        reasoning_tokens: Annotated[int, Field(ge=0)] | None = None,
        headers: Headers = None,
        extra_body: ExtraBody = None,
        proxy: OptionalText = None,
        ca_bundle: OptionalPath = None,
    ) -> None:
        super().__init__(
            base_url,
            model=model,
            api_key_env=api_key_env,
            key_file=key_file,
            timeout=timeout,
            max_in_flight=max_in_flight,
            samples=samples,
            prices=prices,
            max_cost=max_cost,
            probe_folder=probe_folder,
            reasoning_effort=reasoning_effort,
            reasoning_tokens=reasoning_tokens,
            headers={**_VERSION, **(headers or {})},
            extra_body=extra_body,
            key_header="x-api-key",
            proxy=proxy,
            ca_bundle=ca_bundle,
        )

    def __repr__(self) -> str:
        return f"AnthropicBackend({self.model!r})"
