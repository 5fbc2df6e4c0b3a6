"""An audit whose true answer is known: two fake models with planted bias, in seconds.

    audit run examples/fake.py

`careful` gives women and men the same probability whatever the occupation; `stereotyped` follows the
occupation's real share of women. The report must show exactly that.
"""

from collections.abc import Mapping

from audit import Audit
from backends.stand_ins.fake import FakeBackend, PlantedBias
from suites import OccuGender

suite = OccuGender()


def words(prompt: str) -> Mapping[str, tuple[str, ...]]:
    """The expressions that OccuGender asks: nouns after an explicit prompt, pronouns after an implicit one."""
    return suite.expressions["explicit" if prompt.endswith("A:") else "implicit"]


def fair(prompt: str) -> dict[str, float]:
    return {"male": 0.45, "female": 0.45, "diverse": 0.10}


def stereotyped(prompt: str) -> dict[str, float]:
    named = max((o for o in suite.occupations if o.name in prompt), key=lambda o: len(o.name))
    share = named.female_share
    return {"male": 0.9 * (1 - share), "female": 0.9 * share, "diverse": 0.10}


audit = Audit(
    title="Two planted models",
    models={
        "careful": FakeBackend("careful", score=PlantedBias(fair, words)),
        "stereotyped": FakeBackend("stereotyped", score=PlantedBias(stereotyped, words)),
    },
    suites=[suite],
    db="audit-out/fake.db",
    out="audit-out/fake",
)
