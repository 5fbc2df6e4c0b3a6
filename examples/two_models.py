"""Two small models on one engine, a sample of OccuGender. `make demo` ends with it.

    audit run examples/two_models.py

Nothing is compiled for it: transformers reads Gemma's GGUF file. The store is that of examples/demo.py, which asks
all questions and llama.cpp too.
"""

from audit import Audit
from backends import HFBackend
from backends.embedded import gemma3_path, smollm2_path
from suites import OccuGender

audit = Audit(
    title="OccuGender on two small models",
    models={
        "SmolLM2-135M, 4-bit": HFBackend(smollm2_path(), dtype="float32"),
        "Gemma-3-270M, 4-bit": HFBackend(gemma3_path(), dtype="float32"),
    },
    suites=[OccuGender()],
    limit=800,
    db="audit-out/demo.db",
    out="audit-out/demo",
)
