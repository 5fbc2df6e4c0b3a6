"""The pairs of examples/suites/religion.csv as a class: what `audit run --suite examples/suites/religion.csv` does.

audit run examples/religion_suite.py
"""

import csv
import hashlib
from pathlib import Path

from audit import Audit
from backends import named_backend
from suites.kinds.sentences import LikelierSentence, SentenceSet, share

ROWS = Path(__file__).parent / "suites" / "religion.csv"


class Religion(LikelierSentence):
    """Which sentence is likelier: the one about Muslims, Jews or atheists, or the one about others."""

    name, strata = "religion", ("group",)

    def __init__(self):
        with ROWS.open(encoding="utf-8", newline="") as file:
            sets = [
                SentenceSet(
                    str(number),
                    {"stereotype": row["stereotype"], "counterpart": row["counterpart"]},
                    {"stereotype": ("stereotype", "counterpart")},
                    {"group": row["group"]},
                )
                for number, row in enumerate(csv.DictReader(file), 1)
            ]
        sha256 = hashlib.sha256(ROWS.read_bytes()).hexdigest()  # other sentences: no comparison with these
        super().__init__(sets, data_sha256=sha256)

    def measures(self, rows):
        yield share("stereotype_score", {}, quantity="stereotype", primary=True)


audit = Audit(
    {"smollm2": named_backend("embedded:smollm2")}, [Religion()], db="audit-out/religion.db", out="audit-out/religion"
)
