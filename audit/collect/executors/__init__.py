"""Where models compute. An executor takes a backend and gives a pool, to which the scheduler hands its batches.

What is asked, retried, stored and counted is the scheduler's affair, and the same for all executors.
"""

from __future__ import annotations

from audit.collect.executors.base import Executor, PlansResources, Pool, Resources
from audit.collect.executors.local import LocalExecutor

__all__ = ["Executor", "LocalExecutor", "PlansResources", "Pool", "Resources"]
