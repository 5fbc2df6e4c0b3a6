"""Answers by key: written once, verified at each read, quarantined when damaged.

Takes keyed requests with their answers. The scores of one prompt are one packed value; everything else is a row under
its key. Gives answers back by request, or by key alone.
"""

from __future__ import annotations

from audit.store.answers.answers import Answers
from audit.store.answers.values import Entry, StoredAnswer

__all__ = ["Answers", "Entry", "StoredAnswer"]
