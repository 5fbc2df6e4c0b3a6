"""Asking models what is not stored yet.

Takes plans: lazily made questions with the keys of their answers. Looks them up in the store, sends what is missing at
the pace that each endpoint sustains, writes every answer before it counts, and hands it to the question's sink.
"""

from __future__ import annotations

from audit.collect.interim_looks import ALL_AT_ONCE, InterimLook, assign_looks, plan_looks
from audit.collect.items import PackedItems
from audit.collect.jobs import Job, OnEvent, Outcome
from audit.collect.plan import CHUNK, Plan, Question, look_up
from audit.collect.sample import SAMPLE_VERSION, Sample
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import ShutdownRequest, stop_on_signals
from audit.collect.useful_sample import (
    Requirement,
    leading_specs,
    levels_behind,
    levels_by_stratum,
    sampled_factors,
)

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
    "leading_specs",
    "levels_behind",
    "levels_by_stratum",
    "look_up",
    "plan_looks",
    "run_jobs",
    "sampled_factors",
    "stop_on_signals",
]
