"""Questions sent by files and batches: at half the price, within a day, and never paid twice.

Takes the questions of one backend; gives their answers. What was sent and what came back is kept on disk until the run
has stored every answer, so that a killed run goes on with the same batches.
"""

from backends.openai.batches.batched import BatchedClient
from backends.openai.batches.journal import Journal

__all__ = ["BatchedClient", "Journal"]
