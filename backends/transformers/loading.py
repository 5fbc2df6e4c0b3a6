"""The seam to the libraries that load models: what they raise becomes a `ConfigError`, its cause in one line.

Which commit of a hub's repository is meant is found once, so that what is described is what is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.errors import AuditError, ConfigError, one_line

_MODEL_FILE = "config.json"
_HINT = (
    "Check its name, and HF_TOKEN; without a network run `hf download` where there is one, copy its cache and set "
    "HF_HUB_OFFLINE=1, or set HF_ENDPOINT to a mirror"
)
#: While loading a model, transformers changes torch's default dtype for the whole process and then restores it. Two
#: loads at once, for two devices, could leave the wrong one in place.
_one_load = threading.Lock()
_one_gguf = threading.RLock()


@contextlib.contextmanager
def loading(field: str, value: str, what: str, hint: str) -> Iterator[None]:
    """Within this block a library loads ``what``, named by the option ``field``.

    Errors of this project pass, and so does running out of memory, which is no fault of a file.

    Raises
    ------
    ConfigError
        For everything else that the library raises.
    """
    try:
        yield
    except (AuditError, MemoryError):
        raise
    except Exception as error:  # foreign code on foreign files: it may fail in any way
        from backends.transformers.memory import is_out_of_memory

        if is_out_of_memory(error):
            raise
        problem = f"{what} cannot be loaded ({one_line(error)})"
        if "trust_remote_code=True" in str(error):
            hint = "Set trust_remote_code if you trust the code that comes with it"
        raise ConfigError(field, value, problem, hint) from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within this block transformers and PEFT write errors alone, and a bar on a terminal; one block at a time.

    They print a report of weights that fit no place, and warnings with a line of their source. What of it matters here
    ends as one error, or as one line of the report.
    """
    from transformers.utils import logging

    with _one_load, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity(max(level, logging.ERROR))
        if sys.stderr is None or not sys.stderr.isatty():
            logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if has_bar:
                logging.enable_progress_bar()


@contextlib.contextmanager
def gguf_read_once() -> Iterator[None]:
    """Within this block transformers parses a GGUF file once, not for its config and again for its weights.

    Nor does it make its table of tensors' names for every module: 262,144 tokens took half a minute.
    """
    import gguf

    with _one_gguf:
        reader, table = gguf.GGUFReader, gguf.get_tensor_name_map
        gguf.GGUFReader = functools.cache(reader)  # for as long as this lasts: it holds the parsed fields
        gguf.get_tensor_name_map = functools.cache(table)
        try:
            yield
        finally:
            gguf.GGUFReader, gguf.get_tensor_name_map = reader, table


@dataclass(frozen=True, slots=True)
class HubCommit:
    """A commit of a repository; ``offline``: its files come from the cache alone.

    ``statement`` is what a reader of the figures is told; empty where nothing is out of the ordinary.
    """

    commit: str
    offline: bool = False
    statement: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for ``from_pretrained`` and ``hf_hub_download``."""
        return {"revision": self.commit, "local_files_only": True} if self.offline else {"revision": self.commit}


def find_commit(field: str, repo: str, revision: str | None, *, file: str = _MODEL_FILE) -> HubCommit:
    """The commit that a revision of a repository is at now; without a hub, the one in the cache.

    The hub is asked once: huggingface_hub would ask it anew for each file, for over a minute where there is no network.
    Raises `ConfigError` where it is neither at the hub nor in the cache.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url

    with loading(field, repo, f"its {file}", _HINT):
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


def _cached(repo: str, revision: str | None, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file, revision=revision)
    return Path(found) if isinstance(found, str) else None
