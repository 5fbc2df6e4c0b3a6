"""Where models compute: in this process (`LocalExecutor`), or on a Ray cluster (`audit.collect.executors.ray`)."""

from audit.collect.executors.base import Executor
from audit.collect.executors.local import LocalExecutor

__all__ = ["Executor", "LocalExecutor"]
