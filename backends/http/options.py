"""The options of any backend over HTTP: one model, whose fields are the backend's keywords."""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import AfterValidator, Field, model_validator

from backends.errors import ConfigError
from backends.http.keys import VARIABLE, Credential, check_key_for
from backends.http.usage import PriceTable
from backends.options import AS_TUPLE, OnError, Options, refused, refused_at

#: Names of keys: what they hold would be in the fingerprint, and so in the store and the report.
_OF_KEYS = re.compile(r"(proxy-|x-)?(authorization|((goog|subscription)-)?api[-_]?key|access_token)", re.I)
#: In a query these are keys too.
_KEY_FIELDS = frozenset(("key", "code", "token", "subscription-key", "sig"))
#: How the paths of endpoints end.
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/embeddings")


def _without_keys(names: Iterable[str], others: Collection[str] = ()) -> None:
    for name in names:
        if _OF_KEYS.fullmatch(name) or name.lower() in others:
            hint = "Name the key by api_key_env, its header by key_header"
            raise refused_at((name,), "…", "a field for keys", hint)


def _headers(given: Mapping[str, str]) -> Mapping[str, str]:
    _without_keys(given)
    for name, value in given.items():
        if not name.isascii() or not value.isascii() or not value.isprintable():
            raise refused_at((name,), value, "not a header", "Use printable ASCII")
    return dict(given)


def _query(given: Mapping[str, str]) -> Mapping[str, str]:
    _without_keys(given, _KEY_FIELDS)
    return dict(given)


def _names(given: Any) -> Iterator[str]:
    """The names of all fields, also of nested ones."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            yield str(name)
            yield from _names(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _names(value)


def _body(given: Mapping[str, Any]) -> Mapping[str, Any]:
    _without_keys(_names(given))
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError):
        raise refused("not JSON", "Use texts, numbers, true, false, null, lists and tables") from None
    return dict(given)


def _server_url(url: str) -> str:
    """A URL that requests can be sent to, without a trailing slash. Raises a pydantic error for any other."""
    with contextlib.suppress(httpx.InvalidURL):
        parsed = httpx.URL(url)
        if parsed.userinfo or parsed.query or parsed.fragment:
            problem = "it holds a password, query or fragment"
            raise refused_at((), _without_secrets(url), problem, "Give keys by api_key_env, other fields by query")
        path = parsed.path.rstrip("/")
        if ending := next((end for end in _ENDPOINTS if path.endswith(end)), None):
            hint = f"Give {url.rstrip('/').removesuffix(ending)}"
            raise refused_at((), url, "the path of an endpoint, not of the API", hint)
        if parsed.scheme in ("http", "https") and parsed.host:
            return url.rstrip("/")
    raise refused_at((), _without_secrets(url), "not an http or https URL", "Give one like https://host/v1")


def _replicas(urls: tuple[str, ...]) -> tuple[str, ...]:
    if len(urls) < 2:
        raise refused("too few", "Give at least 2, or one by base_url")
    if again := next((url for url in urls if urls.count(url) > 1), None):
        raise refused(f"{again} stands in it twice", "Give each server once")
    return urls


def _without_secrets(url: str) -> str:
    """A URL without user info, query and fragment; if it cannot be parsed and may hold one of them, its scheme."""
    with contextlib.suppress(httpx.InvalidURL):
        parsed = httpx.URL(url)
        if parsed.host:
            return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
    scheme = re.match(r"\w+://", url)
    return (scheme[0] if scheme else "") + "…" if re.search("[@?#]", url) else url


Url = Annotated[str, AfterValidator(_server_url)]
OptionalPath = Annotated[str | Path | None, OnError("not a text", "Write it in quotes")]
OptionalText = Annotated[str | None, Field(min_length=1), OnError("not a text", "Write it in quotes")]
AtLeastOne = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), OnError("not a time limit", "Give seconds above 0")]
CostLimit = Annotated[
    float | None, Field(gt=0, allow_inf_nan=False), OnError("not a limit to costs", "Give a number above 0")
]
Variable = Annotated[str | None, VARIABLE, OnError("not a text", "Name one environment variable")]
ModelName = Annotated[str, Field(min_length=1), OnError("not a text", "Name the model as the server knows it")]
Headers = Annotated[
    Mapping[str, str], AfterValidator(_headers), OnError("not headers", "Write them as a table of texts")
]
Query = Annotated[
    Mapping[str, str], AfterValidator(_query), OnError("not fields of a query", "Write them as a table of texts")
]
ExtraBody = Annotated[
    Mapping[str, Any], AfterValidator(_body), OnError("not fields of a request", "Write them as a table")
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
    key_file : str or Path, optional
        Instead, a file that holds the key and that only its owner can read (mode 0600).
    token : callable or str, optional
        Instead of a key: "azure" for Entra (extra ``azure``), "google" for the application default credentials (extra
        ``google``), or a function that returns a currently valid token (in a file: its ``module:function``), such as
        ``aws_bedrock_token_generator.provide_token``. A token that the server refuses is renewed at once.
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
        body (OpenRouter's ``provider``, vLLM's ``chat_template_kwargs``). They are part of the model's identity,
        except for headers that only identify the client.
    proxy : str, optional
        URL of a proxy, or the environment variable that holds it. No proxy is taken from the environment by default.
    ca_bundle : str or Path, optional
        File of certificates to trust in addition to the usual ones, e.g. a company's own authority.
    """

    base_url: Url | None = None
    urls: Annotated[tuple[Url, ...], AS_TUPLE, AfterValidator(_replicas)] | None = None
    model: ModelName
    api_key_env: Variable = None
    key_file: OptionalPath = None
    token: Callable[[], str] | OptionalText = None
    key_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "Authorization"
    timeout: Seconds = 120.0
    max_in_flight: AtLeastOne = 8
    prices: PriceTable | None = None
    max_cost: CostLimit = None
    headers: Headers = Field(default_factory=dict)
    query: Query = Field(default_factory=dict)
    extra_body: ExtraBody = Field(default_factory=dict)
    proxy: OptionalText = None
    ca_bundle: OptionalPath = None

    @model_validator(mode="before")
    @classmethod
    def _empty_tables(cls, given: Any) -> Any:
        """None stands for an empty table."""
        tables = ("headers", "query", "extra_body")
        return {name: value for name, value in given.items() if value is not None or name not in tables}

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs of all servers. Raises `ConfigError` unless one of ``base_url`` and ``urls`` is given."""
        if (self.base_url is None) == (self.urls is None):
            raise ConfigError("base_url", self.base_url, "one of base_url and urls is needed", "Give one of them")
        return self.urls or (str(self.base_url),)

    @property
    def key(self) -> Credential:
        """Where the key comes from; read when it is used."""
        return Credential(self.api_key_env, self.key_file, self.token)

    @property
    def proxy_url(self) -> str | None:
        """The proxy's URL, read from the environment if a variable is named."""
        return os.environ.get(self.proxy) if self.proxy and "://" not in self.proxy else self.proxy

    @property
    def proxy_shown(self) -> str:
        """The proxy's scheme, host and port; empty without one."""
        url = httpx.URL(self.proxy_url or "")
        return f"{url.scheme}://{url.netloc.decode()}" if url.host else ""

    def trusted(self) -> ssl.SSLContext | bool:
        """The usual certificates plus those of the file, as httpx's ``verify``."""
        if self.ca_bundle is None:
            return True
        context = httpx.create_ssl_context()
        context.load_verify_locations(cafile=self.ca_bundle)
        return context

    def check(self) -> None:
        """Raise `ConfigError` for a key, limit, proxy or certificate that cannot work."""
        if self.max_cost is not None and self.prices is None:
            raise ConfigError("max_cost", self.max_cost, "no prices are given", "Give prices too, per million tokens")
        check_key_for(self.servers, self.key)
        url = self.proxy_url
        if self.proxy and not url:
            raise ConfigError("proxy", self.proxy, "no such environment variable", "Set it, or give http://host:port")
        if self.proxy and not re.match(r"https?://[^/]", str(url)):
            raise ConfigError("proxy", self.proxy, "not the URL of a proxy", "Give one like http://host:port")
        if self.proxy and "://" in self.proxy and httpx.URL(self.proxy).userinfo:
            hint = "Put the URL into an environment variable and give its name"
            raise ConfigError("proxy", "…", "it holds a password", hint)
        try:
            self.trusted()
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or type(error).__name__
            bundle = str(self.ca_bundle)
            raise ConfigError("ca_bundle", bundle, f"cannot be read ({reason})", "Give a PEM file") from None
