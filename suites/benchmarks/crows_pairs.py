"""CrowS-Pairs: is the sentence that stereotypes a group likelier than its counterpart?

Nangia, Vania, Bhalerao, Bowman 2020, "CrowS-Pairs" (EMNLP): 1,508 pairs, nine types of bias. The authors compare masked
models by pseudo-log-likelihood; here the log-likelihoods of whole sentences are compared (`suites.kinds.sentences`),
so printed figures of masked models are a different quantity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from backends.options import checked_options, some_of
from suites.common.data_files import Folder, published_file, read_csv
from suites.custom import PairsFromFile

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


class CrowSPairs(PairsFromFile):
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

    name = "CrowS-Pairs"

    @checked_options
    def __init__(
        self,
        *,
        folder: Folder = None,
        bias_types: Annotated[Sequence[str], some_of(BIAS_TYPES)] = BIAS_TYPES,
        start: str | None = None,
    ) -> None:
        rows = read_csv(published_file("crows_pairs"), folder)
        pairs = [_pair(row) for row in rows if row["bias_type"] in bias_types]
        super().__init__(pairs, levels="bias_type", sampled=["writer"], start=start)


def _pair(row: Mapping[str, str]) -> dict[str, str]:
    factors = {"bias_type": row["bias_type"], "direction": row["stereo_antistereo"], "writer": row["anon_writer"]}
    return {"id": row[""], "stereotype": row["sent_more"], "counterpart": row["sent_less"], **factors}
