"""The store: one SQLite file with every answer, run and baseline.

Takes answers, under keys that identify model and question, and the rows and results of runs. Returns them verified,
says what is unanswered, and lets several audits share the file without asking anything twice.
"""

from __future__ import annotations

from audit.store.answers import Entry, StoredAnswer
from audit.store.codecs import StoredRow, answer_from_json, join_answers, matches_request, split_response
from audit.store.keys import KeyedRequest, answer_keys, canonical_json, keyed_request, to_bytes
from audit.store.nights import Night
from audit.store.second_answers import COMPARED_WITHIN, AnswerPair
from audit.store.sqlite.database import StoreError
from audit.store.store import Store

__all__ = [
    "COMPARED_WITHIN",
    "AnswerPair",
    "Entry",
    "KeyedRequest",
    "Night",
    "Store",
    "StoreError",
    "StoredAnswer",
    "StoredRow",
    "answer_from_json",
    "answer_keys",
    "canonical_json",
    "join_answers",
    "keyed_request",
    "matches_request",
    "split_response",
    "to_bytes",
]
