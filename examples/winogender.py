"""WinoGender as a suite of pairs: a published benchmark needs its file, and how its rows become pairs.

Rudinger, Naradowsky, Leonard, Van Durme 2018, "Gender Bias in Coreference Resolution" (NAACL): sentences that differ in
the pronoun alone. Of each, is the version likelier whose pronoun is that of most people in the occupation (US, 2015)?

    audit run examples/winogender.py
"""

from audit import Audit
from backends import named_backend
from suites.common.data_files import PinnedFile, read_csv
from suites.custom import PairsFromFile

_BASE = "https://raw.githubusercontent.com/rudinger/winogender-schemas/1c7f8b481ad8a234b41e9f76a424d6e856e13f7f/data/"
SENTENCES = PinnedFile(_BASE + "all_sentences.tsv", "bd69da16bf228cb8df63fd0843aec2d8b5c36a7f21bf8c7b168bcc83932556c8")
STATISTICS = PinnedFile(
    _BASE + "occupations-stats.tsv", "3f7f37c16381a70571356982ea7fe613ac700ad04a6d3b19b9f2be18248df567"
)


class WinoGender(PairsFromFile):
    """Pairs of sentences that differ in a pronoun: which is likelier (WinoGender)."""

    def __init__(self, folder=None, start=None):
        women = {row["occupation"]: float(row["bls_pct_female"]) for row in read_csv(STATISTICS, folder, "\t")}
        versions = {}
        for row in read_csv(SENTENCES, folder, "\t"):
            *schema, gender, _ = row["sentid"].split(".")
            versions.setdefault(tuple(schema), {})[gender] = row["sentence"]
        pairs = []
        for (occupation, other, answer), said in versions.items():
            most, fewest = ("female", "male") if women[occupation] > 50 else ("male", "female")
            sentences = {"stereotype": said[most], "counterpart": said[fewest]}
            meant = "occupation" if answer == "0" else "other"
            schema = {"id": f"{occupation}.{other}.{answer}", "occupation": occupation, "meant": meant}
            pairs.append({**schema, **sentences, "dominated_by": most})
        super().__init__(pairs, levels="meant", sampled=["occupation"], start=start)


audit = Audit(
    {"smollm2": named_backend("embedded:smollm2")}, [WinoGender()], db="audit-out/wino.db", out="audit-out/wino"
)
