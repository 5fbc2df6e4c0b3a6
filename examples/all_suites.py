"""The four papers' benchmarks on two small models: everything a report can contain.

    audit run examples/all_suites.py --limit 120 --small-sample

The full run takes hours on two cores; --limit asks a balanced sample of each suite, here too small to decide much.
"""

from audit import Audit
from backends import LlamaCppBackend
from backends.embedded import gemma3_path, smollm2_path
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender

audit = Audit(
    title="Four benchmarks, two small models",
    models={"SmolLM2-135M": LlamaCppBackend(smollm2_path()), "Gemma-3-270M": LlamaCppBackend(gemma3_path())},
    suites=[OccuGender(), DebiasingPositions(), MGBR(), GenderPair()],
    db="audit-out/all.db",
    out="audit-out/all",
)
