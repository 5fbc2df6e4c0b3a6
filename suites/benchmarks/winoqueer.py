"""WinoQueer: is a sentence about queer people likelier than the same about cisgender people?

Felkner, Chang, Jang, May 2023, "WinoQueer" (ACL): its gender part, as asked by Tang et al. 2024. As in
`suites.benchmarks.crows_pairs`, whole sentences are compared. If a model is given the first token, pairs that differ in
it are missing: 242 of the 16,004 pairs differ in their first word. A ``start`` supplies a token before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from backends.options import checked_options, some_of
from suites.common.data_files import Folder, published_file, read_csv
from suites.custom import PairsFromFile
from suites.presentation import Meaning, Shown

IDENTITIES = ("LGBTQ", "Queer", "Transgender", "NB")
_MEANING = Meaning(
    "the sentence against queer people is the likelier one {points} times in 100, where 50 is even",
    finding="prefer{s} the sentence against queer people",
    opposite="prefer{s} its counterpart",
)


class WinoQueer(PairsFromFile):
    """Pairs of a sentence about queer people and the same about cisgender people: which is likelier (WinoQueer).

    Parameters
    ----------
    folder : path, optional
        Folder of ``winoqueer_gender.csv`` (MIT); None fetches it once. It contains slurs.
    identities : sequence of str
        Some of ``LGBTQ``, ``Queer``, ``Transgender``, ``NB``.
    start : str, optional
        A text before every sentence; None: the model's own start. See `suites.kinds.sentences`.
    """

    shown = Shown({"stereotype_score": _MEANING})
    strata = ("identity", "against")

    @checked_options
    def __init__(
        self,
        *,
        folder: Folder = None,
        identities: Annotated[Sequence[str], some_of(IDENTITIES)] = IDENTITIES,
        start: str | None = None,
    ) -> None:
        rows = read_csv(published_file("winoqueer"), folder)
        pairs = [_pair(row) for row in rows if row["Gender_ID_x"] in identities]
        super().__init__(pairs, levels="identity", sampled=["template"], start=start)


def _pair(row: Mapping[str, str]) -> dict[str, str]:
    """A row as a pair; the factor ``against`` is the identity that the other sentence names."""
    identity, sentence = row["Gender_ID_x"], row["sent_x"]
    factors = {"identity": identity, "against": row["Gender_ID_y"], "template": sentence.replace(identity, "…")}
    return {"id": row["Unnamed: 0"], "stereotype": sentence, "counterpart": row["sent_y"], **factors}
