"""What OccuGender costs on a reasoning model that is drawn: the fixed sample at full price, and the cheapest way.

    python -m tests.simulations.drawn_budget

A stand-in on loopback thinks before each answer, gives no log-probabilities, and has a batch API at half the price. It
is asked every question 20 times, once, since that costs the same whatever is planted; then, for each seed, by a small
pilot, whose variances say how a tenth of that cost (``--part``) is best divided among questions and draws; then so,
until the gap is known within ±0.03. What is paid is counted by the stand-in. The truth is known, as the stand-in's
answers are planted: 0.25 on average, with effects of occupations, of templates and of single questions.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import special

from audit import Audit
from audit.prepare.forecast import allocate_draws
from audit.report.phrases.checks.forecast import allocation_text
from audit.results import AuditResult, Measure
from backends.base import ScoreRequest
from backends.http.usage import PriceTable
from backends.openai import OpenAIBackend
from suites import OccuGender
from suites.base import Item
from tests.backends.openai.batches.server import BatchServer
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import MODEL, THINKING, varied

PRICES = {"prompt": 2.0, "completion": 8.0}
SUITE = OccuGender(("explicit",), prompt_format="chat")
#: Standard deviations of the gap between occupations, templates and single questions, and its mean.
_BY_OCCUPATION, _BY_TEMPLATE, _BY_ITEM, _MEAN = 0.04, 0.03, 0.1, 0.25
#: Answers that name a group, and those of them that name the third.
_NAMED, _OTHER = 0.95, 0.6
#: The price of a batch, as a part of the full one.
_BATCH_PRICE = 0.5
#: Draws that check the model again, each worth two in a batch.
_CHECKS = 40


def _normal(*parts: object) -> float:
    """A standard normal number that depends on the parts alone."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return float(special.ndtri((int.from_bytes(digest[:6], "big") + 0.5) / 2**48))


def planted_gap(item: Item, seed: int) -> float:
    """The true gap at one question."""
    occupation, template = item.factors["occupation"], item.factors["template"]
    gap = _MEAN + _BY_OCCUPATION * _normal(seed, occupation) + _BY_TEMPLATE * _normal(seed, template)
    return min(max(gap + _BY_ITEM * _normal(seed, item.id), _OTHER - 1), 1 - _OTHER)


def true_gap(seed: int) -> float:
    """The mean over the suite's questions."""
    gaps = [planted_gap(item, seed) for item in SUITE.items()]
    return sum(gaps) / len(gaps)


class PaidServer(BatchServer):
    """A reasoning model with batches, which adds up what is paid."""

    def __init__(self, seed: int) -> None:
        self._gaps = dict(_by_prompt(seed))
        super().__init__(self._answers, THINKING)
        self._random = random.Random(seed)  # or all seeds would share the chance of their draws
        self.thought_tokens, self.paid_for, self.draws = 300, 0.0, 0

    def _answers(self, question: str) -> Mapping[str, float]:
        if question not in self._gaps:
            return varied(question)
        gap, is_female = self._gaps[question]
        stereotyped, other = (1 - _OTHER + gap) / 2, (1 - _OTHER - gap) / 2
        of = {
            "Female": stereotyped if is_female else other,
            "Male": other if is_female else stereotyped,
            "They": _OTHER,
        }
        return {**{word: _NAMED * share for word, share in of.items()}, "It depends": 1 - _NAMED}

    def _run(self, batch: dict[str, Any]) -> None:
        super()._run(batch)
        for line in self.files[batch["output_file_id"]].splitlines():
            self._charge(json.loads(line)["response"]["body"], 0.5)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        reply = super().reply(path, sent)
        self._charge(reply.body, 1.0)
        return reply

    def _charge(self, body: Any, price: float) -> None:
        usage = body.get("usage") if isinstance(body, dict) else None
        if usage:
            cost = usage["prompt_tokens"] * PRICES["prompt"] + usage["completion_tokens"] * PRICES["completion"]
            self.paid_for += price * cost / 1e6
            self.draws += len(body["choices"])


def _by_prompt(seed: int) -> Iterator[tuple[str, tuple[float, bool]]]:
    for item in SUITE.items():
        assert isinstance(item.request, ScoreRequest)
        (turn,) = item.request.prompt
        yield turn.content, (planted_gap(item, seed), item.factors["dominated_by"] == "female")  # type: ignore[union-attr]


@dataclass(frozen=True)
class Stage:
    """One run: what it drew and cost, and the gap that it found."""

    name: str
    items: int
    draws: int
    cost: float
    engine_cost: float
    gap: Measure

    @property
    def half_width(self) -> float:
        """Half of the interval of the sampling error."""
        assert self.gap.sampling_low is not None
        assert self.gap.sampling_high is not None
        return (self.gap.sampling_high - self.gap.sampling_low) / 2

    def holds(self, truth: float) -> bool:
        """Whether that interval holds the truth."""
        assert self.gap.sampling_low is not None
        assert self.gap.sampling_high is not None
        return self.gap.sampling_low <= truth <= self.gap.sampling_high


def gap_of(result: AuditResult) -> Measure:
    """The suite's first primary figure."""
    return next(m for m in result.measures if m.spec.primary and m.measure == "stereotype_gap")


async def run_stage(name: str, server: PaidServer, folder: Path, *, samples: int, batch: bool, **options: Any) -> Stage:
    """Run an audit and add up what the server was paid for it, its probe included."""
    paid, draws = server.paid_for, server.draws
    audit = audit_of(server, folder, samples=samples, batch=batch, **options)
    result = await audit.run()
    assert result.complete, result.problems
    spent = audit.models["hosted"].spent()  # type: ignore[attr-defined]
    items = sum(model.asked + model.cached for model in result.models)
    return Stage(name, items, server.draws - draws, server.paid_for - paid, spent or 0.0, gap_of(result))


def audit_of(server: PaidServer, folder: Path, *, samples: int, batch: bool, **options: Any) -> Audit:
    """The suite on the stand-in."""
    backend = OpenAIBackend(
        server.base_url,
        model=MODEL,
        api_key_env=None,
        samples=samples,
        batch=batch,
        prices=PriceTable(**PRICES),
        probe_folder=folder / "probes",
    )
    return Audit({"hosted": backend}, [SUITE], db=folder / "audit.db", out=folder / "out", **options)


async def fixed_sample(seed: int, draws: int) -> Stage:
    """Every question drawn so often at full price."""
    with tempfile.TemporaryDirectory() as name:
        async with PaidServer(seed).running() as server:
            return await run_stage(f"all items x {draws}", server, Path(name), samples=draws, batch=False)


async def planned_sample(within: float, seed: int, most_draws: int, pilot_items: int) -> list[Stage]:
    """The pilot and what it advises, in batches, with so many draws in all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with PaidServer(seed).running() as server:
            pilot = await run_stage("pilot, batch", server, folder, samples=4, batch=True, limit=pilot_items)
            probe = pilot.draws - pilot.items * 4  # at full price, so each is worth two in a batch
            left = most_draws - pilot.draws - probe - _CHECKS
            planned = allocate_draws(audit_of(server, folder, samples=4, batch=True), budget=left)
            print(allocation_text(planned))
            (advice,) = planned.allocations
            assert advice.draws is not None
            options = {"samples": advice.draws, "batch": True, "until": within, "limit": advice.items}
            asked = await run_stage(f"until ±{within:g}, batch", server, folder, **options)
    return [pilot, asked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fixed", type=int, default=20, help="draws of each question in the fixed sample")
    parser.add_argument("--pilot", type=int, default=160, help="items of the pilot")
    parser.add_argument("--part", type=float, default=0.1, help="the most of the fixed sample's cost that may be spent")
    options = parser.parse_args()
    whole = asyncio.run(fixed_sample(0, options.fixed))
    _show(whole, true_gap(0))
    most_draws, reached, held, parts = int(options.part * whole.draws / _BATCH_PRICE), 0, 0, 0.0
    for seed in range(options.first, options.first + options.seeds):
        stages, truth = asyncio.run(planned_sample(options.within, seed, most_draws, options.pilot)), true_gap(seed)
        for one in stages:
            _show(one, truth)
        reached += stages[-1].half_width <= options.within
        held += stages[-1].holds(truth)
        part = sum(one.cost for one in stages) / whole.cost
        parts += part / options.seeds
        print(f"seed {seed}: truth {truth:.3f}; {part:.1%} of the fixed sample at full price", flush=True)
    print(f"±{options.within:g} reached in {reached} of {options.seeds}, {parts:.1%} on average; {held} hold the truth")


def _show(one: Stage, truth: float) -> None:
    value = "none" if one.gap.value is None else f"{one.gap.value:.3f}"  # an item without a named group has no value
    print(
        f"{one.name:20} {one.items:6,} items {one.draws:7,} draws  cost {one.cost:7.3f} (engine {one.engine_cost:.3f})"
        f"  gap {value} ±{one.half_width:.4f}{'' if one.holds(truth) else ' MISSES'}",
        flush=True,
    )


if __name__ == "__main__":
    main()
