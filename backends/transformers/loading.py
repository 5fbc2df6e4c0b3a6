"""The seam to the libraries that load models: what they raise becomes a `ConfigError`, its cause in one line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from backends.errors import AuditError, ConfigError, one_line

#: Errors of huggingface_hub, often the cause of another error → what is wrong, and what to do.
_HUB = {
    "GatedRepoError": ("the hub asks for permission", "Accept the model's terms on its page, and set HF_TOKEN"),
    "RepositoryNotFoundError": ("the hub has no such model, or it is private", "Check the name, or set HF_TOKEN"),
    "RevisionNotFoundError": ("the hub has no such revision of it", "Give a branch, tag or commit that it has"),
    "HFValidationError": ("neither a folder nor a hub id", "Give a path that exists, or owner/name"),
    "LocalEntryNotFoundError": (
        "not stored on this machine, and the hub cannot be reached",
        "Fetch it where there is a network (`hf download`), or give a folder",
    ),
}
#: Refusals that huggingface_hub has no kind of error for, by status.
_REFUSED = {
    401: ("the hub asks for a valid token", "Set HF_TOKEN to one (`hf auth whoami` shows whose is in use)"),
    403: ("the hub, or a proxy, forbids it", "Check what HF_TOKEN may read, and HTTPS_PROXY"),
}
_NO_NETWORK = ("no such folder, and the hub cannot be reached", "Check the path, or fetch it where there is a network")
_HUB["OfflineModeIsEnabled"] = _HUB["LocalEntryNotFoundError"]

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
        problem, hint = (
            _of_the_hub(error)
            or _of_the_disk(error, what)
            or _of_a_pickle(error, what)
            or _of_the_attention(error)
            or _of_the_kind(error)
            or _of_a_value(error, value)
            or (f"{what} cannot be loaded ({one_line(error)})", hint)
        )
        raise ConfigError(field, value, problem, ", or ".join(filter(None, (hint, instead)))) from None


def _of_the_disk(error: Exception, what: str) -> tuple[str, str] | None:
    """A full disk is no fault of the model's files; some libraries say so in words alone."""
    full = os.strerror(errno.ENOSPC)
    if getattr(error, "errno", None) != errno.ENOSPC and full not in str(error):
        return None
    return f"{what} cannot be loaded: the disk is full ({one_line(error)})", "Free some space"


def _of_a_pickle(error: Exception, what: str) -> tuple[str, str] | None:
    """torch refuses a pickle with code, and then says how to run it all the same."""
    named = re.search(r"unsupported GLOBAL (\S+)", str(error))
    if not isinstance(error, pickle.UnpicklingError) or named is None:
        return None
    return f"{what} holds code ({named[1]}), which is not run", "Give its weights as safetensors"


def _of_the_attention(error: Exception) -> tuple[str, str] | None:
    """transformers tells that a model has no such attention in five lines, of which the last asks for a report."""
    said = re.search(r"(\w+) does not support (Flash Attention|an attention implementation)", str(error))
    if said is None:
        return None
    return f"{said[1]} does not support this attn_implementation", "Leave attn_implementation out, or give 'eager'"


def _of_the_kind(error: Exception) -> tuple[str, str] | None:
    """What transformers says of a model that it does not know, or of its code, and then how to run or update it."""
    if isinstance(error, ImportError):
        return f"a package is missing ({one_line(error)})", "Install what this names"
    said = " ".join(str(error).split())
    if found := re.search(r"model type `([^`]*)` but Transformers does not recognize", said):
        import transformers

        problem = f"its kind {found[1]!r} is unknown to transformers {transformers.__version__}"
        return problem, "Check model_type in its config.json, or install a transformers that knows it"
    if "trust_remote_code=True" in said:
        return "it needs code that comes with it, which is not run", "Set trust_remote_code if you trust that code"
    return None


def _of_a_value(error: Exception, model: str) -> tuple[str, str] | None:
    """transformers looks some of a config's words up in a table, and says only which word is not in it."""
    word = error.args[0] if isinstance(error, KeyError) and error.args else None
    if not isinstance(word, str):
        return None
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text())
    except (OSError, ValueError):
        return None
    if (field := _field_of(config, word)) is None:
        return None
    import transformers

    problem = f"{field} = {word!r} in its config.json is unknown to transformers {transformers.__version__}"
    return problem, f"Check {field}, or install a transformers that knows it"


def _field_of(config: object, word: str) -> str | None:
    """The field of a config, or of its parts, that holds this word."""
    fields = config.items() if isinstance(config, dict) else ()
    for name, value in fields:
        found = str(name) if value == word else _field_of(value, word)
        if found is not None:
            return found
    return None


def _of_the_hub(error: BaseException | None) -> tuple[str, str] | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        status = getattr(getattr(error, "response", None), "status_code", None)
        for kind in type(error).__mro__:
            if kind.__name__ == "HfHubHTTPError" and status in _REFUSED:
                return _REFUSED[status]
            if kind.__name__ in _HUB and kind.__module__.startswith("huggingface_hub"):
                return _HUB[kind.__name__]
            if kind.__name__ == "TransportError" and kind.__module__.startswith("httpx"):  # of a query, not of a file
                return _NO_NETWORK
        error = error.__cause__ or error.__context__
    return None
