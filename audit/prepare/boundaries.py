"""Checks how prompts and continuations meet in the models' tokens. Loads only their tokenizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from backends.base import Backend, ScoreRequest, SupportsBoundaries
from backends.errors import BackendError, ConfigError, one_line
from suites.base import Item


@dataclass
class BoundaryCheck:
    """How a model's tokenizer splits a suite's questions.

    Attributes
    ----------
    counts : Counter
        Continuations by boundary (`backends.base.Boundary`).
    straddled : str
        One prompt's end and its continuation that share a token; empty without any.
    straddled_in_part : int
        Questions in which only some continuations share a token with the prompt.
    refused : list of (item id, BackendError)
        Questions that cannot be scored.
    """

    model: str
    suite: str
    counts: Counter[str] = field(default_factory=Counter)
    straddled: str = ""
    straddled_in_part: int = 0
    refused: list[tuple[str, BackendError]] = field(default_factory=list)

    def mistakes(self) -> Iterator[ConfigError]:
        """The first of the questions that cannot be scored."""
        for item_id, error in self.refused[:1]:
            questions = f"{len(self.refused):,} questions cannot be scored" if len(self.refused) > 1 else "no answer"
            yield ConfigError(f"{self.suite} on {self.model}", item_id, f"{questions}: {error.message}", error.hint)


def check_boundaries(model: str, backend: Backend, suite: str, items: Sequence[Item]) -> BoundaryCheck | None:
    """Check items with a model's tokenizer; None if it has none locally, or nothing is scored.

    Raises
    ------
    ConfigError
        Where the tokenizer cannot be loaded.
    """
    asked = [(item.id, item.request) for item in items if isinstance(item.request, ScoreRequest) and not item.scorer]
    if not isinstance(backend, SupportsBoundaries):
        return None
    try:
        backend.check()
        answers = backend.boundaries([request for _, request in asked])
    except BackendError as error:
        raise ConfigError(f"models.{model}", model, error.message, error.hint) from None
    except ConfigError as error:
        raise error.within(f"models.{model}") from None
    except Exception as error:  # foreign code: a hub that cannot be reached, a file that is none
        problem = f"its tokenizer cannot be loaded: {one_line(error)}"
        raise ConfigError(f"models.{model}", model, problem, "Check the name or the path") from None
    if not asked:
        return None  # its tokenizer was loaded all the same: a model that is not there is told
    found = BoundaryCheck(model, suite)
    for (item_id, request), answer in zip(asked, answers, strict=True):
        if isinstance(answer, BackendError):
            found.refused.append((item_id, answer))
            continue
        if request.first_given:
            continue  # no prompt, and so no boundary
        found.counts.update(answer)
        found.straddled_in_part += "straddled" in answer and set(answer) != {"straddled"}
        if not found.straddled and "straddled" in answer:
            prompt = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
            found.straddled = f"{prompt[-20:]}|{request.continuations[answer.index('straddled')]}"
    return found
