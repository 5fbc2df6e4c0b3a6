"""Asking models what is not stored yet.

Takes plans: lazily generated questions with the keys of their answers. Looks them up in the store, sends the missing
ones as fast as each endpoint sustains, writes every answer before it counts, and passes it to the question's sink.
"""

from __future__ import annotations

from audit.collect.interim_looks import ALL_AT_ONCE, InterimLook, assign_looks, plan_looks, plan_precision_looks
from audit.collect.items import PackedItems
from audit.collect.jobs import Job, OnEvent, Outcome
from audit.collect.plan import CHUNK, Plan, Question, look_up
from audit.collect.sample import SAMPLE_VERSION, Sample
from audit.collect.sample_requirement import (
    Requirement,
    items_behind,
    leading_specs,
    levels_behind,
    sampled_factors,
)
from audit.collect.scheduler import run_jobs
from audit.collect.shards import in_part
from audit.collect.shutdown import ShutdownRequest, stop_on_signals

__all__ = [
    "ALL_AT_ONCE",
    "CHUNK",
    "SAMPLE_VERSION",
    "InterimLook",
    "Job",
    "OnEvent",
    "Outcome",
    "PackedItems",
    "Plan",
    "Question",
    "Requirement",
    "Sample",
    "ShutdownRequest",
    "assign_looks",
    "in_part",
    "items_behind",
    "leading_specs",
    "levels_behind",
    "look_up",
    "plan_looks",
    "plan_precision_looks",
    "run_jobs",
    "sampled_factors",
    "stop_on_signals",
]
