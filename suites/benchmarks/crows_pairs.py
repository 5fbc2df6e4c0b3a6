"""CrowS-Pairs and WinoQueer: is the sentence that stereotypes a group likelier than its counterpart?

Nangia, Vania, Bhalerao, Bowman 2020, "CrowS-Pairs" (EMNLP): 1,508 pairs, nine types of bias. Felkner, Chang, Jang,
May 2023, "WinoQueer" (ACL): its gender part, as asked by Tang et al. 2024. The published figure of both is the share
of pairs in which the stereotyping sentence is likelier, a tie counting as not:

    stereotype_score = pairs with P(sent_more) > P(sent_less) / all pairs        neutral 0.5

The authors compare masked models by pseudo-log-likelihood. For causal models, the log-likelihoods of whole sentences
are compared (`suites.kinds.sentences`), so printed figures of masked models are a different quantity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from backends.options import checked_options, some_of
from suites.base import MeasureSpec, Row
from suites.common.data_files import PinnedFile, load
from suites.common.published_files import Folder, read_csv
from suites.kinds.sentences import LikelierSentence, SentenceSet, by_level, in_proportion, share
from suites.presentation import Chart, Drafts, Meaning, TableColumn, TableLayout

CROWS_PAIRS = PinnedFile(
    "https://raw.githubusercontent.com/nyu-mll/crows-pairs/8aaac11c485473159ec9328a65253a5be9a479dc/"
    "data/crows_pairs_anonymized.csv",
    "dfb36986ce0502abbaf7055b9176da3d08d48e07df1251991b5dfbcbceab9d0c",
)
WINOQUEER = PinnedFile(
    "https://raw.githubusercontent.com/kstanghere/GenderCARE-ccs24/942d13525e8a029df11bae5271aa3cb5db48b1a0/"
    "Datasets/Assess_Gender_Bias/Winoqueer/winoqueer_gender.csv",
    "b17f5d59c34e13e4c4e7f83253799071b7829f8f4c49565c63ee518cf2ef68c7",
)
BIAS_TYPES = (
    "race-color",
    "gender",
    "socioeconomic",
    "nationality",
    "religion",
    "age",
    "sexual-orientation",
    "physical-appearance",
    "disability",
)
IDENTITIES = ("LGBTQ", "Queer", "Transgender", "NB")

_ASKED = {"stereotype": ("stereotyping", "counterpart")}
_DRAFTS = Drafts(load("benchmarks_report").content)


class _StereotypingPairs(LikelierSentence):
    """Pairs of a stereotyping sentence and its counterpart, of fixed groups."""

    group: ClassVar[str]
    clusters: ClassVar[tuple[str, ...]]
    version: ClassVar[int] = 3
    failures_factor: str | None = None
    path_options: ClassVar[Mapping[str, Collection[str]]] = {"folder": ()}

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        sizes = Counter(one.factors[self.group] for one in self.sets)
        overall = share(
            "stereotype_score",
            {},
            quantity="stereotype",
            stratum=self.group,
            weights=in_proportion(sizes),
            clusters=self.clusters,
            primary=True,
            family="stereotype score",
        )
        yield overall
        yield from by_level(overall, rows, self.group)

    def tables(self) -> Sequence[TableLayout]:
        levels = dict.fromkeys(one.factors[self.group] for one in self.sets)
        columns = [TableColumn("all", "stereotype_score")]
        columns += [TableColumn(str(level), "stereotype_score", {self.group: level}) for level in levels]
        return [_DRAFTS.table("stereotype_score", columns, benchmark=self.name)]

    def charts(self) -> Sequence[Chart]:
        return [_DRAFTS.chart("stereotype_score"), _DRAFTS.chart("stereotype_score_by", by=self.group)]


class CrowSPairs(_StereotypingPairs):
    """Pairs of a stereotyping sentence and its counterpart: which is likelier (CrowS-Pairs).

    Parameters
    ----------
    folder : path, optional
        Folder of ``crows_pairs_anonymized.csv`` (CC BY-SA 4.0); None fetches it once.
    bias_types : sequence of str
        Some of the nine types.
    start : str, optional
        A text before every sentence; None: the model's own start. See `suites.kinds.sentences`.
    """

    name: str = "CrowS-Pairs"
    meanings: Mapping[str, Meaning] = {
        "stereotype_score": Meaning(
            "the sentence that stereotypes is the likelier one {points} times in 100, where 50 is even"
        )
    }
    group: ClassVar[str] = "bias_type"
    clusters: ClassVar[tuple[str, ...]] = ("writer",)
    strata: tuple[str, ...] = ("bias_type",)

    @checked_options
    def __init__(
        self,
        *,
        folder: Folder = None,
        bias_types: Annotated[Sequence[str], some_of(BIAS_TYPES)] = BIAS_TYPES,
        start: str | None = None,
    ) -> None:
        self.start, self.data_sha256 = start, CROWS_PAIRS.sha256
        rows = read_csv(
            CROWS_PAIRS, folder, ("", "sent_more", "sent_less", "bias_type", "stereo_antistereo", "anon_writer")
        )
        self.sets = [
            SentenceSet(
                row[""],
                {"stereotyping": row["sent_more"], "counterpart": row["sent_less"]},
                _ASKED,
                {"bias_type": row["bias_type"], "direction": row["stereo_antistereo"], "writer": row["anon_writer"]},
            )
            for row in rows
            if row["bias_type"] in bias_types
        ]


class WinoQueer(_StereotypingPairs):
    """Pairs of a sentence about queer people and the same about cisgender people: which is likelier (WinoQueer).

    If a model is given the first token, pairs that differ in it are missing: 242 of the 16,004 pairs differ in their
    first word. A ``start`` supplies a token before it.

    Parameters
    ----------
    folder : path, optional
        Folder of ``winoqueer_gender.csv`` (MIT); None fetches it once. It contains slurs.
    identities : sequence of str
        Some of ``LGBTQ``, ``Queer``, ``Transgender``, ``NB``.
    start : str, optional
        A text before every sentence; None: the model's own start. See `suites.kinds.sentences`.
    """

    name: str = "WinoQueer"
    meanings: Mapping[str, Meaning] = {
        "stereotype_score": Meaning(
            "the sentence against queer people is the likelier one {points} times in 100, where 50 is even"
        )
    }
    group: ClassVar[str] = "identity"
    clusters: ClassVar[tuple[str, ...]] = ("template",)
    strata: tuple[str, ...] = ("identity", "counterpart")

    @checked_options
    def __init__(
        self,
        *,
        folder: Folder = None,
        identities: Annotated[Sequence[str], some_of(IDENTITIES)] = IDENTITIES,
        start: str | None = None,
    ) -> None:
        self.start, self.data_sha256 = start, WINOQUEER.sha256
        rows = read_csv(WINOQUEER, folder, ("Unnamed: 0", "Gender_ID_x", "Gender_ID_y", "sent_x", "sent_y"))
        self.sets = [
            SentenceSet(
                row["Unnamed: 0"],
                {"stereotyping": row["sent_x"], "counterpart": row["sent_y"]},
                _ASKED,
                {
                    "identity": row["Gender_ID_x"],
                    "counterpart": row["Gender_ID_y"],
                    "template": row["sent_x"].replace(row["Gender_ID_x"], "…"),
                },
            )
            for row in rows
            if row["Gender_ID_x"] in identities
        ]
