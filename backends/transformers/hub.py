"""Which commit of a hub's repository is meant: found once, so that what is described is what is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.errors import one_line
from backends.transformers.loading import loading

_MODEL_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class HubCommit:
    """A commit of a repository; ``offline`` says why its files come from the cache alone, empty if they do not.

    ``statement`` is what a reader of the figures is told; empty where nothing is out of the ordinary.
    """

    commit: str
    offline: bool = False
    statement: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for ``from_pretrained`` and ``hf_hub_download``."""
        return {"revision": self.commit, "local_files_only": True} if self.offline else {"revision": self.commit}


def find_commit(
    field: str, repo: str, revision: str | None, *, file: str = _MODEL_FILE, instead: str = ""
) -> HubCommit:
    """The commit that a revision of a repository is at now; without a hub, the one in the cache.

    The hub is asked once: huggingface_hub would ask it anew for each file, for over a minute where there is no network.
    Raises `ConfigError` where it is neither at the hub nor in the cache; ``instead`` is what needs no hub.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url

    with loading(field, repo, "its repository", "Check the name", instead=instead):
        cached = _cached(repo, revision, file)
        if constants.is_offline_mode():
            found = cached or Path(hf_hub_download(repo, file, revision=revision, local_files_only=True))
            return HubCommit(found.parent.name, offline=True)
        try:
            get_hf_file_metadata(hf_hub_url(repo, file, revision=revision), timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except Exception as error:  # no hub, or one that refuses: what was fetched is still the same
            if cached is None:
                raise
            said = f"the hub gives no commit ({one_line(error)[:150]})"
            statement = f"{said}: its files are those in the cache, revision {cached.parent.name[:12]}"
            return HubCommit(cached.parent.name, offline=True, statement=statement)
        # Kept in the cache under the revision's name: later commands need no hub.
        return HubCommit(Path(hf_hub_download(repo, file, revision=revision)).parent.name)


def snapshot_of(repo: str, commit: str) -> Path | None:
    """The folder that holds a commit's files in the cache."""
    found = _cached(repo, commit, _MODEL_FILE)
    return None if found is None else found.parent


def options_of_weights(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments for a model's ``from_pretrained``, which looks for an adapter beside it, at the hub if not told."""
    return {**options, "adapter_kwargs": {"local_files_only": True}} if options.get("local_files_only") else options


def _cached(repo: str, revision: str | None, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file, revision=revision)
    return Path(found) if isinstance(found, str) else None
