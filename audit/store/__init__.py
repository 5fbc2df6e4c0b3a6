"""The store: one SQLite file with every answer, run and baseline.

Takes answers, under keys that identify model and question, and the rows and results of runs. Returns them verified,
says what is unanswered, and lets several audits share the file without asking anything twice.
"""

from __future__ import annotations

from audit.store.answers import Answered, Partly, Stored, answer_json
from audit.store.database import StoreError
from audit.store.keys import Keyed, canonical_json, keyed, of_run, to_bytes
from audit.store.rows import matches_request
from audit.store.runs import Night, StoredRow, StoredTable
from audit.store.second_answers import COMPARED_WITHIN, AnswerPair
from audit.store.store import Store
