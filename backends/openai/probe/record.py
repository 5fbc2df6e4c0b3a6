"""The last probe of each server, kept on disk: the model's identity, and results that need not be probed again."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from backends.base import Scalar
from backends.files import atomic_write
from backends.openai.probe.report import ProbeReport


class ProbeRecord:
    """One file per server and model. An unreadable file counts as missing.

    Parameters
    ----------
    folder : Path or None
        None: ``bias-audit/probes`` in the user's cache folder.
    """

    def __init__(
        self,
        folder: Path | None,
        base_url: str,
        model: str,
        key_identity: str,
        samples: int | None,
        request_extras: Mapping[str, Scalar] | None = None,
    ) -> None:
        folder = folder or platformdirs.user_cache_path("bias-audit") / "probes"
        parts = [base_url, model, key_identity, samples, *([dict(request_extras)] if request_extras else [])]
        name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
        self._file = folder / f"{name}.json"

    def read(self) -> ProbeReport | None:
        """The report of the last probe; None if there is none."""
        try:
            return ProbeReport.from_json(json.loads(self._file.read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, report: ProbeReport) -> None:
        """Save a report. If the folder is not writable, the next run probes again."""
        with contextlib.suppress(OSError):
            atomic_write(self._file, json.dumps(report.to_json()))

    def amend(self, **capabilities: Any) -> None:
        """Change what the last report says of the server."""
        if (last := self.read()) is not None:
            self.write(dataclasses.replace(last, capabilities=last.capabilities.model_copy(update=capabilities)))
