"""What checking costs at honest servers, as the page of lies says it: probes are counted, and a few questions twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.collect.repeated_questions import number_to_repeat, part_to_repeat
from backends.base import Request
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.audits import Questions
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import MODEL, STYLES, Style, WordServer

QUESTIONS = 2000
_COUNTED = 5


@dataclass(frozen=True)
class Cost:
    """Requests, without those to a tokenizer, of an audit of `QUESTIONS` questions."""

    own: int
    probe: int
    asked_again: int
    checks: int

    @property
    def together(self) -> int:
        return self.probe + self.asked_again + self.checks


async def cost(style: Style, seed: int) -> Cost:
    """Probe an honest server and plan an audit of it; odd seeds give one draw a request."""
    async with WordServer(style, seed).running() as server:
        with tempfile.TemporaryDirectory() as folder:
            backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=Path(folder))
            ask_directly(backend, server)
            await backend.probe()
            checks = backend.checking_requests(QUESTIONS, QUESTIONS)
            probe = backend.usage.requests
            first = [item.request for item in Questions(style, _COUNTED).items()]
            own = await _requests(backend, first)
            again = await _requests(backend, [part_to_repeat(backend, request) for request in first])
            await backend.close()
    return Cost(own * QUESTIONS, probe, again * number_to_repeat(QUESTIONS), checks)


async def _requests(backend: OpenAIBackend, questions: Sequence[Request]) -> int:
    """How many requests each question takes."""
    before = backend.usage.requests
    await backend.run(questions)
    each, rest = divmod(backend.usage.requests - before, len(questions))
    assert rest == 0
    return each


async def cost_table() -> list[str]:
    """Lines of the page: each style that lists, with several draws a request and with one."""
    lines = [
        "| server | draws a request | probe | asked again | canaries, lists, draws | together | of the audit's own |"
    ]
    lines.append("|---" * 7 + "|")
    for style in STYLES:
        for seed, draws in ((0, "100"), (1, "1")) if style != "drawn" else ():
            found = await cost(style, seed)
            parts = (found.probe, found.asked_again, found.checks, found.together)
            share = f"{100 * found.together / found.own:.0f} % of {found.own:,}"
            lines.append(f"| {style} | {draws} | {' | '.join(map(str, parts))} | {share} |")
    return lines


def honest_table(probes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of the page: probes of real servers, as `tests.backends.openai.honest` keeps them."""
    yield "| server, model | probes | refused | requests of a probe | failed proofs |"
    yield "|---|---|---|---|---|"
    for name in dict.fromkeys(one["server"] for one in probes):
        own = [one for one in probes if one["server"] == name]
        requests = [one["requests"] for one in own]
        refused = sum(bool(one["refused"]) for one in own)
        failed = sorted({check.split(":")[0] for one in own for check in one["failed"]})
        counted = f"{min(requests)} to {max(requests)}" if len({*requests}) > 1 else str(requests[0])
        yield f"| {name} | {len(own)} | {refused} | {counted} | {', '.join(failed) or 'none'} |"
