"""Tests empirically what a server can do and whether it tells the truth.

Takes a server; gives a `ProbeReport` with the proven capabilities, and canary questions that are asked again later.
"""

from backends.openai.probe.canary import (
    DRAWS,
    Canary,
    ask_canary,
    ask_watched,
    coarse_identity,
    draws_still_vary,
    exact_identity,
    knows_less,
    move_since,
    random_questions,
    tolerance,
    with_listed_words,
)
from backends.openai.probe.record import ProbeRecord
from backends.openai.probe.replica_proof import ReplicaProof
from backends.openai.probe.report import VERSION, ProbeReport
from backends.openai.probe.run import probe, report_of

__all__ = [
    "DRAWS",
    "VERSION",
    "Canary",
    "ProbeRecord",
    "ProbeReport",
    "ReplicaProof",
    "ask_canary",
    "ask_watched",
    "coarse_identity",
    "draws_still_vary",
    "exact_identity",
    "knows_less",
    "move_since",
    "probe",
    "random_questions",
    "report_of",
    "tolerance",
    "with_listed_words",
]
