"""Asking models what is not stored yet.

Takes plans: lazily made questions with the keys of their answers. Looks them up in the store, sends what is missing at
the pace that each endpoint sustains, writes every answer before it counts, and hands it to the question's sink.
"""

from __future__ import annotations

from audit.collect.items import PackedItems
from audit.collect.jobs import Job, OnEvent, Outcome
from audit.collect.plan import CHUNK, Plan, Question, look_up
from audit.collect.sample import limit_items
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import ShutdownRequest, stop_on_signals

__all__ = [
    "CHUNK",
    "Job",
    "OnEvent",
    "Outcome",
    "PackedItems",
    "Plan",
    "Question",
    "ShutdownRequest",
    "limit_items",
    "look_up",
    "run_jobs",
    "stop_on_signals",
]
