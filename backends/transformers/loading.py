"""The seam to the libraries that load models: what they raise becomes a `ConfigError`, its cause in one line."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from backends.errors import AuditError, ConfigError, one_line

#: Errors of huggingface_hub and httpx, often the cause of another error → what is wrong, and what to do.
_HUB = {
    "GatedRepoError": ("the hub asks for permission", "Accept the model's terms on its page, and set HF_TOKEN"),
    "RepositoryNotFoundError": ("the hub has no such model, or it is private", "Check the name, or set HF_TOKEN"),
    "RevisionNotFoundError": ("the hub has no such revision of it", "Give a branch, tag or commit that it has"),
    "RemoteEntryNotFoundError": ("the hub's repository lacks a file that is needed", "Give a model of transformers"),
    "HFValidationError": ("neither a folder nor a hub id", "Give a path that exists, or owner/name"),
    "LocalEntryNotFoundError": (
        "not stored on this machine, and the hub cannot be reached",
        "Run `hf download` where there is a network and copy its cache, or give a folder",
    ),
    "TransportError": (
        "no such folder, and the hub cannot be reached",
        "Give a folder; or run `hf download` where there is a network, copy its cache and set HF_HUB_OFFLINE=1; or set "
        "HF_ENDPOINT to a mirror",
    ),
}
_LIBRARIES = ("huggingface_hub", "httpx")

#: While loading a model, transformers changes torch's default dtype for the whole process and then restores it. Two
#: loads at once, for two devices, could leave the wrong one in place.
one_load = threading.Lock()


@contextlib.contextmanager
def loading(field: str, value: str, what: str, hint: str, *, instead: str = "") -> Iterator[None]:
    """Within this block a library loads ``what``, named by the option ``field``; ``instead`` is what needs no hub.

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
        problem, hint = _known(error) or (f"{what} cannot be loaded ({one_line(error)})", hint)
        raise ConfigError(field, value, problem, ", or ".join(filter(None, (hint, instead)))) from None


def _known(error: BaseException | None) -> tuple[str, str] | None:
    """What is known of an error or of its causes."""
    if isinstance(error, ImportError):
        return f"a package is missing ({one_line(error)})", "Install what this names"
    if "trust_remote_code=True" in str(error):
        return "it needs code that comes with it, which is not run", "Set trust_remote_code if you trust that code"
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        for kind in type(error).__mro__:
            if kind.__name__ in _HUB and kind.__module__.startswith(_LIBRARIES):
                problem, hint = _HUB[kind.__name__]
                return f"{problem} ({one_line(error)[:150]})", hint
        error = error.__cause__ or error.__context__
    return None
