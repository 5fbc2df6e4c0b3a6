"""What transformers and PEFT write to the terminal beside what this project says itself, kept from it.

They print a report of weights that fit no place, a bar, and warnings with a line of their source. What of it matters
here ends as one error, or as one line of the report.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(*, watched: bool = False) -> Iterator[None]:
    """Within this block these libraries write errors alone; ``watched``: their bar too, on a terminal.

    Settings of the whole process are changed, so one block at a time is to be open.
    """
    from transformers.utils import logging as of_transformers

    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(max(level, logging.ERROR))
    shows_bar = watched and sys.stderr is not None and sys.stderr.isatty()
    hook = None if shows_bar else of_transformers.set_tqdm_hook(_no_bar)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        if not shows_bar:
            of_transformers.set_tqdm_hook(hook)


def _no_bar(bar: object, args: tuple[object, ...], options: dict[str, object]) -> object:
    from transformers.utils.logging import EmptyTqdm

    return EmptyTqdm(*args, **options)
