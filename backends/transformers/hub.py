"""Which commit of a hub's repository is meant, and whether the hub can be reached: asked once, before any file.

huggingface_hub asks for each file anew. Where a network is missing, it does so six times, for over a minute in all.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.errors import AuditError, ConfigError
from backends.transformers.loading import loading

#: Seconds between tries to reach a hub that refuses at once, where nothing in the cache could be used instead.
WAITS = (1.0, 2.0)
#: Seconds for which a hub that did not answer in time is not asked again: a run of five models waits once.
SILENCE = 60.0
_MODEL_FILE = "config.json"

_silent: dict[str, tuple[float, str]] = {}  # by endpoint: since when, and the cause in words


@dataclass(frozen=True, slots=True)
class HubCommit:
    """A commit of a repository; ``offline`` says why its files come from the cache alone, empty if they do not."""

    commit: str
    offline: str = ""
    is_chosen: bool = False  # whether HF_HUB_OFFLINE said so

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for ``from_pretrained`` and ``hf_hub_download``."""
        return {"revision": self.commit, "local_files_only": True} if self.offline else {"revision": self.commit}

    @property
    def statement(self) -> str:
        """What a reader of the figures is told; empty where nothing is out of the ordinary."""
        if not self.offline or self.is_chosen:
            return ""
        return f"{self.offline}: its files are those in the cache, revision {self.commit[:12]}"


class _UnreachableError(AuditError):
    """The hub gives no commit now; the text is the cause. It is no failure where the cache has the model."""

    def __init__(self, cause: str, *, may_pass: bool = False) -> None:
        super().__init__(cause)
        self.may_pass = may_pass


def find_commit(
    field: str, repo: str, revision: str | None, *, file: str = _MODEL_FILE, instead: str = ""
) -> HubCommit:
    """The commit that a revision of a repository is at now, or was when it came into the cache.

    Raises
    ------
    ConfigError
        It is neither at the hub nor in the cache; ``instead`` is what needs no hub.
    """
    from huggingface_hub import constants

    with loading(field, repo, "its repository", "Check the name", instead=instead):
        cached = cached_commit(repo, revision, file)
    if constants.is_offline_mode():
        if cached is None:
            raise _not_stored(field, repo, revision, "HF_HUB_OFFLINE is set", instead)
        return HubCommit(cached, "HF_HUB_OFFLINE is set", is_chosen=True)
    try:
        with loading(field, repo, "its repository", "Check the name", instead=instead):
            _with_patience(lambda: _ask(field, repo, revision, file), () if cached else WAITS)
            return HubCommit(_fetch(repo, revision, file))
    except _UnreachableError as error:
        if cached is None:
            raise _not_stored(field, repo, revision, str(error), instead) from None
        return HubCommit(cached, f"the hub cannot be reached ({error})")
    except ConfigError as error:
        if cached is None or (error.problem.startswith("the hub has no such revision") and cached != revision):
            raise
        return HubCommit(cached, error.problem)  # gone, or not for this token: what was fetched is still the same


def cached_commit(repo: str, revision: str | None, file: str = _MODEL_FILE) -> str | None:
    """The commit of a revision in the cache, also of a shortened one; None if its ``file`` is not there."""
    found = _cached_file(repo, revision, file)
    if found is None and revision is not None and len(begun := _beginning_with(repo, revision)) == 1:
        found = _cached_file(repo, begun[0], file)
    return None if found is None else found.parent.name


def options_of_weights(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments for a model's ``from_pretrained``, which looks for an adapter beside it, at the hub if not told."""
    if not options.get("local_files_only"):
        return options
    return {**options, "adapter_kwargs": {"local_files_only": True}}


def snapshot_of(repo: str, commit: str) -> Path | None:
    """The folder that holds a commit's files in the cache."""
    found = _cached_file(repo, commit, _MODEL_FILE)
    return None if found is None else found.parent


def _cached_file(repo: str, revision: str | None, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file, revision=revision)
    return Path(found) if isinstance(found, str) else None


def _beginning_with(repo: str, revision: str = "") -> list[str]:
    """The commits of a repository in the cache; of a shortened one those that it may be."""
    from huggingface_hub import constants

    if revision and re.fullmatch(r"[0-9a-f]{4,39}", revision) is None:  # a branch, a tag, or a whole commit
        return []
    folder = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "snapshots"
    return sorted(found.name for found in folder.glob(f"{revision}*"))


def _not_stored(field: str, repo: str, revision: str | None, cause: str, instead: str) -> ConfigError:
    from huggingface_hub import constants

    if revision is not None and (stored := _beginning_with(repo)):
        several = _beginning_with(repo, revision)
        problem = f"{len(several)} commits" if several else "no such revision"
        problem += f" of {repo} {'begin so' if several else 'is'} in the cache at {constants.HF_HUB_CACHE}, and {cause}"
        hint = f"Give a whole commit, such as {(several or stored)[-1]}, or fetch this one where there is a network"
        return ConfigError("revision", revision, problem, f"{hint}; or {instead}" if instead else hint)
    if constants.is_offline_mode():
        problem = f"not in the cache at {constants.HF_HUB_CACHE}, and {cause}, so the hub cannot be reached"
        hint = f"Unset it, give a folder, or copy the cache of a machine with a network that ran `hf download {repo}`"
    else:
        problem = f"the hub cannot be reached ({cause}), and there is no such folder, nor is it in the cache at "
        problem += str(constants.HF_HUB_CACHE)
        hint = (
            f"Give a folder; or run `hf download {repo}` elsewhere, copy that cache and set HF_HUB_OFFLINE=1; "
            "or set HF_ENDPOINT to a mirror"
        )
    return ConfigError(field, repo, problem, f"{hint}; or {instead}" if instead else hint)


def _fetch(repo: str, revision: str | None, file: str) -> str:
    """The commit of a revision, which is kept in the cache under the revision's name: later commands need no hub."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repo, file, revision=revision)).parent.name


def _with_patience(ask: Callable[[], None], waits: tuple[float, ...]) -> None:
    for wait in waits:
        try:
            return ask()
        except _UnreachableError as error:
            if not error.may_pass:
                raise
        time.sleep(wait)
    return ask()


def _ask(field: str, repo: str, revision: str | None, file: str) -> None:
    """Ask the hub once, as huggingface_hub does for a file. Raises its errors, or `_UnreachableError`."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    endpoint, timeout = constants.ENDPOINT, constants.HF_HUB_ETAG_TIMEOUT
    since, cause = _silent.get(endpoint, (-math.inf, ""))
    if time.monotonic() - since < SILENCE:
        raise _UnreachableError(cause)
    try:
        commit = get_hf_file_metadata(hf_hub_url(repo, file, revision=revision), timeout=timeout).commit_hash
    except RemoteEntryNotFoundError:
        hint = "Give a model of transformers; of a repository of GGUF files download one, and give its path"
        if file != _MODEL_FILE:
            hint = "Give an adapter saved by PEFT"
        raise ConfigError(field, repo, f"the hub's repository has no {file}", hint) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == 429 or status >= 500:
            raise _UnreachableError(f"{endpoint} answered {status}", may_pass=True) from None
        raise
    except Exception as error:  # of httpx, whose name depends on the version of huggingface_hub
        kinds = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("httpx")}
        if "TransportError" not in kinds:
            raise
        if "TimeoutException" not in kinds:
            said = str(error) or type(error).__name__
            raise _UnreachableError(f"{endpoint}: {' '.join(said.split())[:150]}", may_pass=True) from None
        cause = f"no answer from {endpoint} in {timeout:g} s; HF_HUB_ETAG_TIMEOUT allows more"
        _silent[endpoint] = time.monotonic(), cause
        raise _UnreachableError(cause) from None
    if commit is None:
        raise _UnreachableError(f"what answers at {endpoint} is not a hub: its answer names no commit")
