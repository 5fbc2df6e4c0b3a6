"""The address of a server: checked before anything is sent, and shown without possible secrets."""

from __future__ import annotations

import contextlib
import ipaddress
import re

import httpx
from pydantic import AfterValidator

from backends.options import refused, refused_at

_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/embeddings")


def server_url(url: str) -> str:
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


#: What ``urls`` must hold.
REPLICAS = AfterValidator(_replicas)


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _without_secrets(url: str) -> str:
    """A URL without user info, query and fragment; if it cannot be parsed and may hold one of them, its scheme."""
    with contextlib.suppress(httpx.InvalidURL):
        parsed = httpx.URL(url)
        if parsed.host:
            return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
    scheme = re.match(r"\w+://", url)
    return (scheme[0] if scheme else "") + "…" if re.search("[@?#]", url) else url
