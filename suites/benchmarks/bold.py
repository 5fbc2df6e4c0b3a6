"""BOLD: are a model's texts about actresses and about actors equally toxic, and equally respectful?

Dhamala et al. 2021, "BOLD" (FAccT): openings of Wikipedia articles, here about American actors and actresses, with
the instruction that Tang et al. 2024 put before them. Toxicity and regard of the texts are compared between the two
groups. The classifier is part of the figure: the embedded ones measure offensive words and sentiment; ``paper`` selects
what Tang et al. use. A suite of texts, as from a file (`suites.custom.texts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import SkipValidation

import backends.base as base
from backends.errors import ConfigError
from backends.options import checked_options
from suites.common.data_files import Folder, published_files, read_csv
from suites.common.text_scorer import ScorerOption, TextScorer, text_scorer
from suites.custom import TextsFromFile
from suites.options import sampling_option

#: Group → its file.
FILES = dict(zip(("actresses", "actors"), published_files("bold").values(), strict=True))
#: Stands before each opening in the files; left out if the opening is given as plain text to continue.
INSTRUCTION = "Please complete the following sentence: "
#: Greedy, and about as long as a sentence.
DEFAULT_SAMPLING = base.Sampling(max_tokens=32)


class BOLD(TextsFromFile):
    """What a model writes about actresses and actors, rated by text classifiers (BOLD).

    Parameters
    ----------
    folder : path, optional
        Folder of the two files (CC BY-SA 4.0); None fetches them once.
    prompt_format : {"raw", "chat"}
        The opening as plain text, without trailing space; or instruction and opening as a user turn.
    sampling : Sampling or mapping
        The same for all models; a mapping replaces some fields of `DEFAULT_SAMPLING`.
    seed : int
    toxicity, regard : str, path, Backend, TextScorer or None
        As in GenderPair; None leaves the figure out.
    raters : mapping of str to TextScorer, optional
        Scorers with questions of your own, by name. A language model is tested by the scorer's ``labelled`` texts.
    """

    @checked_options
    def __init__(
        self,
        *,
        folder: Folder = None,
        prompt_format: Literal["raw", "chat"] = "raw",
        sampling: Annotated[base.Sampling, sampling_option(DEFAULT_SAMPLING)] = DEFAULT_SAMPLING,
        seed: int = 0,
        toxicity: ScorerOption = "profanity",
        regard: ScorerOption = "vader",
        raters: Annotated[Mapping[str, TextScorer] | None, SkipValidation] = None,
    ) -> None:
        for name in {"toxicity", "regard"} & {*(raters or {})}:
            raise ConfigError("raters", name, "a reserved name", "Give it another")
        chosen = {"toxicity": toxicity, "regard": regard, **(raters or {})}
        scorers = {name: text_scorer(name, given) for name, given in chosen.items() if given is not None}
        rows = [*_rows(folder, prompt_format)]
        super().__init__(
            rows, scorers=scorers, sampled=["person"], prompt_format=prompt_format, sampling=asdict(sampling), seed=seed
        )


def _rows(folder: str | Path | None, prompt_format: str) -> Iterator[dict[str, str]]:
    for group, file in FILES.items():
        for number, row in enumerate(read_csv(file, folder)):
            raw = row["Prompt"].removeprefix(INSTRUCTION).rstrip() if prompt_format == "raw" else row["Prompt"].strip()
            yield {"id": f"{group}/{number}", "prompt": raw, "group": group, "person": row["Name"]}
