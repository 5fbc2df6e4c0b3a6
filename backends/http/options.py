"""The options of any backend over HTTP: one model, whose fields are the backend's keywords."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import httpx
from pydantic import AfterValidator, BeforeValidator, Field, ImportString, JsonValue

from backends.errors import ConfigError
from backends.http.keys import VARIABLE, Credential, check_key_for
from backends.http.usage import PriceTable
from backends.options import AS_TUPLE, OnError, Options, refused_at

#: Names of keys: what they hold would be in the fingerprint, and so in the store and the report.
_OF_KEYS = r"(?:proxy-|x-)?(?:authorization|(?:(?:goog|subscription)-)?api[-_]?key|access_token)"
#: In a query these are keys too.
_OF_KEYS_IN_QUERIES = rf"{_OF_KEYS}|key|code|token|subscription-key|sig"


def _without(keys: str) -> AfterValidator:
    """Refuses fields with the names of keys, also nested ones."""

    def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
        if named := re.search(rf'"({keys})": ', json.dumps(given), re.I):
            hint = "Name the key by api_key_env, its header by key_header"
            raise refused_at((named[1],), "…", "a field for keys", hint)
        return given

    return AfterValidator(check)


def _server_url(url: str) -> str:
    """A URL that requests can be sent to, without a trailing slash. Raises a pydantic error for any other."""
    shown = "…" if re.search("[@?#]", url) else url
    with contextlib.suppress(httpx.InvalidURL):
        parsed = httpx.URL(url)
        if parsed.userinfo or parsed.query or parsed.fragment:
            problem = "it holds a password, query or fragment"
            raise refused_at((), shown, problem, "Give keys by api_key_env, other fields by query")
        if parsed.scheme in ("http", "https") and parsed.host:
            return url.rstrip("/")
    raise refused_at((), shown, "not an http or https URL", "Give one like https://host/v1")


def _flag(given: Any) -> bool:
    if not isinstance(given, bool):  # perhaps a URL with a password
        hint = "Give true, and the proxy's URL as HTTPS_PROXY in the environment"
        raise refused_at((), "…", "not true or false", hint)
    return given


Url = Annotated[str, AfterValidator(_server_url)]
Replicas = Annotated[tuple[Url, ...], AS_TUPLE, Field(min_length=2)]
OptionalText = Annotated[str | None, Field(min_length=1), OnError("not a text", "Write it in quotes")]
AtLeastOne = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), OnError("not a time limit", "Give seconds above 0")]
CostLimit = Annotated[
    float | None, Field(gt=0, allow_inf_nan=False), OnError("not a limit to costs", "Give a number above 0")
]
Variable = Annotated[str | None, VARIABLE, OnError("not a text", "Name one environment variable")]
ModelName = Annotated[str, Field(min_length=1), OnError("not a text", "Name the model as the server knows it")]
Token = Annotated[ImportString[Callable[[], str]], OnError("not a function", "Give one, in a file as module:function")]
_Printable = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$"), OnError("not printable ASCII", "Change it")]
Headers = Annotated[
    Mapping[_Printable, _Printable], _without(_OF_KEYS), OnError("not headers", "Write them as a table of ASCII texts")
]
Query = Annotated[
    Mapping[str, str], _without(_OF_KEYS_IN_QUERIES), OnError("not fields of a query", "Write them as a table of texts")
]
ExtraBody = Annotated[
    Mapping[str, JsonValue], _without(_OF_KEYS), OnError("not fields of a request", "Write them as a table, as in JSON")
]


class HttpOptions(Options):
    """How a service is reached, and what it may cost.

    Attributes
    ----------
    base_url : str
        Up to and including the version: ``https://api.openai.com/v1``.
    urls : list of str, optional
        Instead of ``base_url``: several servers of one model, asked in turn. ``max_in_flight`` applies to each.
        Whether they serve the same model is verified first.
    model : str
        Name of the model, as the server knows it.
    api_key_env : str or None
        Environment variable that holds the key. None (in a file: "") for a server that needs no key.
    token : callable or str, optional
        Instead of a key: a function that returns a currently valid token (in a file: its ``module:function``), such
        as ``aws_bedrock_token_generator.provide_token``. It is called before each request.
    key_header : str
        The header that carries the key: ``api-key`` for Azure's older endpoints.
    timeout : float
        Seconds for one whole exchange with the server.
    max_in_flight : int
        Maximum number of concurrent requests.
    prices : PriceTable, optional
        Prices per million tokens, or a mapping of ``prompt``, ``completion`` and optionally ``cached``.
    max_cost : float, optional
        In the currency of ``prices``. A request that could exceed it is not sent.
    headers, query, extra_body : mapping
        Sent with every request: HTTP headers, fields of the URL's query (Azure's ``api-version``), and fields of the
        body (OpenRouter's ``provider``, vLLM's ``chat_template_kwargs``). They are part of the model's identity.
    proxy : bool
        Whether to go through the proxy that the environment names (``HTTPS_PROXY``, ``NO_PROXY``…). A private
        authority's certificates are those of ``SSL_CERT_FILE``.
    """

    base_url: Url | None = None
    urls: Replicas | None = None
    model: ModelName
    api_key_env: Variable = None
    token: Token | None = None
    key_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "Authorization"
    timeout: Seconds = 120.0
    max_in_flight: AtLeastOne = 8
    prices: PriceTable | None = None
    max_cost: CostLimit = None
    headers: Headers = Field(default_factory=dict)
    query: Query = Field(default_factory=dict)
    extra_body: ExtraBody = Field(default_factory=dict)
    proxy: Annotated[bool, BeforeValidator(_flag)] = False

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs of all servers. Raises `ConfigError` unless one of ``base_url`` and ``urls`` is given."""
        if (self.base_url is None) == (self.urls is None):
            raise ConfigError("base_url", self.base_url, "one of base_url and urls is needed", "Give one of them")
        return self.urls or (str(self.base_url),)

    @property
    def key(self) -> Credential:
        """Where the key comes from; read when it is used."""
        return Credential(self.api_key_env, self.token)

    def check(self) -> None:
        """Raise `ConfigError` for a key or limit that cannot work."""
        if self.max_cost is not None and self.prices is None:
            raise ConfigError("max_cost", self.max_cost, "no prices are given", "Give prices too, per million tokens")
        check_key_for(self.servers, self.key, self.api_key_env)
