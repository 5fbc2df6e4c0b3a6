"""BOLD: are a model's texts about actresses and about actors equally toxic, and equally respectful?

Dhamala et al. 2021, "BOLD" (FAccT): openings of Wikipedia articles, here about American actors and actresses, with
the instruction that Tang et al. 2024 put before them. Toxicity, regard and sentiment of the texts are compared between
the two groups. The classifier is part of the figure: the embedded ones measure offensive words and sentiment;
``paper`` selects what Tang et al. use for GenderPair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import SkipValidation

import backends.base as base
from backends.errors import ConfigError
from backends.options import checked_options
from suites.common.data_files import PinnedFile, content_sha256, load
from suites.common.published_files import Folder, read_csv
from suites.common.raters import rater_cautions, rater_table
from suites.common.text_scorer import TextScorer, text_scorer
from suites.kinds.texts import ContinuedTexts, Opening, ScorerOption
from suites.options import sampling_option
from suites.presentation import Chart, Drafts, TableColumn, TableLayout

_BASE = (
    "https://raw.githubusercontent.com/kstanghere/GenderCARE-ccs24/942d13525e8a029df11bae5271aa3cb5db48b1a0/"
    "Datasets/Assess_Gender_Bias/BOLD/"
)
FILES = {
    "actresses": PinnedFile(
        _BASE + "bold_gender_actresses_prompts.csv", "b4944012192ee9e9c28d49a6f42b494f3f6f76310d07b9c7bca404efadbbda94"
    ),
    "actors": PinnedFile(
        _BASE + "bold_gender_actors_prompts.csv", "6c5320b992676d80d340f3842e3804f704b43fb95fc17d15974cdc6b6c86aaec"
    ),
}
#: Stands before each opening in the files; left out if the opening is given as plain text to continue.
INSTRUCTION = "Please complete the following sentence: "
#: Greedy, and about as long as a sentence.
DEFAULT_SAMPLING = base.Sampling(max_tokens=32)

#: Scorers with questions of one's own, by name.
OwnRaters = Annotated[Mapping[str, TextScorer] | None, SkipValidation]
_DRAFTS = Drafts(load("benchmarks_report").content)


class BOLD(ContinuedTexts):
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
        Sentiment beside the paper's regard: ``{"sentiment": TextScorer(text_classifier("vader"), {"sentiment_negative":
        "negative", "sentiment_positive": "positive"}, "VADER sentiment")}``.
    """

    name: str = "BOLD"
    version: ClassVar[int] = 3
    groups: Sequence[str] = ("actresses", "actors")
    clusters: tuple[str, ...] = ("person",)

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
        raters: OwnRaters = None,
    ) -> None:
        self.prompt_format, self.sampling, self.seed = prompt_format, sampling, seed
        for rater in raters or {}:
            if rater in ("text", "empty", "gap", "toxicity", "regard"):
                raise ConfigError("raters", rater, "a reserved name", "Give it another")
        chosen = {"toxicity": toxicity, "regard": regard, **(raters or {})}
        self.text_scorers = {name: text_scorer(name, given) for name, given in chosen.items() if given is not None}
        self.data_sha256 = content_sha256([file.sha256 for file in FILES.values()])
        self.openings = [
            Opening(f"{group}/{number}", _opening(row["Prompt"], prompt_format), group, {"person": row["Name"]})
            for group, file in FILES.items()
            for number, row in enumerate(read_csv(file, folder, ("Name", "Prompt")))
        ]

    def tables(self) -> Sequence[TableLayout]:
        columns = []
        for name, scorer in self.text_scorers.items():
            for quantity in scorer.labels:
                label = quantity.replace("_", " ")
                columns += [
                    TableColumn(group, quantity, {"kind": name, "group": group}, label) for group in self.groups
                ]
                columns.append(TableColumn("difference", f"{quantity}_gap", {"kind": "gap", "scorer": name}, label))
        what = "; ".join(f"{name}: {scorer.what}" for name, scorer in self.text_scorers.items())
        layouts = [_DRAFTS.table("bold", columns, what=what)]
        return [*layouts, rater_table(self.raters.values())] if self.raters else layouts

    def cautions(self) -> Sequence[str]:
        return [*rater_cautions(self.raters.values(), ())]

    def charts(self) -> Sequence[Chart]:
        return [
            _DRAFTS.chart("bold", name=name, quantity=next(iter(s.labels))) for name, s in self.text_scorers.items()
        ]


def _opening(prompt: str, prompt_format: str) -> str:
    return prompt.removeprefix(INSTRUCTION).rstrip() if prompt_format == "raw" else prompt.strip()
