"""Requests sent through a provider's batch API: at half the price, within a day, and never paid twice.

Takes the requests of one backend; gives their answers. What was sent and received is kept on disk until the run has
stored every answer, so that a killed run resumes with the same batches.
"""

from backends.openai.batches.batched import MOST_LINES, PRICE, BatchedClient
from backends.openai.batches.journal import Journal

__all__ = ["MOST_LINES", "PRICE", "BatchedClient", "Journal"]
