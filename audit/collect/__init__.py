"""Asking models what is not stored yet.

Takes the questions that are missing, with the keys of their answers, sends them as fast as each endpoint sustains, and
writes every answer before it counts.
"""

from __future__ import annotations

from audit.collect.job_run import Ask, Job, OnEvent, Outcome
from audit.collect.sample import SAMPLE_VERSION, Sample
from audit.collect.scheduler import ShutdownRequest, run_jobs, stop_on_signals
