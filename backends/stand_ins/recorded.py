"""A backend for texts that a model wrote elsewhere: it asks nothing and answers from a file.

A .jsonl file has one object per line, with ``prompt`` (a text, or a list of messages with ``role`` and ``content``) and
``completion``; other fields are ignored. Prompts must match exactly. Of several completions of one prompt, the first
answers `GenerateRequest.repeat` 0, the second 1, and so on.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backends.base import Answer, Backend, Capability, Description, GenerateRequest, GenerateResponse, Request
from backends.errors import BackendError, ConfigError
from backends.options import checked_options


class RecordedBackend(Backend):
    """A model whose texts are in a file.

    Parameters
    ----------
    file : path
        A .jsonl file, see `backends.stand_ins.recorded`.
    name : str
        The model that wrote the texts, for the report. Default: the file's name.
    completions : sequence of (prompt, completion), optional
        What a file of another form holds, see `suites.base.Suite.recorded`. Default: read from ``file``.
    """

    path_options: ClassVar[Mapping[str, Collection[str]]] = {"file": ()}
    batch_size = 64

    @checked_options
    def __init__(
        self, file: str | Path, *, name: str = "", completions: Sequence[tuple[str, str]] | None = None
    ) -> None:
        self.file, self._given = Path(file).expanduser(), completions
        self.name = name or self.file.stem
        self._asked: dict[tuple[str, int], tuple[Any, ...]] = {}

    def check(self) -> None:
        """Raise `ConfigError` for a missing file, or for a line that cannot be read, naming it."""
        self._completions  # noqa: B018 - read once, here

    async def describe(self) -> Description:
        capabilities: frozenset[Capability] = frozenset({"generate", "chat", "recorded"})
        texts = [text for of_prompt in self._completions.values() for text in of_prompt]
        stated = f"the texts of {self.name} were written elsewhere: how they were asked for is not known"
        return Description(
            {"backend": "recorded", "sha256": hashlib.sha256(self._raw).hexdigest()},
            capabilities,
            {"model": self.name, "texts": f"{len(texts)} of {len(self._completions)} prompts, from {self.file.name}"},
            limits=(stated,),
            absent={"score": "the file holds only texts: use a suite that reads texts"},
        )

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        return [self._answer(request) for request in batch]

    def _answer(self, request: Request) -> Answer:
        if not isinstance(request, GenerateRequest):
            return BackendError("unsupported", "the file holds only texts")
        key = _key(request.prompt if isinstance(request.prompt, str) else [(m.role, m.content) for m in request.prompt])
        texts = self._completions.get(key, ())
        if request.repeat >= len(texts):
            known = f"{len(texts)} completions" if texts else "no completion"
            return BackendError("unsupported", f"{self.file.name} holds {known} of this prompt")
        drawn = (request.sampling, request.seed)
        if self._asked.setdefault((key, request.repeat), drawn) != drawn:
            hint = "Give each draw a row of its own"
            return BackendError("unsupported", "one completion cannot be the answer to two draws", hint=hint)
        text = texts[request.repeat]
        return GenerateResponse(text, "stop", 0, len(text.split()))

    @functools.cached_property
    def _raw(self) -> bytes:
        if self._given is not None:
            return json.dumps(list(self._given), ensure_ascii=False).encode()
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise ConfigError("file", str(self.file), error.strerror or "cannot be read", "Give another path") from None

    @functools.cached_property
    def _completions(self) -> Mapping[str, Sequence[str]]:
        """Prompt → its completions, in the file's order."""
        found: dict[str, list[str]] = defaultdict(list)
        for prompt, completion in self._given or ():
            found[_key(prompt)].append(completion)
        if self._given is not None:
            return dict(found)
        for number, line in enumerate(self._raw.decode("utf-8-sig", "replace").split("\n"), 1):
            if line.strip():
                prompt, completion = self._row(number, line)
                found[_key(prompt)].append(completion)
        if not found:
            raise ConfigError("file", str(self.file), "holds no completions", "Write one object per line")
        return dict(found)

    def _row(self, number: int, line: str) -> tuple[Any, str]:
        place, hint = f"{self.file.name}:{number}", 'Write {"prompt": "…", "completion": "…"}'
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(place, line, f"not valid JSON: {error}", hint) from None
        if not isinstance(row, dict):
            raise ConfigError(place, line, "not a JSON object", hint)
        for field in ("prompt", "completion"):
            if field not in row:
                raise ConfigError(f"{place}: {field}", None, "missing", hint)
        if not isinstance(row["completion"], str):
            raise ConfigError(f"{place}: completion", row["completion"], "not a text", hint)
        prompt = row["prompt"]
        if isinstance(prompt, list) and all(_is_message(turn) for turn in prompt):
            return [(turn["role"], turn["content"]) for turn in prompt], row["completion"]
        if not isinstance(prompt, str):
            raise ConfigError(f"{place}: prompt", prompt, "neither a text nor a list of messages", hint)
        return prompt, row["completion"]


def _is_message(turn: Any) -> bool:
    return isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)


def _key(prompt: str | Sequence[tuple[str, str]]) -> str:
    """A prompt as one string. A single user turn has the same key as its text."""
    if not isinstance(prompt, str) and len(prompt) == 1 and prompt[0][0] == "user":
        prompt = prompt[0][1]
    return json.dumps(prompt, ensure_ascii=False)
