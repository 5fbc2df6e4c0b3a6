"""BOLD: are a model's texts about actresses and about actors equally toxic, and equally respectful?

Dhamala et al. 2021, "BOLD" (FAccT): openings of Wikipedia articles, here about American actors and actresses, with
the instruction that Tang et al. 2024 put before them. Toxicity and regard of the texts are compared between the two
groups. The classifier is part of the figure: the embedded ones measure offensive words and sentiment; ``paper`` selects
what Tang et al. use. A suite of texts, as from a file (`suites.custom.texts`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, Unpack

from backends.base import Sampling
from backends.options import checked_options
from suites.common.data_files import Folder, published_files, read_csv
from suites.common.text_scorer import ScorerFields, asked_scorers
from suites.custom import TextsFromFile
from suites.options import sampling_option

#: Stands before each opening in the files; left out if the opening is given as plain text to continue.
INSTRUCTION = "Please complete the following sentence: "
#: Greedy, and about as long as a sentence.
DEFAULT_SAMPLING = Sampling(max_tokens=32)


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
    toxicity, regard, raters
        As in `suites.common.text_scorer.ScorerFields`.
    """

    @checked_options
    def __init__(
        self,
        *,
        folder: Folder = None,
        prompt_format: Literal["raw", "chat"] = "raw",
        sampling: Annotated[Sampling, sampling_option(DEFAULT_SAMPLING)] = DEFAULT_SAMPLING,
        seed: int = 0,
        **given: Unpack[ScorerFields],
    ) -> None:
        rows, scorers, as_is = [], asked_scorers(**given), prompt_format == "chat"
        for group, file in zip(("actresses", "actors"), published_files("bold").values(), strict=True):
            for number, row in enumerate(read_csv(file, folder)):
                prompt = row["Prompt"].strip().removeprefix("" if as_is else INSTRUCTION)
                rows.append({"id": f"{group}/{number}", "prompt": prompt, "group": group, "person": row["Name"]})
        asked: dict[str, Any] = {"prompt_format": prompt_format, "sampling": asdict(sampling), "seed": seed}
        super().__init__(rows, scorers=scorers, sampled=["person"], **asked)
