"""A process of a divided model other than the first: ``python -m backends.transformers.follower``.

Started by `tensor_parallel`, which sends it the options of `HFBackend`, then the batches.
"""

from __future__ import annotations

import os
import pickle
import sys

from backends.errors import one_line
from backends.transformers.backend import HFBackend
from backends.transformers.tensor_parallel import join_group


def follow() -> None:
    """Load the model, then answer every batch that comes, until the pipe closes."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not mix with what is said to rank 0

    def say(message: str | None) -> None:
        pickle.dump(message, out)
        out.flush()

    try:
        start = pickle.load(sys.stdin.buffer)
        backend = HFBackend(**start["options"])
        backend.follows = True
        say(None)
        join_group(start["rank"], start["size"], start["port"])
        while True:
            batch = pickle.load(sys.stdin.buffer)
            if batch is None:
                backend.load()
            else:
                backend.run_blocking(batch)
            say(None)
    except EOFError:  # rank 0 has closed the pipe, or has ended
        return
    except Exception as error:
        say(one_line(error))
        os._exit(1)  # at once: the others wait in the middle of a sum


if __name__ == "__main__":
    follow()
