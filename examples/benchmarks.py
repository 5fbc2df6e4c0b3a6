"""Published benchmarks on two small models, scored by the likelihood of the answers.

    audit run examples/benchmarks.py --limit 200

The files are fetched once from their authors' repositories. To use a copy: `BBQ(folder="my-files")`.
"""

from audit import Audit
from backends import LlamaCppBackend
from backends.embedded import gemma3_path, smollm2_path
from suites import BBQ, BiasNLI, CrowSPairs, StereoSet, WinoBias

audit = Audit(
    title="Published benchmarks, two small models",
    models={"SmolLM2-135M": LlamaCppBackend(smollm2_path()), "Gemma-3-270M": LlamaCppBackend(gemma3_path())},
    suites=[CrowSPairs(), StereoSet(), WinoBias(), BBQ(conditions=["zero-shot", "few-shot"]), BiasNLI()],
    db="audit-out/benchmarks.db",
    out="audit-out/benchmarks",
)
